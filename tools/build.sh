#!/usr/bin/env bash
# Builds a static program for a release. A given commit and Go version give the same bytes in
# any directory and on any machine.
#
#   tools/build.sh OS ARCH FILE [DIRECTORY]    the default is cmd/ratelimit
set -euo pipefail
cd "$(dirname "$0")/.."
file=$3
[[ $file = /* ]] || file=$PWD/$file
program=${4:-cmd/ratelimit}

# A workspace of the program's module and of the root module, instead of go.work, whose other modules may require
# later versions. So the program has the same dependencies as `go install` gives it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep '^go ' go.work >"$work/go.work"
printf 'use "%s"\n' "$PWD" "$PWD/$program" >>"$work/go.work"
sed -n "s|^\(.*/ratelimit v.* => \).*|replace \1\"$PWD\"|p" go.work >>"$work/go.work"

# These settings override build flags in the environment, and select Go's default processor
# variants. -buildvcs records the commit, which `--version` prints. grpcnotrace leaves out gRPC's
# tracing pages, which the gateway does not serve. Their templates call methods by name, so with them
# the linker keeps every method, and the program is 1.6 times as large.
env GOOS="$1" GOARCH="$2" CGO_ENABLED=0 GOFLAGS=-trimpath GOWORK="$work/go.work" GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 \
	go build -C "$program" -buildvcs=true -tags grpcnotrace -ldflags '-s -w' -o "$file" .
