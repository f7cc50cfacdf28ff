#!/usr/bin/env bash
# Builds the command as it is released: static, and the same bytes for everyone who has the commit and the Go version,
# whatever the folder, the machine or its settings.
#
#   tools/build.sh OS ARCH FILE
set -euo pipefail
cd "$(dirname "$0")/.."
# The flags that someone may have set for all builds are replaced, and the variants of the processors are Go's defaults.
# -buildvcs notes the commit, which `ratelimit --version` prints.
exec env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	go build -buildvcs=true -ldflags '-s -w' -o "$3" ./cmd/ratelimit
