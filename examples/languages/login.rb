# Limits password attempts from one address, with redis-rb (Debian: ruby-redis; or gem install
# redis).
#
#   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
#   REDIS_URL=redis://localhost:6379 ruby examples/languages/login.rb
#
# With REDIS_CLUSTER=1, REDIS_URL names any node of a cluster.
require "redis"
require "securerandom"

# All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
ADDRESS = "login:{203.0.113.7}"

def new_request
  "#{ADDRESS}:request:#{SecureRandom.uuid}"
end

# Asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for 60000 ms,
# retries of the same request are not charged again. redis-rb also retries once by itself.
def take(redis, request)
  attempts_left = 2
  begin
    redis.call("FCALL", "ratelimit_take", 2, ADDRESS, request, "@login", "ONCE", 60_000)
  rescue Redis::BaseConnectionError
    raise if attempts_left.zero?
    attempts_left -= 1
    retry
  rescue Redis::CommandError => e
    raise unless e.message.match?(/Function not found|RATELIMIT NOPOLICY/)
    abort "#{e.message}\nrun: ratelimit deploy --policies examples/policies.yaml"
  end
end

def told(reply)
  allowed, limit, remaining, retry_after_ms, _reset_after_ms, _index = reply # later versions may add elements
  return "allowed, #{remaining} of #{limit} left" if allowed == 1
  "denied, try again in #{(retry_after_ms / 1000.0).ceil} s"
end

url = ENV.fetch("REDIS_URL")
redis = if !ENV["REDIS_CLUSTER"]
          Redis.new(url: url, timeout: 2)
        elsif Redis::VERSION < "5"
          Redis.new(cluster: [url], timeout: 2) # discovers the other nodes from this one
        else
          require "redis-clustering" # a separate gem and Debian package
          Redis::Cluster.new(nodes: [url], timeout: 2)
        end
request = new_request
puts "first: #{told(take(redis, request))}"
puts "asked again: #{told(take(redis, request))}"
reply = nil
5.times { reply = take(redis, new_request) }
puts "five later: #{told(reply)}"
