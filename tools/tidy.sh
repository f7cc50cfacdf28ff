#!/usr/bin/env bash
# Runs go mod tidy in each module, and writes the version of functions/build.go into go.work and the go.mod files.
# With --check it changes nothing, prints what it would change, and fails if there is something.
#
# The modules of this project require each other in the version of the next release. Nobody can download that
# version yet, go mod tidy ignores go.work, and a released go.mod must not have replace lines, because
# `go install PROGRAM@VERSION` refuses them. So go mod tidy works on copies that have such lines.
set -euo pipefail
cd "$(dirname "$0")/.."
project=github.com/ratelimit-functions/ratelimit
version=v$(sed -n 's/^const version = "\(.*\)"$/\1/p' functions/build.go)
copies=$PWD/.build/tidy
mkdir -p "$copies"

# put COPY FILE: replaces the file by the copy if they differ. With --check it prints the differences and fails.
check=${1:-}
put() {
	cmp -s "$1" "$2" && return
	if [ "$check" = --check ]; then diff -u "$2" "$1"; else cp "$1" "$2"; fi
}

sed -E "s|($project[^ ]*) v[^ ]+ =>|\1 $version =>|" go.work >"$copies/go.work"
put "$copies/go.work" go.work || {
	echo "run tools/tidy.sh"
	exit 1
}
modules=$(sed -nE 's|^\t(\.[^ ]*)$|\1|p' go.work)
replace=()
drop=()
for m in $modules; do
	replace+=("-replace=$project${m#.}@$version=$PWD/$m")
	drop+=("-dropreplace=$project${m#.}@$version")
done

tidy() {
	local copy=$copies/$1
	mkdir -p "$copy"
	sed -E "s|^(.*$project[^ ]*) v[^ ]+|\1 $version|" "$1/go.mod" >"$copy/replaced.mod"
	cp "$1/go.sum" "$copy/replaced.sum"
	go mod edit "${replace[@]}" "$copy/replaced.mod"
	GOWORK=off go -C "$1" mod tidy -modfile="$copy/replaced.mod" || return
	cp "$copy/replaced.mod" "$copy/go.mod"
	go mod edit "${drop[@]}" "$copy/go.mod"
	cp "$copy/replaced.sum" "$copy/go.sum"
	put "$copy/go.mod" "$1/go.mod" && put "$copy/go.sum" "$1/go.sum"
}

# On a new machine this downloads all dependencies, so it works on all modules at the same time.
jobs=()
for m in $modules; do
	tidy "$m" &
	jobs+=($!)
done
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
[ $status = 0 ] || echo "run tools/tidy.sh"
exit $status
