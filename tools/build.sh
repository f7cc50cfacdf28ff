#!/usr/bin/env bash
# Builds a static program for a release. A given commit and Go version give the same bytes in
# any directory and on any machine.
#
#   tools/build.sh OS ARCH FILE [DIRECTORY]    the default is cmd/ratelimit
set -euo pipefail
cd "$(dirname "$0")/.."
file=$3
[[ $file = /* ]] || file=$PWD/$file
# These settings override build flags in the environment, and select Go's default processor
# variants. -buildvcs records the commit, which `--version` prints. grpcnotrace leaves out gRPC's
# tracing pages, which the gateway does not serve. Their templates call methods by name, so with them
# the linker keeps every method, and the program is 1.6 times as large.
exec env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	go build -C "${4:-cmd/ratelimit}" -buildvcs=true -tags grpcnotrace -ldflags '-s -w' -o "$file" .
