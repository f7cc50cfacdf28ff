#!/usr/bin/env bash
# Runs every check and every test of the project, for `make test`. It runs all stages even if one fails. It
# prints the progress of the tests, and the whole output of stages that fail. The last two lines are "N passed,
# N failed", and then the time, the counts and the servers. The exit code is 0 only if at least one check or test
# ran and none failed.
#
#   RATELIMIT_TEST_BACKEND=docker|local   containers, or redis-server processes on this machine; the default
#                                         is containers if a Docker engine is available
#   RATELIMIT_TEST_RACE=all               the race detector for all packages
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
	else
		checks_failed=$((checks_failed + 1))
		echo "FAIL $name"
		cat "$results/log"
	fi
}

# give_up MESSAGE: ends the run because all further stages would fail.
give_up() {
	echo "$1"
	echo "$checks_passed passed, $((checks_failed > 0 ? checks_failed : 1)) failed"
	exit 1
}

command -v go >/dev/null || give_up "Go is missing; install the version that go.mod names, or later"
backend=${RATELIMIT_TEST_BACKEND:-}
case $backend in
docker | local) ;;
'')
	backend=local
	if [ "$(uname -s)" = Linux ] && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; then backend=docker; fi
	;;
*) give_up "RATELIMIT_TEST_BACKEND is '$backend'; write docker or local, or leave it out" ;;
esac

# prepare: installs packages, and makes the images if they are missing: from a registry if one is available,
# otherwise with mmdebstrap. It does not report failures to make them, because integration checks whether they exist.
prepare() {
	tools/setup.sh "$backend" || return
	[ "$backend" = local ] || docker/images.sh --check >/dev/null 2>&1 && return
	if [ "${IMAGES_FROM:-auto}" = packages ] || ! IMAGES_FROM=registry docker/images.sh >"$results/images" 2>&1; then
		{ tools/setup.sh images && docker/images.sh; } >"$results/images" 2>&1 || true
	fi
}

# There are only two sets of build settings, because compiling takes minutes on a new machine: with the race
# detector, and without it. The settings without it are also those of tools/build.sh, of staticcheck and of the
# programs that tests build. Gin without the tag nomsgpack needs a package that takes half a minute to compile.
# The race detector makes code up to ten times as slow, so it is off in code that starts no goroutine and that one
# goroutine at a time calls: gopher-lua and, except in `make race`, the model of the tests and math/big. It still finds
# concurrent calls in their callers.
racing="${GOFLAGS:-} -race -gcflags=github.com/yuin/gopher-lua/...=-race=false"
quiet=" -gcflags=github.com/ratelimit-functions/ratelimit/lua_test/model/...=-race=false -gcflags=math/big=-race=false"
[ "${RATELIMIT_TEST_RACE:-}" = all ] || racing+=$quiet
export CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -trimpath -tags=nomsgpack"

# starting matches the lines that start a goroutine. Packages without one, in their code and tests, run without the
# race detector. So do those that match apart, which start few: the detector would compile their many dependencies a
# second time. `make race` runs all with it.
starting='^[[:space:]]*go |\.Go\(|\.Parallel\(|AfterFunc\(|httptest\.New[A-Za-z]*Server'
apart='^\./(bench|examples/(gateway|http|monitoring|nginx)|integration_test/browser|tools)(/|$)'
[ "${RATELIMIT_TEST_RACE:-}" != all ] || starting='^package' apart='^$'

# Installing packages, making images and downloading modules take minutes on a new machine, so the checks that
# need only Go run at the same time.
exec 3<&0 # sudo may ask for a password
prepare <&3 &
prepared=$!
tools/install.sh gotestsum || give_up "gotestsum cannot be installed"
go build -o "$build/testcount" ./tools/testcount || give_up "tools/testcount cannot be built"
packages=$(go list -f '{{.Dir}}' work | sed "s|^$PWD|.|") || give_up "the workspace cannot be loaded"
# Packages whose test results Go must not keep: their tests run other programs, or their module is below the root, and
# may read files outside it. Go looks at neither.
running=$({
	grep -lrE --include='*.go' 'exec\.Command|redistest\.(Run|Start)\(' $packages | xargs -n 1 dirname
	go list -f "{{if ne .Module.Dir \"$PWD\"}}{{.Dir}}{{end}}" work | sed "s|^$PWD|.|"
} | sort -u)
# Packages whose tests take longest. They run first.
slow=$'./tools/docs\n./tools/ci\n./loader\n./embedded\n./client\n./combinations'

formatted() { find . -name '*.go' -not -path './.build/*' -exec gofmt -l {} + | awk '{ print "run gofmt -w " $0; bad = 1 } END { exit bad }'; }
stale() { go -C functions run ./internal/generate -check; }

