#!/usr/bin/env bash
# Changes the Go code in one place at a time, and lists the changes that no test of the same package detects;
# `make mutate-go` runs it. It runs gremlins in a copy of the module. Each change costs one run of the
# package's tests.
#
#   PACKAGE=client                    a directory of any module of the project, with the directories below it
#   FILES="bounded.go breaker.go"     only these files of PACKAGE; without it, all
#
# Changes that no caller can see are listed in tools/mutate/equivalent-go.tsv: file, kind of change, line
# and reason, separated by tabs. An entry is valid as long as its file has that line. The exit code
# is 1 if any other change survives.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
list=$root/tools/mutate/equivalent-go.tsv
build=$root/.build
package=${PACKAGE:?"PACKAGE is empty; name a folder, such as PACKAGE=client"}
package=${package%/}

[ -d "$package" ] || {
	echo "PACKAGE=$package is not a folder; name one, such as PACKAGE=client"
	exit 1
}
mkdir -p "$build"
tools/install.sh gremlins
module=$(dirname "$(cd "$package" && go env GOMOD)")

# In the copy, go.work would name the original module. So the copy uses what tools/tidy.sh writes: the module's
# go.mod with the project's other modules replaced by their directories.
if [ "$module" != "$root" ]; then
	tools/tidy.sh --check
	GOWORK=off
	export GOWORK GOFLAGS="${GOFLAGS:-} -modfile=$build/tidy/${module#"$root/"}/replaced.mod"
fi

# gremlins stops the tests after ten times their usual duration. It measures that duration in a run without
# changes, so this run must not use cached results.
export GOFLAGS="${GOFLAGS:-} -count=1"
arguments=(--workers 1 --invert-logical --timeout-coefficient 10)
for file in ${FILES:-}; do
	[ -f "$package/$file" ] || {
		echo "there is no $package/$file; FILES names files of PACKAGE"
		exit 1
	}
done
if [ -n "${FILES:-}" ]; then
	while IFS= read -r file; do
		file=${file#"$package/"}
		[[ " $FILES " == *" $file "* ]] || arguments+=(--exclude-files "^${file//./\\.}\$")
	done < <(find "$package" -name '*.go' -not -name '*_test.go')
fi

status=0
log=$build/mutate-go.log
(cd "$module" && "$build/gremlins" unleash "${arguments[@]}" "$root/$package") >"$log" 2>&1 || {
	cat "$log"
	exit 1
}
while read -r _ kind _ place; do
	IFS=: read -r file line _ <<<"$place"
	text=$(sed -n "${line}s/^[[:space:]]*//p" "$package/$file")
	if [ -f "$list" ] && cut -f 1-3 "$list" | grep -qxF "$package/$file"$'\t'"$kind"$'\t'"$text"; then continue; fi
	printf 'survived: %s:%s %s\t%s\n' "$package/$file" "${place#*:}" "$kind" "$text"
	status=1
done < <(sed '/^Shutting down/q' "$log" | grep -E '^ *LIVED ')
grep -E '^(Killed|Timed|Test|Mutator)' "$log" || {
	echo "it was interrupted"
	status=1
}
exit $status
