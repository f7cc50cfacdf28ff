#!/usr/bin/env bash
# Run this before each commit. It checks formatting, go vet and the built library. It also runs the
# tests that the changes since the last commit can affect and that need no server: those of the
# changed packages, and of the packages that depend on them.
# Only make test runs the blocks in the documents (tools/docs, tools/ci).
set -euo pipefail
cd "$(dirname "$0")/.."

changed=$( (git diff --name-only HEAD && git ls-files --others --exclude-standard) | sort -u)
[ -n "$changed" ] || {
	echo "nothing has changed since the last commit"
	exit 0
}

present=$(for file in $changed; do [ ! -e "$file" ] || echo "$file"; done) # a change may also delete files
bad=$( (grep '\.go$' <<<"$present" || true) | xargs -r gofmt -l)
[ -z "$bad" ] || {
	echo "not formatted; run gofmt -w on:"
	echo "$bad"
	exit 1
}
if grep -q '^functions/' <<<"$changed"; then
	(cd functions && go run ./internal/generate -check)
	luac5.1 -p functions/ratelimit.lua
	luacheck --no-color --quiet functions/ratelimit.lua
fi
go vet work

# A file belongs to the package in the nearest directory above it. For example, vectors belong to functions.
root=github.com/ratelimit-functions/ratelimit
packages=$(go list work)
touched=()
while read -r file; do
	for ((dir = 1; dir; )); do
		file=$(dirname "$file")
		if [ "$file" = . ]; then dir=0; elif grep -qx "$root/$file" <<<"$packages"; then
			touched+=("$root/$file")
			dir=0
		fi
	done
done <<<"$changed"
[ ${#touched[@]} -gt 0 ] || {
	echo "ok: formats and vet; no package changed (make test runs the documents)"
	exit 0
}

# slow lists the packages whose tests need a server or build everything.
slow=$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' work | grep -F "$root/internal/redistest" | cut -d ' ' -f 1)
slow+=$'\n'$(printf '%s\n' "$root/tools" "$root/tools/docs" "$root/tools/ci")
affected=$(
	go list -test -f '{{.ImportPath}} {{join .Deps " "}} ' work | grep -F "$(printf ' %s \n' "${touched[@]}")" |
		cut -d ' ' -f 1 | sed -E 's/(_test|\.test)$//' | grep -vFx "$slow" || true
)
go test -p 4 $(printf '%s\n' "${touched[@]}" $affected | sort -u | grep -Fx "$packages")
