#!/usr/bin/env bash
# `make release` runs this script. It builds the binaries of a release, and their SHA256SUMS, into
# .build/release. It builds each binary twice, the second time from another directory and with an
# empty build cache, and fails if the two differ. So anyone can check the digests: the same commit
# and the same Go version give the same bytes. Beside the binaries it writes, for each program, a bill
# of materials (CycloneDX) and the licences of the modules in it.
#
#   RELEASE_KEY=FILE   an SSH key that signs SHA256SUMS; SECURITY.md says how to verify the signature
set -euo pipefail
cd "$(dirname "$0")/.."
platforms="linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64"
out=$PWD/.build/release

fail() {
	echo "release.sh: $*" >&2
	exit 1
}

if command -v sha256sum >/dev/null; then sha256() { sha256sum "$@"; }; else sha256() { shasum -a 256 "$@"; }; fi

# binaries SOURCES FOLDER: builds all binaries.
binaries() {
	local platform suffix
	for platform in $platforms; do
		suffix=_${platform/\//_}
		case $platform in windows/*) suffix+=.exe ;; esac
		"$1/tools/build.sh" "${platform%/*}" "${platform#*/}" "$2/ratelimit$suffix"
		"$1/tools/build.sh" "${platform%/*}" "${platform#*/}" "$2/ratelimit-gateway$suffix" gateway
	done
}

changes=$(git status --porcelain) || fail "this folder is not a git checkout, and a release is made of a commit"
[ -z "$changes" ] || fail "a release is made of a commit, and these changes are not in one; commit them, or git stash -u:
$changes"
version=$(sed -n 's/^const version = "\(.*\)"$/\1/p' functions/build.go)
for tag in $(git tag --points-at HEAD 'v*'); do
	[ "$tag" = "v$version" ] || fail "this commit has the tag $tag, and functions/build.go says version $version; make them agree"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out" "$work/out"
echo "building ratelimit and ratelimit-gateway $version for $platforms"
binaries "$PWD" "$out"
(cd "$out" && sha256 ratelimit* >"$work/SHA256SUMS")
echo "building all of it again, to compare"
git clone -q . "$work/sources"
GOCACHE=$work/cache binaries "$work/sources" "$work/out"
(cd "$work/out" && sha256 -c "$work/SHA256SUMS") || {
	rm -rf "$out"
	fail "the second build differs, as shown above; nothing is released"
}
for program in ratelimit ratelimit-gateway; do
	go run ./tools/notices "$out/$program" "$out/${program}"_*
done
(cd "$out" && sha256 ratelimit* >SHA256SUMS)
if [ -n "${RELEASE_KEY:-}" ]; then
	ssh-keygen -q -Y sign -f "$RELEASE_KEY" -n ratelimit-release "$out/SHA256SUMS"
	echo "SHA256SUMS.sig is signed with $RELEASE_KEY"
else
	echo "SHA256SUMS is not signed, because RELEASE_KEY names no key"
fi
echo "the binaries, their bills of materials, licences and SHA256SUMS are in .build/release"
