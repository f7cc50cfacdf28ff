"""Limits password attempts from one address, with redis-py (Debian: python3-redis; or pip install redis).

    ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
    REDIS_URL=redis://localhost:6379 python3 examples/languages/login.py

With REDIS_CLUSTER=1, REDIS_URL names any node of a cluster.
"""
import os
import sys
import uuid

import redis

url = os.environ["REDIS_URL"]
if os.environ.get("REDIS_CLUSTER"):
    r = redis.RedisCluster.from_url(url, socket_timeout=2)  # discovers the other nodes from this one
else:
    r = redis.Redis.from_url(url, socket_timeout=2)

# All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
ADDRESS = "login:{203.0.113.7}"


def new_request():
    return f"{ADDRESS}:request:{uuid.uuid4()}"


def take(request):
    """Asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for
    60000 ms, retries of the same request are not charged again."""
    for attempts_left in (2, 1, 0):
        try:
            return r.fcall("ratelimit_take", 2, ADDRESS, request, "@login", "ONCE", 60000)
        except (redis.ConnectionError, redis.TimeoutError):
            if not attempts_left:
                raise
        except redis.ResponseError as error:
            if "Function not found" in str(error) or "RATELIMIT NOPOLICY" in str(error):
                sys.exit(f"{error}\nrun: ratelimit deploy --policies examples/policies.yaml")
            raise


def told(reply):
    allowed, limit, remaining, retry_after_ms, reset_after_ms, index = reply[:6]  # later versions may add elements
    if allowed:
        return f"allowed, {remaining} of {limit} left"
    return f"denied, try again in {-(-retry_after_ms // 1000)} s"  # rounded up


request = new_request()
print("first:", told(take(request)))
print("asked again:", told(take(request)))
for _ in range(5):
    reply = take(new_request())
print("five later:", told(reply))
