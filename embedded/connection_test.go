package embedded

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// pipe connects to a server without the network. When a write to the connection returns, the server
// has read the data.
func pipe(t *testing.T, s *Server) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	s.admit(there)
	t.Cleanup(func() { here.Close() })
	require(t, here.SetDeadline(time.Now().Add(20*time.Minute))) // the tests are slow with the race detector on a busy machine
	return here
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatalf("sending %.40q: %v", text, err)
	}
}

// expect reads len(want) bytes and compares them with want.
func expect(t *testing.T, r io.Reader, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(r, got); err != nil || string(got) != want {
		t.Fatalf("received %.200q, %v; want %.200q", got[:n], err, want)
	}
}

// allocated returns the total number of bytes allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// inUse returns the total size of the heap and the stacks in bytes.
func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

func TestRequestsTakeMemoryForWhatArrives(t *testing.T) {
	for _, request := range append([]string{
		strings.Repeat("*2147483647\r\n$536870912\r\n", 2),
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n" + strings.Repeat("v", 100_000),
		"*1000000\r\n" + strings.Repeat("$0\r\n\r\n", 100_000),
		strings.Repeat("x", 200_000), "*" + strings.Repeat("1", 200_000), "*1\r\n$" + strings.Repeat("1", 200_000),
		strings.Repeat("*0\r\n\r\n", 20_000), strings.Repeat(" ", 60_000) + "\r\n", `"` + strings.Repeat(`\x41`, 15_000) + "\r\n",
	}, requests...) {
		before := allocated()
		readAll(strings.NewReader(request))
		if took := allocated() - before; took > uint64(64*len(request)+16<<10) {
			t.Errorf("%d bytes, %.40q, took %d bytes of memory", len(request), request, took)
		}
	}
}

func TestHalfOpenConnectionsCostLittle(t *testing.T) {
	const n, each = 2000, 32 << 10
	s := Run(t)
	before := inUse()
	for range n {
		send(t, pipe(t, s), "*2\r\n$3\r\nGET\r\n$536870912\r\nkey")
	}
	if took := int64(inUse()) - int64(before); took > n*each {
		t.Errorf("%d connections take %d bytes each, want at most %d", n, took/n, each)
	}
	if _, err := s.Do("PING"); err != nil {
		t.Error(err)
	}
}

// TestRepliesThatNobodyReadsAreBounded checks that replies to a client that does not read are
// buffered only up to a limit. Beyond the limit, the client's commands wait.
func TestRepliesThatNobodyReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		o := &output{conn: there}
		reply := strings.Repeat("x", 1<<20)
		const n = 200
		go func() {
			for range n {
				o.write(reply, false)
			}
			o.flush()
			o.sending.Wait()
			there.Close()
		}()
		synctest.Wait() // wait until writing stops
		o.mu.Lock()
		waiting := o.inFlight + len(o.replies)
		o.mu.Unlock()
		if waiting <= maxUnread || waiting > maxUnread+2<<20 {
			t.Errorf("%d bytes wait to be read", waiting)
		}
		got, err := io.Copy(io.Discard, here)
		if want := int64(n * (len(reply) + len("$1048576\r\n\r\n"))); err != nil || got != want {
			t.Errorf("then %d bytes are read, %v; want %d", got, err, want)
		}
	})
}

func TestABrokenConnectionKeepsNothing(t *testing.T) {
	here, there := net.Pipe()
	here.Close()
	o := &output{conn: there}
	for range 100 {
		o.write(strings.Repeat("x", 1<<20), false)
	}
	o.sending.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.replies) > 0 {
		t.Errorf("%d bytes wait for a disconnected client", len(o.replies))
	}
}

// TestPipelineIsReadOn checks that a client may send all of a long pipeline, and even close its
// sending side, before it reads the first reply.
func TestPipelineIsReadOn(t *testing.T) {
	s := Run(t)
	const n = 100_000
	conn := pipe(t, s)
	send(t, conn, strings.Repeat("PING\r\n", n))
	expect(t, conn, strings.Repeat("+PONG\r\n", n))

	tcp := must[net.Conn](t)(net.Dial("tcp", s.Addr()))
	defer tcp.Close()
	send(t, tcp, strings.Repeat("PING\r\n", n))
	require(t, tcp.(*net.TCPConn).CloseWrite())
	if got, err := io.ReadAll(tcp); err != nil || len(got) != n*len("+PONG\r\n") {
		t.Errorf("after the end of the commands %d bytes were read, %v", len(got), err)
	}
}

