"""Runs test vectors and compares every reply, with redis-py (Debian: python3-redis; or pip install redis).

    ratelimit dev --addr 127.0.0.1:6390
    REDIS_URL=redis://127.0.0.1:6390 python3 examples/languages/vectors.py functions/vectors/*.json

The vectors need a server whose clock can be set, and empty it. To test your own client, change only the function call.
"""
import json
import os
import sys

import redis

r = redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True)
r.response_callbacks.clear()  # redis-py would turn some replies into other types


def call(words):
    """Sends one command, and returns its reply or the text of its error."""
    try:
        return r.execute_command(*words), None
    except redis.ResponseError as error:
        return None, str(error)  # redis-py has removed "ERR " from the beginning


def wrong(step):
    """Makes the call of a step, and returns what is wrong with the reply, or None."""
    reply, error = call(step["call"])
    if "reply" in step:
        return None if error is None and reply == step["reply"] else f"want {step['reply']}, got {error or reply}"
    want = (step.get("error") or step["error_prefix"]).removeprefix("ERR ")
    ok = error == want if "error" in step else (error or "").startswith(want)
    return None if ok else f"want the error {want!r}, got {error or reply!r}"


def run(vector, start):
    """Runs a vector up to its first wrong reply. It returns the number of steps, and what is wrong or None."""
    r.execute_command("DEBUG", "SET-TIME", start)  # before FLUSHALL: only the embedded server has this command
    r.execute_command("FLUSHALL")
    for number, step in enumerate(vector["steps"], 1):
        if "at_us" in step:
            r.execute_command("DEBUG", "SET-TIME", start + step["at_us"])
        if problem := wrong(step):
            return number, f"{vector['name']}, step {number}: {step['call']}: {problem}"
    return len(vector["steps"]), None


vectors = steps = failed = 0
for name in sys.argv[1:]:
    with open(name, encoding="utf-8") as file:
        content = json.load(file)
    for vector in content["vectors"]:
        done, problem = run(vector, content["start_us"])
        vectors, steps, failed = vectors + 1, steps + done, failed + bool(problem)
        if problem:
            print(f"{name}: {problem}")
print(f"{vectors} vectors, {steps} steps, {failed} failed")
sys.exit(failed > 0 or not vectors)
