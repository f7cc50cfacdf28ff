#!/usr/bin/env bash
# Builds the container image of ratelimit or ratelimit-gateway. `make container` builds both images. An image
# contains the static program, and CA certificates for rediss://: those of this machine, or those in
# SSL_CERT_FILE.
#
#   docker/container.sh ratelimit|ratelimit-gateway [NAME]    the default is ratelimit-functions/PROGRAM
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:?say ratelimit or ratelimit-gateway}
image=${2:-ratelimit-functions/$program}

fail() {
	echo "container.sh: $*" >&2
	exit 1
}

arch=$(docker version --format '{{.Server.Arch}}' 2>&1) || fail "no Docker engine answers: $arch"
certificates=${SSL_CERT_FILE:-}
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do # Debian, Fedora, macOS
	if [ -z "$certificates" ] && [ -s $file ]; then certificates=$file; fi
done
[ -n "$certificates" ] || fail "this machine has no file of CA certificates; install ca-certificates, or name a file in SSL_CERT_FILE"
[ -s "$certificates" ] || fail "SSL_CERT_FILE names $certificates, which is empty or not there"

context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
install -m 644 "$certificates" "$context/ca-certificates.crt"
case $program in
ratelimit)
	tools/build.sh linux "$arch" "$context/$program"
	dockerfile=docker/Dockerfile
	;;
ratelimit-gateway)
	tools/build.sh linux "$arch" "$context/$program" gateway
	mkdir "$context/bin"
	ln -s /ratelimit-gateway "$context/bin/ratelimit" # the command in deployments of envoyproxy/ratelimit
	dockerfile=docker/gateway.Dockerfile
	;;
*) fail "$program is no program; say ratelimit or ratelimit-gateway" ;;
esac
go run ./tools/notices "$context/$program" "$context/$program"
docker build --quiet --file $dockerfile --tag "$image" "$context" >/dev/null
echo "$image is made, with the certificates of $certificates"
