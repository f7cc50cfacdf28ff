#!/usr/bin/perl
# Limits password attempts from one address, with Redis.pm (Debian: libredis-perl; or cpan Redis),
# which does not support clusters.
#
#   ratelimit deploy --redis redis://localhost:6379 --policies examples/policies.yaml
#   REDIS_URL=redis://localhost:6379 perl examples/languages/login.pl
use v5.20;
use warnings;
use POSIX qw(ceil);
use Redis;

# All keys of a call share one hash tag, in braces, so that they are on the same node of a cluster.
my $address = 'login:{203.0.113.7}';

my $redis;

sub connected {
    my ($server) = $ENV{REDIS_URL} =~ m{^redis://([^/]+)} or die "REDIS_URL is to be redis://host:port\n";
    return $redis //= Redis->new(server => $server, cnx_timeout => 2, read_timeout => 2);
}

sub new_request {
    open my $random, '<:raw', '/dev/urandom' or die "/dev/urandom: $!";
    read $random, my $bytes, 16;
    return "$address:request:" . unpack 'H*', $bytes;
}

# Asks for a decision. If the reply is lost, the call may have been charged. With ONCE it is safe to retry: for 60000 ms,
# retries of the same request are not charged again.
sub take {
    my ($request) = @_;
    for my $attempts_left (2, 1, 0) {
        my $reply = eval { connected()->fcall('ratelimit_take', 2, $address, $request, '@login', 'ONCE', 60000) };
        return $reply if $reply;
        die "${@}run: ratelimit deploy --policies examples/policies.yaml\n" if $@ =~ /Function not found|RATELIMIT NOPOLICY/;
        die $@ if $@ =~ /^\[fcall\] [A-Z]+ / || !$attempts_left;    # an error reply: do not retry
        undef $redis;    # the connection was lost
    }
}

sub told {
    my ($reply) = @_;
    my ($allowed, $limit, $remaining, $retry_after_ms, $reset_after_ms, $index) = @$reply;    # later versions may add elements
    return "allowed, $remaining of $limit left" if $allowed;
    return 'denied, try again in ' . ceil($retry_after_ms / 1000) . ' s';
}

my $request = new_request();
say 'first: ', told(take($request));
say 'asked again: ', told(take($request));
my $reply;
$reply = take(new_request()) for 1 .. 5;
say 'five later: ', told($reply);
