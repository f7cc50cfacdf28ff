"""One decision from Python, with the stock client (Debian: python3-redis, or pip install redis).

    REDIS_URL=redis://localhost:6379 python3 first_call.py
"""
import os
import sys

import redis

r = redis.Redis.from_url(os.environ["REDIS_URL"])
try:
    allowed, limit, remaining, retry_after_ms, reset_after_ms, index = r.fcall(
        "ratelimit_take", 1, "user:45", "100/m")
except redis.ResponseError as error:  # RATELIMIT <REASON> ..., or: Function not found
    sys.exit(str(error))
if allowed:
    print(f"allowed: {remaining} of {limit} left")
else:
    print(f"denied: retry after {retry_after_ms} ms")
