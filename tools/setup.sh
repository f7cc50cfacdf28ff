#!/usr/bin/env bash
# Checks that the programs that the tests need are installed. On Debian and Ubuntu it installs missing
# packages, for which it needs root; elsewhere it lists them and fails.
#
#   tools/setup.sh docker    for tests in containers
#   tools/setup.sh local     for tests against redis-server processes
#   tools/setup.sh images    for making the Docker images from Debian packages
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:?say docker, local or images}

has() { command -v "$1" >/dev/null 2>&1; }
can() { PATH=/usr/bin:$PATH "$@" >/dev/null 2>&1; } # with the distribution's own Python, Ruby and so on, which use the packages
headers() { echo '#include <time.h>' | cc -E - >/dev/null 2>&1; }

missing=()  # Debian packages to install
names=()    # the same, for display
services=() # services that these packages start
need() {    # need PACKAGES NAME
	missing+=($1)
	names+=("$2")
}

if [ "$purpose" = images ]; then
	has mmdebstrap || need "mmdebstrap debian-archive-keyring" "mmdebstrap"
else
	has cc && headers || need "gcc libc6-dev" "a C compiler with its headers (for go test -race and the clock shim)"
	has redis-cli || need redis-tools "redis-cli"
	has ssh-keygen || need openssh-client "ssh-keygen (for the signature of a release)"
	has curl || need curl "curl (for the commands of docs/budgets.md)"
	has zsh || need zsh "zsh (for what the documents and the command show to be pasted)"
	if [ "$(uname -s)" = Linux ]; then
		has fish || need fish "fish (for its completions)"
		[ -e /usr/share/bash-completion/bash_completion ] || need bash-completion "bash-completion"
		# For examples/nginx. This package includes nginx and its Lua module.
		if [ ! -e /usr/share/lua/5.1/nginx/redis.lua ]; then
			need lua-nginx-redis "lua-nginx-redis"
			[ -x /usr/sbin/nginx ] || services+=(nginx)
		fi
		# For examples/gateway and docs/gateway.md.
		has curl || need curl "curl"
		if ! has caddy; then
			need caddy "Caddy"
			services+=(caddy)
		fi
		if [ ! -x /usr/sbin/haproxy ]; then
			need haproxy "HAProxy"
			services+=(haproxy)
		fi
		[ -e /usr/lib/apache2/modules/mod_lua.so ] || need apache2-bin "Apache with mod_lua" # this package has no service
		[ -e /usr/share/lua/5.3/socket/http.lua ] || need lua-socket "lua-socket"
	fi
	has luac5.1 || need lua5.1 "luac5.1 (Lua 5.1)"
	has luacheck || need lua-check "luacheck"
	has chromium || has chromium-browser || has google-chrome || need chromium "Chromium or Chrome (for the tests of the dashboard)"
	# For examples/languages.
	can python3 -c 'import redis' || need "python3 python3-redis" "Python 3 with its redis package"
	can env NODE_PATH=/usr/share/nodejs node -e 'require("redis")' || need "nodejs node-redis" "Node.js with its redis package"
	# redis-rb 5 has its cluster client in a separate package, which Debian releases with redis-rb 4
	# do not have. The package name is a pattern, because apt accepts patterns without a match.
	can ruby -e 'require "redis"; Redis::VERSION < "5" or require "redis-clustering"' ||
		need 'ruby ruby-redis ~n^ruby-redis-clustering$' "Ruby with its redis gem"
	can php -r 'new Redis();' || need "php-cli php-redis" "PHP with its redis extension"
	can perl -e 'use Redis' || need "perl libredis-perl" "Perl with its module Redis"
	echo '#include <hiredis/hiredis.h>' | can cc -E - || need libhiredis-dev "hiredis with its headers"
	# The tests of loader, client and bench always start their own redis-server, even if the
	# integration tests use containers.
	if ! has redis-server; then
		need redis-server "redis-server 7 or later"
		services+=(redis-server)
	fi
fi

[ ${#missing[@]} -gt 0 ] || exit 0

if ! has apt-get || ! has dpkg; then
	echo "These are missing; install them and run make test again:"
	printf '  %s\n' "${names[@]}"
	exit 1
fi

root=()
if [ "$(id -u)" != 0 ]; then
	has sudo || {
		echo "These packages are missing: ${missing[*]}. Install them as root (apt-get install ${missing[*]}) and run make test again."
		exit 1
	}
	root=(sudo)
	[ -t 0 ] || root=(sudo -n) # without a terminal, nobody can type a password
fi
echo "set-up: installing ${missing[*]}"

# Debian starts services when it installs them. These services must not take port 6379 or 80, now or
# after a restart of the machine. The policy file prevents the start, and the code below disables
# the services.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	trap '"${root[@]}" rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' | "${root[@]}" tee $policy >/dev/null
	"${root[@]}" chmod 755 $policy
fi
log=$(mktemp)
install() {
	"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q >"$log" 2>&1 &&
		"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1
}
if ! install; then
	cat "$log"
	echo "set-up: apt-get could not install ${missing[*]}; what it said is above"
	exit 1
fi
rm -f "$log"
if has systemctl; then
	for service in "${services[@]}"; do "${root[@]}" systemctl disable "$service.service" >/dev/null 2>&1 || true; done
fi
