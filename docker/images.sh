#!/usr/bin/env bash
# Provides the local images that the integration tests and compose.yaml run:
#
#   ratelimit-test/redis:7.0    ratelimit-test/redis:8.0    ratelimit-test/valkey:8.1
#
# If a registry is available, each image is the official one under a local tag. Otherwise mmdebstrap builds a
# root file system from Debian's packages, and checks their signatures. An existing image is left alone, so a
# second run does nothing.
#
#   docker/images.sh            get the missing images
#   docker/images.sh --force    get all three again
#   docker/images.sh --check    get none; exit 0 if all three exist, 1 if not
#
#   IMAGES_FROM=auto|registry|packages   the source; auto (the default) tries the registry, then the packages
#   DEBIAN_MIRROR=URL                    the Debian mirror; the default is the one in this machine's apt sources
set -euo pipefail

from=${IMAGES_FROM:-auto}
force=no
case "${1:-}" in
'') ;;
--force) force=yes ;;
--check)
	docker image inspect ratelimit-test/redis:7.0 ratelimit-test/redis:8.0 ratelimit-test/valkey:8.1 >/dev/null 2>&1
	exit
	;;
*)
	echo "images.sh: unknown argument '$1'; it is --force or --check" >&2
	exit 1
	;;
esac
case "$from" in
auto | registry | packages) ;;
*)
	echo "images.sh: IMAGES_FROM is '$from'; write auto, registry or packages" >&2
	exit 1
	;;
esac

say() { echo "images: $*"; }
fail() {
	echo "images.sh: $*" >&2
	exit 1
}

command -v docker >/dev/null || fail "the docker command is missing; install Docker, or run the tests without it: make test RATELIMIT_TEST_BACKEND=local"
docker version --format '{{.Server.Version}}' >/dev/null 2>&1 ||
	fail "no Docker engine answers ('docker version' fails); start it, or let this user reach it"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# debian_mirror prints the mirror that this machine's apt uses for Debian itself, or nothing. It asks apt,
# because apt can read both formats of source lists. Before the first apt-get update, apt does not know the
# origin of a mirror, so debian_mirror recognizes a Debian mirror by its path.
debian_mirror() {
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
		awk -F'|' '($1 == "Debian" && $2 == "Debian") || ($1 == "" && $3 ~ /\/debian\/?$/) { print $3; exit }'
}

# as_root runs its arguments as root.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo "$@"
	else
		fail "building an image from packages needs root: run this script as root, or install sudo"
	fi
}

# pull TAG OFFICIAL: pulls the official image, if a registry replies in time.
pull() {
	timeout "${IMAGES_PULL_TIMEOUT:-120}" docker pull --quiet "$2" >"$work/pull.log" 2>&1 || return 1
	docker tag "$2" "$1"
	say "$1 is $2 from the registry"
}

# package TAG SUITE SERVER: builds the image from the Debian suite's packages. --variant=extract unpacks the
# package and its dependencies, but does not run their scripts, because a server process does not need them.
# dash is for compose.yaml and for users who want a shell. If redis-cli is missing, it becomes a link to
# valkey-cli, as in the official image.
package() {
	local tag=$1 suite=$2 server=$3 mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
	command -v mmdebstrap >/dev/null || fail "no registry answered, and mmdebstrap is missing: apt-get install mmdebstrap debian-archive-keyring"
	[ -n "$mirror" ] || fail "no registry answered, and this machine's apt sources name no Debian mirror: set DEBIAN_MIRROR to one"
	if ! as_root mmdebstrap --quiet --variant=extract \
		--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
		--include="$server,dash" \
		--extract-hook='[ -e "$1/usr/bin/redis-cli" ] || ln -s valkey-cli "$1/usr/bin/redis-cli"' "$suite" "$work/root.tar" "$mirror" >"$work/build.log" 2>&1; then
		cat "$work/build.log" >&2
		if grep -q -e 'NO_PUBKEY' -e 'not signed' -e "couldn't be verified" -e 'signatures were invalid' "$work/build.log"; then
			fail "the signature of Debian $suite could not be checked: apt-get install --only-upgrade debian-archive-keyring, which holds the keys of newer releases, and try again"
		fi
		fail "mmdebstrap could not build $tag from $mirror $suite; what it said is above"
	fi
	docker import \
		--change "ENTRYPOINT [\"$server\"]" \
		--change 'WORKDIR /data' \
		--change 'EXPOSE 6379' \
		--change "LABEL org.opencontainers.image.title=$server org.opencontainers.image.base.name=debian:$suite" \
		"$work/root.tar" "$tag" >/dev/null
	as_root rm -f "$work/root.tar"
	say "$tag is built from the packages of Debian $suite"
}

registry=unknown

# check TAG: starts the image once, and fails if its version does not match the tag.
check() {
	local got
	got=$(docker run --rm --network none "$1" --version 2>&1) || fail "$1 does not start: $got"
	case "$got" in
	*"v=${1##*:}."*) ;;
	*) fail "$1 should hold version ${1##*:}, and says: $got" ;;
	esac
}

# image TAG OFFICIAL SUITE SERVER: gets one image if it does not exist or if --force was given.
image() {
	if [ "$force" = yes ] || ! docker image inspect "$1" >/dev/null 2>&1; then
		make_image "$@"
		check "$1"
	fi
}

make_image() {
	local tag=$1 official=$2
	if [ "$from" != packages ] && [ "$registry" != silent ]; then
		if pull "$tag" "$official"; then
			registry=answers
			return
		fi
		if [ "$from" = registry ]; then
			cat "$work/pull.log" >&2
			fail "could not pull $official; IMAGES_FROM=packages builds it from Debian packages"
		fi
		registry=silent
		say "no registry gave $official; building from Debian packages"
	fi
	package "$tag" "$3" "$4"
}

image ratelimit-test/redis:7.0 redis:7.0 bookworm redis-server
image ratelimit-test/redis:8.0 redis:8.0 trixie redis-server
image ratelimit-test/valkey:8.1 valkey/valkey:8.1 trixie valkey-server
