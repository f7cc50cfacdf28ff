#!/usr/bin/env bash
# Builds the command for a release: static, and byte for byte the same for a given commit and Go version,
# whatever the directory, the machine or its settings.
#
#   tools/build.sh OS ARCH FILE
set -euo pipefail
cd "$(dirname "$0")/.."
# This overrides build flags in the environment, and builds for Go's default processor variants. -buildvcs
# records the commit, which `ratelimit --version` prints.
exec env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	go build -buildvcs=true -ldflags '-s -w' -o "$3" ./cmd/ratelimit