# actions: succeeds if GitHub would accept action.yml and the workflow that users copy.
actions() {
	local project=$build/actions
	tools/install.sh actionlint && mkdir -p "$project/.git" "$project/.github/workflows" && cp action.yml "$project" || return
	sed 's|uses: ratelimit-functions/ratelimit@.*|uses: ./|' examples/ci/github-workflow.yml >"$project/.github/workflows/ratelimit.yml"
	(cd "$project" && "$build/actionlint" -shellcheck= -pyflakes=)
}

check "gofmt" formatted
check "go mod tidy" tools/tidy.sh --check
check "functions/ratelimit.lua is up to date" stale
check "actionlint" actions
wait $prepared || give_up "packages are missing, as shown above"
check "luac5.1 -p" luac5.1 -p functions/ratelimit.lua
check "luacheck" luacheck --no-color --quiet functions/ratelimit.lua

# tests LABEL race|plain ARGUMENTS... : runs go test with go vet. With -count=1, test programs build other programs
# without the race detector; go test keeps no results with -exec, so tests whose results it may keep run without. A test
# with the race detector exits at once, instead of after 1 s. The timeout is long, because tests are many times slower
# on a busy machine. Many tests wait for timers or other programs, so more packages run at once than there are
# processors. Tests on real servers take longest, so all others run with a lower priority.
tests() {
	local out=$results/${1//[ ,]/-} cgo=0 flags=$GOFLAGS code=0 began=$SECONDS building=()
	[ "$2" = plain ] || cgo=1 flags=$racing
	[ "$3" != -count=1 ] || building=(-exec "env CGO_ENABLED=0 'GOFLAGS=$GOFLAGS'")
	echo "run  $1"
	CGO_ENABLED=$cgo GOFLAGS=$flags GORACE=atexit_sleep_ms=0 nice -n "$niceness" "$build/gotestsum" --format pkgname --format-hide-empty-pkg --jsonfile "$out.json" -- \
		"${building[@]}" -vet=all -timeout 40m -p 4 "${@:3}" || code=$?
	echo $code >"$out.status"
	echo "ran  $1 ($((SECONDS - began)) s)"
}

# integration: runs the tests on real servers, on up to four backends at a time.
integration() {
	cat "$results/images" 2>/dev/null
	if [ "$backend" = docker ] && ! docker/images.sh --check; then
		[ -z "${RATELIMIT_TEST_BACKEND:-}" ] || return
		echo "So no containers: the tests run against redis-server processes of this machine instead."
		backend=local
		tools/setup.sh local || return
	fi
	RATELIMIT_TEST_BACKEND=$backend RATELIMIT_TEST_SERVERS=$results/servers.json \
		tests integration_test race -count=1 -parallel 4 $(grep '^\./integration_test' <<<"$racing_packages")
}

# both race|plain PACKAGES: runs the tests of the packages. Results may come from Go's cache if no test runs another program.
both() {
	local first
	[ -n "$2" ] || return 0
	first=$(printf '%s\n%s\n' "$slow" "$2" | grep -xF "$2" | awk '!seen[$0]++')
	tests "$1, from the cache" "$1" $(grep -vxF "$running" <<<"$first")
	tests "$1" "$1" -count=1 $(grep -xF "$running" <<<"$first")
}

# static: runs staticcheck, with the settings of most programs, so that it shares compiled packages with their tests.
static() { tools/install.sh staticcheck && nice -n 10 "$build/staticcheck" work; }
static_result() { wait $static || ! cat "$results/static"; }

racing_packages=$( (grep -lE "$starting" $(sed 's|$|/*.go|' <<<"$packages") | xargs -n 1 dirname; grep '^\./integration_test' <<<"$packages") |
	sort -u | grep -vE "$apart")
plain_packages=$(grep -vxF "$racing_packages" <<<"$packages")
niceness=0
integration <&3 >"$results/integration" 2>&1 &
integration=$!
niceness=5
(while sleep 15 >/dev/null; do echo "     $SECONDS s: $(cat "$results"/*.json | grep -c '"Action":"pass".*"Test":') tests have passed"; done) 2>/dev/null &
progress=$!
set -m # in a process group, so that all of it can be killed
both plain "$plain_packages" </dev/null &
plain=$!
static </dev/null >"$results/static" 2>&1 &
static=$!
set +m
trap 'kill $integration $progress -$plain -$static 2>/dev/null' EXIT
both race "$(grep -v '^\./integration_test' <<<"$racing_packages")"
check "staticcheck" static_result
wait $plain
wait $integration
cat "$results/integration"

stages=() # label, exit code and file of each, for testcount
labels=("race, from the cache" race integration_test)
[ -z "$plain_packages" ] || labels+=("plain, from the cache" plain)
for label in "${labels[@]}"; do
	out=$results/${label//[ ,]/-}
	stages+=("$label" "$(cat "$out.status" || echo none)" "$out.json")
done
"$build/testcount" -checks-passed $checks_passed -checks-failed $checks_failed \
	-seconds $SECONDS -servers "$results/servers.json" "${stages[@]}"
