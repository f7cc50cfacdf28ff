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
# variants. -buildvcs records the commit, which `--version` prints.
exec env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	go build -C "${4:-cmd/ratelimit}" -buildvcs=true -ldflags '-s -w' -o "$file" .
