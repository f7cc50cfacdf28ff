# Searches all states of a model with Spin. A script that sources this file has a model NAME.pml and a README.md
# beside it, calls check for each search, and exits with $failed.
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
model=$(ls "$PWD"/*.pml)
failed=0

# check EXPECTED TITLE FLAGS...: searches the model with the flags. EXPECTED is "holds" or "fails". README.md must
# have a row with the result and the number of states.
check() {
	local expected=$1 title=$2 found states start=$SECONDS
	shift 2
	(
		cd "$work"
		spin -a "$@" "$model" >spin.txt 2>&1 && cc -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -DMEMLIM=8000 -o pan pan.c >>spin.txt 2>&1 || {
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
