<?php
// Limits password attempts from one address, with PhpRedis (Debian: php-cli, php-redis; or pecl
// install redis).
//
//   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
//   REDIS_URL=redis://localhost:6379 php examples/languages/login.php
//
// With REDIS_CLUSTER=1, REDIS_URL names any node of a cluster.

// All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
const ADDRESS = 'login:{203.0.113.7}';

function newRequest(): string
{
    return ADDRESS . ':request:' . bin2hex(random_bytes(16));
}

function connect(): Redis|RedisCluster
{
    ['host' => $host, 'port' => $port] = parse_url(getenv('REDIS_URL'));
    if (getenv('REDIS_CLUSTER')) {
        return new RedisCluster(null, ["$host:$port"], 2, 2); // discovers the other nodes from this one
    }
    $redis = new Redis();
    $redis->connect($host, $port, 2, null, 0, 2);
    return $redis;
}

// Asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for 60000 ms,
// retries of the same request are not charged again.
function take(Redis|RedisCluster $redis, string $request): array
{
    $call = ['FCALL', 'ratelimit_take', 2, ADDRESS, $request, '@login', 'ONCE', 60000];
    if ($redis instanceof RedisCluster) {
        array_unshift($call, ADDRESS); // selects the node that has this key
    }
    for ($attemptsLeft = 2; ; $attemptsLeft--) {
        $redis->clearLastError();
        try {
            $reply = $redis->rawCommand(...$call);
            if (is_array($reply)) {
                return $reply;
            }
            $error = $redis->getLastError(); // getLastError returns errors that begin with ERR; others are thrown
        } catch (RedisException | RedisClusterException $e) {
            $error = $e->getMessage();
        }
        if (preg_match('/Function not found|RATELIMIT NOPOLICY/', $error)) {
            fwrite(STDERR, "$error\nrun: ratelimit deploy --policies examples/policies.yaml\n");
            exit(1);
        }
        if ($attemptsLeft === 0 || str_starts_with($error, 'RATELIMIT')) {
            throw new RuntimeException($error);
        }
    }
}

function told(array $reply): string
{
    [$allowed, $limit, $remaining, $retryAfterMs, $resetAfterMs, $index] = $reply; // later versions may add elements
    if ($allowed) {
        return "allowed, $remaining of $limit left\n";
    }
    return 'denied, try again in ' . ceil($retryAfterMs / 1000) . " s\n";
}

$redis = connect();
$request = newRequest();
echo 'first: ' . told(take($redis, $request));
echo 'asked again: ' . told(take($redis, $request));
for ($i = 0; $i < 5; $i++) {
    $reply = take($redis, newRequest());
}
echo 'five later: ' . told($reply);
