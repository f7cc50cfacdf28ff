#!/usr/bin/env bash
# This is the script of action.yml. It installs the command, verifies the policies, runs their tests
# and plans a deployment. The inputs are the environment variables POLICIES, NAMESPACE, TESTS,
# JUNIT, REDIS_URL and FAIL_ON_DRIFT, which docs/ci.md describes.
set -euo pipefail

case $FAIL_ON_DRIFT in
true | false) ;;
*)
	echo "fail-on-drift is '$FAIL_ON_DRIFT'; write true or false"
	exit 1
	;;
esac

bin=$RUNNER_TEMP/ratelimit
"$GITHUB_ACTION_PATH/tools/build.sh" "$(go env GOOS)" "$(go env GOARCH)" "$bin/ratelimit$(go env GOEXE)"
echo "$bin" >>"$GITHUB_PATH"
ratelimit() { "$bin/ratelimit" "$@"; }

ratelimit verify ${POLICIES:+--policies "$POLICIES"}
# TESTS contains files and patterns, separated by spaces.
if [ -n "$TESTS" ]; then
	code=0
	results=$(ratelimit test ${NAMESPACE:+--namespace "$NAMESPACE"} --junit "$JUNIT" -- $TESTS 2>&1) || code=$?
	echo "$results"
	# GitHub shows each failure beside its line of the pull request.
	sed -nE 's/^  ([^:]+):([0-9]+):([0-9]+): (.*)$/::error file=\1,line=\2,col=\3::\4/p' <<<"$results"
	[ "$code" = 0 ] || exit "$code"
fi

if [ -z "$REDIS_URL" ]; then
	echo "redis-url is empty, so nothing is planned; is the secret there?"
	if [ "$FAIL_ON_DRIFT" = true ]; then exit 1; fi
	exit 0
fi
code=0
plan=$(ratelimit plan ${NAMESPACE:+--namespace "$NAMESPACE"} ${POLICIES:+--policies "$POLICIES"} 2>&1) || code=$?
echo "$plan"
{
	echo '### What a deployment would change'
	echo '```'
	echo "$plan"
	echo '```'
} >>"$GITHUB_STEP_SUMMARY"
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
case $code in
0) echo changes=false >>"$GITHUB_OUTPUT" ;;
2) echo changes=true >>"$GITHUB_OUTPUT" ;;
*) exit "$code" ;;
esac
if [ "$FAIL_ON_DRIFT" = true ]; then exit "$code"; fi
