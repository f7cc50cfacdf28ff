package embedded

import (
	"net"
	"runtime"
	"testing"
	"time"
)

// awaitWaiters waits until n connections are waiting in blocking commands.
func awaitWaiters(t *testing.T, s *Server, n int) {
	t.Helper()
	await(t, func() bool { return len(s.waiters) == n }, s)
}

// await waits until condition returns true. It calls condition with the server's lock held.
func await(t *testing.T, condition func() bool, s *Server) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		s.mu.Lock()
		done := condition()
		s.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a minute was not enough")
		}
	}
}

// blocked sends a blocking command on a new connection, and returns the connection once it is the
// n-th waiter.
func blocked(t *testing.T, s *Server, n int, command string) net.Conn {
	t.Helper()
	conn := pipe(t, s)
	send(t, conn, command)
	awaitWaiters(t, s, n)
	return conn
}

// TestWhoWaitsIsServedBeforeTheNextCommand checks that waiting commands are served as on Redis:
// after the command, function call or EXEC that wrote, and before the next command. The command
// that has waited longest is served first.
func TestWhoWaitsIsServedBeforeTheNextCommand(t *testing.T) {
	s := Run(t, WithLibrary(lib("redis.call('RPUSH', keys[1], 'a', 'b', 'c') return redis.call('LLEN', keys[1])")))
	conn := pipe(t, s)
	const a, b = "*2\r\n$1\r\nq\r\n$1\r\na\r\n", "*2\r\n$1\r\nq\r\n$1\r\nb\r\n"

	first, second := blocked(t, s, 1, "BLPOP p q 0\r\n"), blocked(t, s, 2, "BLPOP q 0\r\n")
	send(t, conn, "FCALL f 1 q\r\nLLEN q\r\nFLUSHALL\r\n")
	expect(t, conn, ":3\r\n:1\r\n+OK\r\n")
	expect(t, first, a)
	expect(t, second, b)

	first = blocked(t, s, 1, "BLPOP q 0\r\n")
	send(t, conn, "MULTI\r\nRPUSH q a\r\nLLEN q\r\nEXEC\r\nLLEN q\r\n")
	expect(t, conn, "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n:1\r\n:0\r\n")
	expect(t, first, a)

	// While q is a string, both commands keep waiting. After RPUSH, BLMOVE moves a to q, and BLPOP
	// then pops it.
	first, second = blocked(t, s, 1, "BLPOP q 0\r\n"), blocked(t, s, 2, "BLMOVE from q LEFT RIGHT 0\r\n")
	send(t, conn, "SET q 1\r\nDEL q\r\nRPUSH from a\r\nEXISTS from q\r\n")
	expect(t, conn, "+OK\r\n:1\r\n:1\r\n:0\r\n")
	expect(t, second, "$1\r\na\r\n")
	expect(t, first, a)
}

func TestWhoWaitsMayLeave(t *testing.T) {
	s := Run(t)
	conn := pipe(t, s)
	blocked(t, s, 1, "BLPOP q 0\r\nPING\r\n").Close()
	awaitWaiters(t, s, 0)
	send(t, conn, "RPUSH q a\r\nDEL q\r\n") // DEL finds q, because the waiter that disconnected did not pop a
	expect(t, conn, ":1\r\n:1\r\n")

	again := blocked(t, s, 1, "BLPOP q 0\r\n")
	send(t, again, "PING\r\n") // the server reads PING early, but runs it after BLPOP
	send(t, conn, "RPUSH q a\r\n")
	expect(t, again, "*2\r\n$1\r\nq\r\n$1\r\na\r\n+PONG\r\n")

	send(t, conn, "BLPOP q 0.001\r\nHELLO 3\r\n")
	expect(t, conn, ":1\r\n*-1\r\n%7\r\n")
}

func TestNothingBlocksInAFunction(t *testing.T) {
	s := Run(t, WithLibrary(lib("return redis.call(unpack(args))")))
	if r, err := s.Do("FCALL", "f", 1, "k", "BZMPOP", 0, 1, "k", "MIN"); err != nil || r != nil {
		t.Errorf("BZMPOP: %v, %v", r, err)
	}
	if _, err := s.Do("FCALL", "f", 1, "k", "XREAD", "BLOCK", 0, "STREAMS", "k", "$"); err == nil {
		t.Error("XREAD BLOCK is not refused")
	}
}
