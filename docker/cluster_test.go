// Package docker_test runs cluster.sh with a stand-in for Docker, and checks what cluster.sh prints
// and does. The cases include a cluster that cannot start.
package docker_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// standIn is a script that replaces docker. It records its arguments. If NODES is "up", every node
// replies. If UP is "fails", compose cannot start the nodes.
const standIn = `#!/usr/bin/env bash
[ "$*" = "compose version" ] && exit 0
shift 3 # compose -p ratelimit-cluster
case "$*" in
exec*)
	[ "$NODES" = up ] || exit 1
	case "$*" in
	*ping) echo PONG ;;
	*cluster\ info) printf 'cluster_state:ok\ncluster_known_nodes:6\n' ;;
	esac
	exit 0
	;;
esac
echo "$*" >>"$ASKED"
if [ "$1" = up ] && [ "$UP" = fails ]; then
	echo "no such image"
	exit 1
fi
if [ "$1" = logs ]; then
	echo "a node's log"
fi
exit 0
`

func TestClusterThatCannotComeUp(t *testing.T) {
	listen := func() int {
		listener := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
		t.Cleanup(func() { _ = listener.Close() })
		return listener.Addr().(*net.TCPAddr).Port
	}
	busy := listen()
	bus := listen()
	number := strconv.Itoa
	const free = "1 2 3 4 5"
	const started = "up -d\n"
	const down = "down --volumes --timeout 1\n"
	for _, tt := range []struct {
		name, ports, env string
		code             int
		asked, stderr    string
	}{
		{name: "a port is taken", ports: free + " " + number(busy), code: 1,
			stderr: "cluster.sh: port " + number(busy) + " of 127.0.0.1 is in use by another program; end that program and try again (each node needs its port, one of " + free + " " + number(busy) + ", and that + 10000)\n"},
		{name: "a port between the nodes is taken", ports: free + " " + number(bus-10000), code: 1,
			stderr: "cluster.sh: port " + number(bus) + " of 127.0.0.1 is in use by another program; end that program and try again (each node needs its port, one of " + free + " " + number(bus-10000) + ", and that + 10000)\n"},
		{name: "compose fails", ports: free, env: "UP=fails", code: 1, asked: started + down,
			stderr: "cluster.sh: compose could not start the nodes: no such image\n"},
		{name: "the nodes do not come up", ports: free, env: "CLUSTER_TIMEOUT=0", code: 1, asked: started + "logs --tail 20\n" + down,
			stderr: "a node's log\ncluster.sh: the cluster is not up after 0 s, and is stopped again; what its nodes said is above\n"},
		{name: "the ports are its own", ports: number(busy), env: "NODES=up", asked: started},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			script := redistest.Must[[]byte](t)(os.ReadFile("cluster.sh"))
			const ports = `ports="7000 7001 7002 7003 7004 7005"`
			if strings.Count(string(script), ports) != 1 {
				t.Fatalf("cluster.sh does not hold %s", ports)
			}
			for name, text := range map[string]string{
				"cluster.sh": strings.Replace(string(script), ports, `ports="`+tt.ports+`"`, 1),
				"images.sh":  "#!/bin/sh\n",
				"docker":     standIn,
			} {
				redistest.Require(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o777))
			}
			asked := filepath.Join(dir, "asked")
			cmd := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "cluster.sh"), "up")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ASKED="+asked, "NODES=", "UP=", tt.env)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if up := strings.HasPrefix(stdout.String(), "A Redis Cluster is up: "); up != (tt.code == 0) {
				t.Errorf("it says: %s", stdout.String())
			}
			if stderr.String() != tt.stderr {
				t.Errorf("stderr:\n%swant:\n%s", stderr.String(), tt.stderr)
			}
			if text, err := os.ReadFile(asked); string(text) != tt.asked || err != nil && tt.asked != "" {
				t.Errorf("asked of compose:\n%swant:\n%s(%v)", text, tt.asked, err)
			}
		})
	}
}
