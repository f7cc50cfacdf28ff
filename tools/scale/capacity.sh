#!/usr/bin/env bash
# Measures the processor time that redis-server needs for a decision, and the bytes that a decision
# takes in the network. capacity.sh [ROUNDS [CALLS]] starts a server on $PORT (7379 by default).
#
# The time is that of the server's main thread, as INFO cpu counts it. It includes reading the
# command and writing the reply, but not redis-benchmark, which runs beside the server. The thread
# can make a million divided by this time, in microseconds, decisions per second. The output has the
# medians of the rounds.
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-9} calls=${2:-200000} keys=100000
dir=$(mktemp -d)
server=(-p "${PORT:-7379}")
redis-server --port "${PORT:-7379}" --bind 127.0.0.1 --save '' --dir "$dir" >"$dir/log" &
trap 'kill $!; wait $! || true; rm -r "$dir"' EXIT
until redis-cli "${server[@]}" PING >"$dir/ping" 2>&1; do :; done
redis-cli "${server[@]}" -x FUNCTION LOAD <functions/ratelimit.lua >"$dir/loaded"

# counts prints the main thread's time in seconds, and the bytes received and sent.
counts() {
	redis-cli "${server[@]}" INFO everything | tr -d '\r' | awk -F : '
		/^used_cpu_(sys|user)_main_thread:/ { time += $2 }
		/^total_net_input_bytes:/ { received = $2 }
		/^total_net_output_bytes:/ { sent = $2 }
		END { printf "%.6f %d %d\n", time, received, sent }'
}

# measure makes calls with redis-benchmark, and adds a line with their time and bytes to a file.
measure() {
	local name=$1 before after
	shift
	before=$(counts)
	redis-benchmark "${server[@]}" -n "$calls" -c 50 -q "$@" >"$dir/benchmark"
	after=$(counts)
	awk -v n="$calls" '{ printf "%.3f %.0f %.0f\n", ($4 - $1) * 1e6 / n, ($5 - $2) / n, ($6 - $3) / n }' <<<"$before $after" >>"$dir/$name.times"
}

take=(FCALL ratelimit_take 1)
for ((round = 0; round < rounds; round++)); do
	redis-cli "${server[@]}" FLUSHALL >"$dir/flushed"
	measure "1: a decision per round trip" -r $keys "${take[@]}" k:__rand_int__ 100/m
	redis-cli "${server[@]}" FLUSHALL >"$dir/flushed"
	measure "2: 16 decisions per round trip" -r $keys -P 16 "${take[@]}" k:__rand_int__ 100/m
	measure "3: one key over its limit" "${take[@]}" k 100/d
	measure "4: PING" PING
done
redis-cli "${server[@]}" INFO server | grep -E '^(redis|valkey)_version'
for file in "$dir"/*.times; do
	sort -n "$file" | awk -v name="$(basename "$file" .times)" '
		{ time[NR] = $1; received = $2; sent = $3 }
		END { t = time[int((NR + 1) / 2)]
			printf "%s: %.1f µs (%.1f to %.1f), %d per second, %d bytes received, %d sent\n", name, t, time[1], time[NR], 1e6 / t, received, sent }'
done
