#!/usr/bin/env bash
# Starts and stops the cluster of compose.yaml, with docker compose or docker-compose, whichever is there.
#
#   docker/cluster.sh up      returns when the cluster takes calls
#   docker/cluster.sh down
set -euo pipefail
cd "$(dirname "$0")"

fail() {
	echo "cluster.sh: $*" >&2
	exit 1
}

if docker compose version >/dev/null 2>&1; then
	compose() { docker compose -p ratelimit-cluster "$@"; }
elif command -v docker-compose >/dev/null; then
	compose() { docker-compose -p ratelimit-cluster "$@"; }
else
	fail "neither 'docker compose' nor docker-compose is there; install one of them"
fi

# node PORT COMMAND...: asks a node with the redis-cli of its own container.
node() {
	local port=$1
	shift
	compose exec -T "node-$port" redis-cli -p "$port" "$@" </dev/null
}

# up PORT: whether this node sees a whole cluster, and has its primary's data if it is a replica.
up() {
	local info replication
	info=$(node "$1" cluster info 2>/dev/null) && replication=$(node "$1" info replication 2>/dev/null) || return 1
	case "$info" in *cluster_state:ok*) ;; *) return 1 ;; esac
	case "$info" in *cluster_known_nodes:6*) ;; *) return 1 ;; esac
	case "$replication" in *master_link_status:down*) return 1 ;; esac
}

case "${1:-}" in
up)
	./images.sh
	said=$(compose up -d 2>&1) || fail "compose could not start the nodes: $said"
	deadline=$((SECONDS + 60))
	for port in 7000 7001 7002 7003 7004 7005; do
		until up $port; do
			if [ $SECONDS -ge $deadline ]; then
				compose logs --tail 20 >&2
				fail "the cluster is not up after 60 s; what its nodes say is above. Is another program on one of the ports 7000 to 7005, or 17000 to 17005?"
			fi
			sleep 0.5
		done
	done
	cat <<-END
		A Redis Cluster is up: three primaries and three replicas on 127.0.0.1:7000 to 7005.
		  redis-cli -c -p 7000    talk to it
		  go run ./cmd/ratelimit deploy --redis redis://127.0.0.1:7000    load the library into every primary
		  make cluster-down       stop it and forget its data
	END
	;;
down)
	said=$(compose down --volumes --timeout 1 2>&1) || fail "compose could not stop the nodes: $said"
	;;
*) fail "say up or down" ;;
esac
