#!/bin/sh
# A gate for a shell script: one decision with redis-cli, and an exit code. 0: go on, 2: denied, 1: no decision was made.
#   REDIS_URL=redis://localhost:6379 sh first_call.sh
reply=$(redis-cli -e -u "$REDIS_URL" FCALL ratelimit_take 1 job:nightly 1/h) || { echo "$reply" >&2; exit 1; }
set -- $reply # allowed limit remaining retry_after_ms reset_after_ms index
if [ "$1" = 1 ]; then
  echo "allowed: $3 of $2 left"
else
  echo "denied: retry after $4 ms"
  exit 2
fi
