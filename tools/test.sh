#!/usr/bin/env bash
# Runs every check and every test of the project, for `make test`. It runs all stages even if one fails, and
# prints the whole output of what fails, and the progress of the tests. Then it prints how many tests ran on
# which servers. The last two lines are "N passed, N failed", and then the time, the counts and the servers.
# The exit code is 0 only if something ran and nothing failed.
#
#   RATELIMIT_TEST_BACKEND=docker|local   containers, or redis-server processes on this machine; the default
#                                         is containers if a Docker engine is available
set -uo pipefail
cd "$(dirname "$0")/.."
build=$PWD/.build
results=$build/test
rm -rf "$results"
mkdir -p "$results"

checks_passed=0
checks_failed=0

# check NAME COMMAND...: runs a check. If the check fails, it prints the output.
check() {
	local name=$1 began=$SECONDS
	shift
	if "$@" >"$results/log" 2>&1; then
		checks_passed=$((checks_passed + 1))
		echo "ok   $name ($((SECONDS - began)) s)"
		return 0
	fi
	checks_failed=$((checks_failed + 1))
	echo "FAIL $name"
	cat "$results/log"
	return 1
}

# give_up: ends the run if something is missing that all further stages need.
give_up() {
	echo "$checks_passed passed, $((checks_failed > 0 ? checks_failed : 1)) failed"
	exit 1
}

choose_backend() {
	case "${RATELIMIT_TEST_BACKEND:-}" in
	docker | local) backend=$RATELIMIT_TEST_BACKEND ;;
	'')
		backend=local
		if [ "$(uname -s)" = Linux ] && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; then
			backend=docker
		fi
		;;
	*)
		echo "RATELIMIT_TEST_BACKEND is '$RATELIMIT_TEST_BACKEND'; write docker or local, or leave it out"
		give_up
		;;
	esac
}

command -v go >/dev/null || {
	echo "Go is missing; install the version that go.mod names, or later"
	give_up
}
choose_backend

# Installing packages takes minutes on a new machine, so run the checks that need only Go at the
# same time.
exec 3<&0 # sudo may ask for a password
tools/setup.sh "$backend" <&3 &
packages=$!

(cd tools/lint && go build -o "$build/gotestsum" gotest.tools/gotestsum) || give_up
go build -o "$build/testcount" ./tools/testcount || give_up

modules=()
while IFS= read -r file; do
	modules+=("$(dirname "$file")")
done < <(find . -name go.mod -not -path '*/testdata/*' -not -path './.build/*' | sort)

formatted() {
	local bad
	bad=$(find . -name '*.go' -not -path './.build/*' -print0 | xargs -0 gofmt -l) || return 1
	[ -z "$bad" ] || {
		echo "not formatted; run gofmt -w on:"
		echo "$bad"
		return 1
	}
}

# has DIR PATTERN: succeeds if the module has a file that matches PATTERN.
has() { [ -n "$(find "$1" -name "$2" -not -path '*/testdata/*' -not -path './.build/*' | head -n 1)" ]; }

# Checks and tests share compiled packages, so the checks also build for the race detector.
vet() {
	local m status=0
	for m in "${modules[@]}"; do
		if has "$m" '*.go'; then (cd "$m" && go vet -race ./...) || status=1; fi
	done
	return $status
}

static() {
	local m status=0
	(cd tools/lint && go build -o "$build/staticcheck" honnef.co/go/tools/cmd/staticcheck) || return 1
	for m in "${modules[@]}"; do
		if has "$m" '*.go'; then (cd "$m" && GOFLAGS=-race "$build/staticcheck" ./...) || status=1; fi
	done
	return $status
}

# tidy: succeeds if every go.mod and go.sum lists exactly what the code needs.
tidy() {
	local m status=0
	for m in "${modules[@]}"; do
		(cd "$m" && go mod tidy -diff) || {
			echo "run go mod tidy in $m"
			status=1
		}
	done
	return $status
}