func TestRepliesThatAreTooLong(t *testing.T) {
	s := Run(t, WithLibrary(lib("local t = {} for i = 1, 70 do t[i] = args[1] end return t")))
	value := strings.Repeat("v", 1<<20)
	must[any](t)(s.Do("SET", "k", value))
	const refused = "-ERR the reply is longer than 64 MiB, which the embedded server does not send: ask for less at once\r\n"
	conn := pipe(t, s)
	go func() {
		io.WriteString(conn, "MGET"+strings.Repeat(" k", 70)+"\r\n")
		io.WriteString(conn, "MULTI\r\n"+strings.Repeat("GET k\r\n", 70)+"EXEC\r\n")
		fmt.Fprintf(conn, "*4\r\n$5\r\nFCALL\r\n$1\r\nf\r\n$1\r\n0\r\n$%d\r\n%s\r\n", len(value), value)
		io.WriteString(conn, "STRLEN k\r\n")
	}()
	in := bufio.NewReader(conn)
	expect(t, in, refused+"+OK\r\n"+strings.Repeat("+QUEUED\r\n", 70)+refused+refused+":1048576\r\n")
	if _, err := s.Do(append([]any{"MGET"}, slices.Repeat([]any{"k"}, 70)...)...); err == nil || "-"+err.Error()+"\r\n" != refused {
		t.Errorf("Do: %v", err)
	}
}

// TestALongReplyIsNotMade checks that a command fails as soon as its reply is too long. The server
// stops miniredis with a panic. The connection's watched keys are lost, so they count as changed.
func TestALongReplyIsNotMade(t *testing.T) {
	s := Run(t)
	must[any](t)(s.Do(append([]any{"RPUSH", "l"}, slices.Repeat([]any{strings.Repeat("v", 1<<20)}, 1<<20)...)...))
	conn := pipe(t, s)
	go io.WriteString(conn, "SELECT 0\r\nWATCH k\r\nLRANGE l 0 -1\r\nMULTI\r\nSET k 1\r\nEXEC\r\nWATCH k\r\nMULTI\r\nSET k 1\r\nEXEC\r\n")
	expect(t, conn, "+OK\r\n+OK\r\n-"+string(errReplyTooLong)+"\r\n+OK\r\n+QUEUED\r\n*-1\r\n+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
}

// TestALongReplyIsNotWritten checks that a reply that is too long is rejected before all of it is
// in memory.
func TestALongReplyIsNotWritten(t *testing.T) {
	list := slices.Repeat([]engine.Reply{strings.Repeat("v", 1<<20)}, 1000)
	before := allocated()
	if b := appendBounded(nil, list, false); string(b) != "-"+string(errReplyTooLong)+"\r\n" {
		t.Errorf("%.100q", b)
	}
	if took := allocated() - before; took > 6*maxReply {
		t.Errorf("it took %d bytes", took)
	}
}

func TestCloseWithCallsInFlight(t *testing.T) {
	s := Run(t, WithLibrary(lib("redis.call('SET', keys[1], 1) for i = 1, 10000 do end")))
	var calls sync.WaitGroup
	began := make(chan bool, 8)
	call := func(do func() error, want string) {
		calls.Go(func() {
			began <- true
			for {
				if err := do(); err != nil {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("a call that is cut off: %v, want %q", err, want)
					}
					return
				}
			}
		})
	}
	for range 4 {
		call(func() error { _, err := s.Do("FCALL", "f", 1, "k"); return err }, "ERR the embedded server is closed")
		c := client(t, s, nil)
		call(func() error { return c.FCall(context.Background(), "f", []string{"k"}).Err() }, "")
	}
	for range 8 {
		<-began
	}
	await(t, func() bool { return s.keyspace.Exists("k") }, s) // f has run
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	calls.Wait()
}

func TestFunctionLoadWhileFunctionsRun(t *testing.T) {
	text := func(n int) string {
		return lib(fmt.Sprintf("local sum = 0 for i = 1, 20000 do sum = sum + %d end return {sum, sum / 20000}", n))
	}
	s := Run(t, WithLibrary(text(1)))
	ctx := context.Background()
	done := make(chan struct{})
	var callers sync.WaitGroup
	for range 3 {
		c := client(t, s, nil)
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if r, err := c.FCall(ctx, "f", nil).Int64Slice(); err != nil || len(r) != 2 || r[0] != 20000*r[1] {
					t.Errorf("FCALL: %v, %v", r, err)
					return
				}
			}
		})
	}
	for n := range 100 {
		if err := s.Load(text(n)); err != nil {
			t.Error(err)
		}
	}
	close(done)
	callers.Wait()
	if r, err := s.Do("FCALL", "f", 0); err != nil || fmt.Sprint(r) != fmt.Sprint([]int{99 * 20000, 99}) {
		t.Errorf("after the last load: %v, %v", r, err)
	}
}

