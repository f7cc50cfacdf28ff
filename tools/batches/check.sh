#!/usr/bin/env bash
# Runs Spin to search all states of batches.pml. The property must hold for the protocol, and must
# fail for each variant with a fault.
set -euo pipefail
cd "$(dirname "$0")"
for program in spin cc; do
	command -v $program >/dev/null || {
		echo "make model needs $program: on Debian or Ubuntu, apt-get install spin gcc libc6-dev"
		exit 1
	}
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$PWD/batches.pml
failed=0

# check EXPECTED TITLE FLAGS...: searches the model with the flags. EXPECTED is "holds" or "fails".
check() {
	local expected=$1 title=$2 found states start=$SECONDS
	shift 2
	(
		cd "$work"
		spin -a "$@" "$model" >spin.txt 2>&1 && cc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=8000 -o pan pan.c >>spin.txt 2>&1 || {
			cat spin.txt
			exit 1
		}
		./pan -n -m8000000 -w24 >pan.txt 2>&1 || true
	)
	if grep -q 'assertion violated' "$work/pan.txt"; then
		found=fails
	elif grep -q 'errors: 0' "$work/pan.txt" && ! grep -qE 'too small|out of memory|aborting|not completed' "$work/pan.txt"; then
		found=holds
	else
		found=unfinished
	fi
	states=$(awk '/states, stored/ { print $1 }' "$work/pan.txt")
	printf '%-10s %12s states %4d s  %s\n' "$found" "${states:-?}" $((SECONDS - start)) "$title"
	if [ $found != "$expected" ]; then
		printf 'expected: %s\n' "$expected"
		[ $found = unfinished ] && cat "$work/pan.txt"
		failed=1
	elif ! grep -q "^| $found | $(sed -E ':a; s/([0-9])([0-9]{3})($|,)/\1,\2\3/; ta' <<<"$states") |" README.md; then
		echo "README.md has no row for $found with $states states; put it right"
		failed=1
	fi
}

check holds "2 processes, a limit of 2, one unit a tick, ttl 2"
check holds "2 processes, a limit of 2, one unit in 2 ticks, ttl 3" -DT=2 -DTTL=3
check holds "2 processes, a limit of 3, batches of 3, ttl 3" -DB=3 -DBATCH=3 -DTTL=3
check holds "3 processes, a limit of 2, batches of 1, ttl 1" -DPROCS=3 -DTTL=1 -DBATCH=1
check holds "3 processes, a limit of 2, batches of 2, ttl 1, refunds that arrive at once" -DPROCS=3 -DTTL=1 -DDELAY=0
check fails "a bound that is lower by one tick" -DLESS=1
check fails "spends after ttl" -DSPEND_LATE
check fails "spends before the units are charged" -DSPEND_FIRST
check fails "counts ttl from the reply" -DTTL_FROM_REPLY
check fails "spends what it has given back" -DSPEND_GIVEN
check fails "gives back all that is left, also what has come back by itself" -DGIVE_ALL -DDELAY=0
check fails "repeats a refund whose reply is lost" -DGIVE_TWICE
check fails "sends a refund that arrives after its bound" -DGIVE_LATE
exit $failed