# actions: succeeds if GitHub would accept action.yml and the workflow that users copy.
actions() {
	local project=$build/actions
	(cd tools/lint && go build -o "$build/actionlint" github.com/rhysd/actionlint/cmd/actionlint) || return 1
	mkdir -p "$project/.git" "$project/.github/workflows" || return 1
	cp action.yml "$project" || return 1
	sed 's|uses: ratelimit-functions/ratelimit@.*|uses: ./|' examples/ci/github-workflow.yml >"$project/.github/workflows/ratelimit.yml"
	(cd "$project" && "$build/actionlint" -shellcheck= -pyflakes=)
}

stale() { (cd functions && go run ./internal/generate -check); }

# single lists packages whose code and tests start no goroutine. They run without the race detector,
# which could find nothing in them and would make them up to ten times as slow.
single=(./functions ./internal/luasource ./lua_test ./policies ./tools/algorithms)

single() { ! grep -nE '^[[:space:]]*go |\.Go\(|\.Parallel\(' $(find "${single[@]}" -name '*.go'); }

check "gofmt" formatted
check "go mod tidy" tidy
check "go vet" vet
check "staticcheck" static
check "actionlint" actions
check "no goroutines where the race detector is off" single
check "functions/ratelimit.lua is up to date" stale
wait $packages || give_up

check "luac5.1 -p" luac5.1 -p functions/ratelimit.lua
check "luacheck" luacheck --no-color --quiet functions/ratelimit.lua

# tests LABEL DIR ARGUMENTS...: runs go test once. The timeout is long, because tests are many times slower on
# a busy machine. Many tests wait for timers or other programs, so more packages run at once than there are
# processors. Tests on real servers take longest, so all others run with a lower priority.
tests() {
	local out=$results/${1//[ \/]/-} dir=$2 code=0
	echo "run  $1"
	shift 2
	(cd "$dir" && nice -n "$niceness" "$build/gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile "$out.json" -- -count=1 -timeout 60m -p 4 "$@") || code=$?
	echo $code >"$out.status"
}

# images: makes the images, from a registry if one is available, otherwise with mmdebstrap.
images() {
	docker/images.sh --check && return
	if [ "${IMAGES_FROM:-auto}" != packages ] && IMAGES_FROM=registry docker/images.sh >/dev/null 2>&1; then return; fi
	tools/setup.sh images && docker/images.sh
}

# integration: runs the tests on real servers, after making the images if they are missing.
integration() {
	if [ "$backend" = docker ] && ! images; then
		[ -z "${RATELIMIT_TEST_BACKEND:-}" ] || return
		echo "So no containers: the tests run against redis-server processes of this machine instead."
		backend=local
		tools/setup.sh local || return
	fi
	RATELIMIT_TEST_BACKEND=$backend RATELIMIT_TEST_SERVERS=$results/servers.json tests integration_test integration_test -race -parallel 4 ./... # on four backends
}

niceness=0
integration <&3 >"$results/integration" 2>&1 &
niceness=5
integration=$!
(while sleep 15 >/dev/null; do echo "     $SECONDS s: $(cat "$results"/*.json | grep -c '"Action":"pass".*"Test":') tests have passed"; done) 2>/dev/null &
progress=$!
trap 'kill $integration $progress 2>/dev/null' EXIT
tests "root, no goroutines" . "${single[@]}"
tests "root" . -race $(go list ./... | grep -vxF "$(go list "${single[@]}")")
others=()
for m in "${modules[@]}"; do
	case "$m" in
	. | ./integration_test) ;;
	*)
		has "$m" '*_test.go' || continue
		others+=("${m#./}")
		tests "${m#./}" "$m" -race ./...
		;;
	esac
done
wait $integration
cat "$results/integration"

stages=() # label, exit code and file of each, for testcount
for label in "root, no goroutines" root "${others[@]}" integration_test; do
	out=$results/${label//[ \/]/-}
	stages+=("$label" "$(cat "$out.status" || echo none)" "$out.json")
done
"$build/testcount" -checks-passed $checks_passed -checks-failed $checks_failed \
	-seconds $SECONDS -servers "$results/servers.json" "${stages[@]}"
