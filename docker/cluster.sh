#!/usr/bin/env bash
# Starts and stops the cluster of compose.yaml, with docker compose or docker-compose.
#
#   docker/cluster.sh up      returns when the cluster is ready
#   docker/cluster.sh down
set -euo pipefail
cd "$(dirname "$0")"

ports="7000 7001 7002 7003 7004 7005" # as in compose.yaml; each node also listens on its port + 10000

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

# node PORT COMMAND...: sends a command to a node, with the redis-cli in its container.
node() {
	local port=$1
	shift
	compose exec -T "node-$port" redis-cli -p "$port" "$@" </dev/null
}

# up PORT: succeeds if the node sees a complete cluster. A replica also needs its primary's data.
up() {
	local info replication
	info=$(node "$1" cluster info 2>/dev/null) && replication=$(node "$1" info replication 2>/dev/null) || return 1
	case "$info" in *cluster_state:ok*) ;; *) return 1 ;; esac
	case "$info" in *cluster_known_nodes:6*) ;; *) return 1 ;; esac
	case "$replication" in *master_link_status:down*) return 1 ;; esac
}

# in_use PORT: succeeds if something listens on the port.
in_use() {
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# check_ports: fails if another program uses a port that a node needs.
check_ports() {
	local port needed
	for port in $ports; do
		for needed in "$port" $((port + 10000)); do
			if in_use "$needed" && [ "$(node "$port" ping 2>/dev/null)" != PONG ]; then
				fail "port $needed of 127.0.0.1 is in use by another program; end that program and try again (each node needs its port, one of $ports, and that + 10000)"
			fi
		done
	done
}

# bring_down: removes the cluster after it failed to start.
bring_down() {
	said=$(compose down --volumes --timeout 1 2>&1) || echo "cluster.sh: and the nodes could not be stopped: $said" >&2
}

case "${1:-}" in
up)
	check_ports
	./images.sh
	trap bring_down EXIT
	trap 'exit 130' INT TERM
	said=$(compose up -d 2>&1) || fail "compose could not start the nodes: $said"
	deadline=$((SECONDS + ${CLUSTER_TIMEOUT:-60}))
	for port in $ports; do
		until up "$port"; do
			if [ $SECONDS -ge $deadline ]; then
				compose logs --tail 20 >&2
				fail "the cluster is not up after ${CLUSTER_TIMEOUT:-60} s, and is stopped again; what its nodes said is above"
			fi
			sleep 0.5
		done
	done
	trap - EXIT INT TERM
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
