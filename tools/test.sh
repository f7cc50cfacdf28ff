#!/usr/bin/env bash
# Runs every check and every test of the project, for `make test`. It runs all stages even if one fails. It
# prints the progress of the tests, and the whole output of stages that fail. Then it prints how many tests
# ran on which servers. The last two lines are "N passed, N failed", and then the time, the counts and the
# servers. The exit code is 0 only if at least one check or test ran and none failed.
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

# give_up: ends the run because all further stages would fail, for example if Go is missing.
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

# images: makes the images, from a registry if one is available, otherwise with mmdebstrap.
images() {
	docker/images.sh --check && return
	if [ "${IMAGES_FROM:-auto}" != packages ] && IMAGES_FROM=registry docker/images.sh >/dev/null 2>&1; then return; fi
	tools/setup.sh images && docker/images.sh
}

# prepare: installs packages, and makes the images if they are missing. It does not report failures to make the
# images, because integration checks whether they exist.
prepare() {
	tools/setup.sh "$backend" || return
	[ "$backend" = local ] || images >"$results/images" 2>&1 || true
}

# On a new machine, compiling takes minutes. So there are only two sets of build settings: with the race
# detector, and without it. The settings without it are those of tools/build.sh, which tests also use to build
# programs. With the race detector, -trimpath is left out, because with it Go compiles a package again for each
# module that requires it.
untrimmed=${GOFLAGS:-}
export CGO_ENABLED=0 GOFLAGS="$untrimmed -trimpath"

modules=()
while IFS= read -r file; do
	modules+=("$(dirname "$file")")
done < <(find . -name go.mod -not -path '*/testdata/*' -not -path './.build/*' | sort)

# Installing packages, making images and downloading modules take minutes on a new machine, so the checks that
# need only Go run at the same time.
exec 3<&0 # sudo may ask for a password
prepare <&3 &
prepared=$!

tools/install.sh gotestsum || give_up
go build -o "$build/testcount" ./tools/testcount || give_up

# single lists packages whose code and tests start no goroutine. Their tests run without the race detector, which
# would find nothing and make the tests up to ten times as slow.
single=(./functions ./internal/luasource ./lua_test ./policies ./tools/algorithms)

# Compile the packages of the command and of these tests once. Otherwise each of several concurrent test runs
# would compile the same packages. Errors are ignored here, because go vet reports them.
go list -export -deps -test ./cmd/ratelimit "${single[@]}" >/dev/null 2>&1 || true

# slow lists packages whose tests take long.
slow=(./tools/docs ./loader ./embedded ./client ./combinations)

# built MODULE COMMAND...: runs a command in a module, with the build settings of its tests. The race detector
# needs cgo. It is off in gopher-lua, which starts no goroutine. It still finds concurrent calls of
# gopher-lua, in embedded/internal/engine, the only caller. Gin without the tag nomsgpack needs a package that
# takes half a minute to compile.
race=yes
built() {
	local m=$1 cgo=1 flags="$untrimmed -race -gcflags=github.com/yuin/gopher-lua/...=-race=false"
	shift
	[ $race = yes ] || cgo=0 flags=$GOFLAGS
	[ "$m" != ./examples ] || flags+=" -tags=nomsgpack"
	(cd "$m" && CGO_ENABLED=$cgo GOFLAGS=$flags "$@")
}

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

# vet and static use the build settings of the tests, so that both share compiled packages.
vet() {
	local m status=0
	for m in "${modules[@]}"; do
		if has "$m" '*.go'; then built "$m" go vet ./... || status=1; fi
	done
	return $status
}

static() {
	local m status=0
	tools/install.sh staticcheck || return 1
	for m in "${modules[@]}"; do
		if has "$m" '*.go'; then built "$m" nice -n 10 "$build/staticcheck" ./... || status=1; fi
	done
	return $status
}

static_result() { wait $static || ! cat "$results/static"; }

