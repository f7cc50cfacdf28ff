#!/bin/sh
# Limits password attempts from one address, with redis-cli (Debian: redis-tools).
#
#   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
#   REDIS_URL=redis://localhost:6379 sh examples/languages/login.sh
#
# REDIS_URL may name any node of a cluster, because redis-cli -c follows redirects.

# All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
address='login:{203.0.113.7}'

new_request() { echo "$address:request:$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"; }

# take REQUEST: asks for a decision, and stores it in reply. If the reply is lost, the call may have been charged. ONCE
# makes a retry safe: for 60000 ms, the same request is not charged again.
take() {
  for _ in 1 2 3; do
    if reply=$(timeout 1 redis-cli -c -e -u "$REDIS_URL" FCALL ratelimit_take 2 "$address" "$1" @login ONCE 60000 2>&1); then return; fi
    case $reply in [A-Z][A-Z]*) break ;; esac # an error reply: do not retry
  done
  echo "$reply" >&2
  case $reply in *"Function not found"* | *"RATELIMIT NOPOLICY"*)
    echo "run: ratelimit deploy --policies examples/policies.yaml" >&2 ;;
  esac
  exit 1
}

told() {
  set -- $reply # allowed limit remaining retry_after_ms reset_after_ms index; later versions may add elements
  if [ "$1" = 1 ]; then
    echo "allowed, $3 of $2 left"
  else
    echo "denied, try again in $((($4 + 999) / 1000)) s"
  fi
}

request=$(new_request)
take "$request"
echo "first: $(told)"
take "$request"
echo "asked again: $(told)"
for _ in 1 2 3 4 5; do take "$(new_request)"; done
echo "five later: $(told)"