func TestBadCallsOfFunctions(t *testing.T) {
	s := Run(t, WithClusterRules(), WithLibrary(lib("return 1")))
	for _, tc := range []struct{ keys, want string }{
		{"-1", "ERR Number of keys can't be negative"},
		{"-9223372036854775808", "ERR Number of keys can't be negative"},
		{"2", "ERR Number of keys can't be greater than number of args"},
		{"9223372036854775807", "ERR Number of keys can't be greater than number of args"},
		{"9223372036854775808", "ERR Bad number of keys provided"},
		{"+1", "ERR Bad number of keys provided"},
		{"1.0", "ERR Bad number of keys provided"},
		{"", "ERR Bad number of keys provided"},
	} {
		for _, verb := range []string{"FCALL", "FCALL_RO"} {
			if _, err := s.Do(verb, "f", tc.keys, "k"); err == nil || err.Error() != tc.want {
				t.Errorf("%s f %s k: %v, want %s", verb, tc.keys, err, tc.want)
			}
		}
	}
}

// TestMiniredisFails checks that a panic in miniredis, which runs in the same process, does not end
// the process or a client's transaction.
func TestMiniredisFails(t *testing.T) {
	s := Run(t)
	conn := pipe(t, s)
	const failed = "-ERR the embedded server cannot run this: miniredis, which holds its keys, fails: runtime error: slice bounds out of range [:-2]\r\n"
	go io.WriteString(conn, "SELECT 2\r\nSET k 1\r\nSSCAN s -2\r\nMULTI\r\nSSCAN s -2\r\nGET k\r\nEXEC\r\nGET k\r\n")
	expect(t, conn, "+OK\r\n+OK\r\n"+failed+"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n"+failed+"$1\r\n1\r\n$1\r\n1\r\n")
	for _, words := range [][]any{
		{"SETRANGE", "k", "9223372036854775807", "x"}, {"setrange", "k", "4194305", "x"}, {"SETBIT", "k", "99999999999", 1}, {"LPOS", "k", "x", "COUNT", "9223372036854775807"},
		{"SRANDMEMBER", "k", "-9223372036854775808"}, {"HRANDFIELD", "k", "-99999999"}, {"ZRANDMEMBER", "k", "-99999999", "WITHSCORES"}, {"SPOP", "k", "99999999999"},
	} {
		if _, err := s.Do(words...); err == nil || !strings.Contains(err.Error(), "it takes offsets and counts up to 4194304") {
			t.Errorf("%v: %v", words, err)
		}
	}
	if n, err := s.Do("SETRANGE", "k", 2, "9999999999999"); err != nil || n != int64(15) {
		t.Errorf("SETRANGE of a text of digits: %v, %v", n, err)
	}
}

func TestUnsupported(t *testing.T) {
	s := Run(t)
	for command, want := range map[string]string{
		"SUBSCRIBE news":               "ERR this command is not supported by the embedded server: it sends no messages",
		"MOVE k 1":                     "ERR this command is not supported by the embedded server: its keys stay in their database",
		"COPY a b DB 1":                "ERR COPY with DB is not supported by the embedded server: its keys stay in their database",
		"COMMAND DOCS":                 "ERR COMMAND DOCS is not supported by the embedded server: only COMMAND alone is",
		"CONFIG SET maxmemory 1":       "ERR CONFIG SET is not supported by the embedded server: it has no settings to change",
		"FUNCTION DUMP":                "ERR FUNCTION DUMP is not supported by the embedded server: move libraries as source text, with FUNCTION LIST WITHCODE and FUNCTION LOAD",
		"FUNCTION LIST LIBRARYNAME":    "ERR library name argument was not given",
		"FUNCTION LIST LIBRARYNAME [a": "ERR the embedded server cannot read the pattern '[a': its [ is not closed",
		"BLPOP q 0":                    "ERR this command is not supported by the embedded server: its commands do not wait: ask again with one such as LPOP, ZPOPMIN or XRANGE",
		"XREAD COUNT 1 STREAMS k 0":    "ERR this command is not supported by the embedded server: its commands do not wait: ask again with one such as LPOP, ZPOPMIN or XRANGE",
		"CLIENT KILL 1":                "ERR unknown subcommand or wrong number of arguments for 'KILL'. Try CLIENT HELP.",
	} {
		var words []any
		for _, word := range strings.Fields(command) {
			words = append(words, word)
		}
		if _, err := s.Do(words...); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", command, err, want)
		}
	}
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