# actions: succeeds if GitHub would accept action.yml and the workflow that users copy.
actions() {
	local project=$build/actions
	tools/install.sh actionlint || return 1
	mkdir -p "$project/.git" "$project/.github/workflows" || return 1
	cp action.yml "$project" || return 1
	sed 's|uses: ratelimit-functions/ratelimit@.*|uses: ./|' examples/ci/github-workflow.yml >"$project/.github/workflows/ratelimit.yml"
	(cd "$project" && "$build/actionlint" -shellcheck= -pyflakes=)
}

stale() { (cd functions && go run ./internal/generate -check); }

single() { ! grep -nE '^[[:space:]]*go |\.Go\(|\.Parallel\(' $(find "${single[@]}" -name '*.go'); }

check "gofmt" formatted
check "go mod tidy" tools/tidy.sh --check
check "go vet" vet
check "no goroutines where the race detector is off" single
check "functions/ratelimit.lua is up to date" stale
wait $prepared || give_up

check "luac5.1 -p" luac5.1 -p functions/ratelimit.lua
check "luacheck" luacheck --no-color --quiet functions/ratelimit.lua

# tests LABEL MODULE ARGUMENTS...: runs go test once, without go vet, which is a separate check. The tests build
# other programs without the race detector. A test with the race detector exits at once, instead of after 1 s.
# The timeout is long, because tests are many times slower on a busy machine. Many tests wait for timers or
# other programs, so more packages run at once than there are processors. Tests on real servers take longest, so
# all others run with a lower priority.
tests() {
	local out=$results/${1//[ \/]/-} module=$2 code=0
	echo "run  $1"
	shift 2
	built "$module" nice -n "$niceness" "$build/gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile "$out.json" -- \
		-exec "env CGO_ENABLED=0 GORACE=atexit_sleep_ms=0 'GOFLAGS=$GOFLAGS'" -vet=off -count=1 -timeout 60m -p 4 "$@" || code=$?
	echo $code >"$out.status"
}

# integration: runs the tests on real servers.
integration() {
	cat "$results/images" 2>/dev/null
	if [ "$backend" = docker ] && ! docker/images.sh --check; then
		[ -z "${RATELIMIT_TEST_BACKEND:-}" ] || return
		echo "So no containers: the tests run against redis-server processes of this machine instead."
		backend=local
		tools/setup.sh local || return
	fi
	RATELIMIT_TEST_BACKEND=$backend RATELIMIT_TEST_SERVERS=$results/servers.json tests integration_test ./integration_test -parallel 4 ./... # on up to four backends at a time
}

# rest: runs the tests of all modules except the largest two.
rest() {
	local m
	for m in "${others[@]}"; do tests "$m" "./$m" ./...; done
}

others=()
for m in "${modules[@]}"; do
	if [ "$m" != . ] && [ "$m" != ./integration_test ] && has "$m" '*_test.go'; then others+=("${m#./}"); fi
done
niceness=0
integration <&3 >"$results/integration" 2>&1 &
integration=$!
niceness=5
(while sleep 15 >/dev/null; do echo "     $SECONDS s: $(cat "$results"/*.json | grep -c '"Action":"pass".*"Test":') tests have passed"; done) 2>/dev/null &
progress=$!
set -m # in a process group, so that all of it can be killed
rest </dev/null &
rest=$!
static </dev/null >"$results/static" 2>&1 & # in parallel with the tests, because it takes minutes on a new machine
static=$!
set +m
trap 'kill $integration $progress -$rest -$static 2>/dev/null' EXIT
check "actionlint" actions
# The packages that take longest come first.
tests "root" . $( (go list "${slow[@]}" && go list ./...) | awk '!seen[$0]++' | grep -vxF "$(go list "${single[@]}")")
race=no
tests "root, no goroutines" . "${single[@]}"
check "staticcheck" static_result
wait $rest
wait $integration
cat "$results/integration"

stages=() # label, exit code and file of each, for testcount
for label in "root, no goroutines" root "${others[@]}" integration_test; do
	out=$results/${label//[ \/]/-}
	stages+=("$label" "$(cat "$out.status" || echo none)" "$out.json")
done
"$build/testcount" -checks-passed $checks_passed -checks-failed $checks_failed \
	-seconds $SECONDS -servers "$results/servers.json" "${stages[@]}"
