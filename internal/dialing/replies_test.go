package dialing

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// The texts after the + are replies that go-redis would answer with allocating or nesting without
// end.
func TestReplies(t *testing.T) {
	code := strings.Repeat("\r\n*1000000000\r\n", 500_000) // source code of 7.5 MB, full of headers
	for _, tt := range []struct{ name, stream, want string }{
		{"a take", "*6\r\n:1\r\n:5\r\n:4\r\n:0\r\n:6000\r\n:1\r\n", ""},
		{"a function list", fmt.Sprintf("*1\r\n%%3\r\n$12\r\nlibrary_name\r\n$9\r\nratelimit\r\n$9\r\nfunctions\r\n~1\r\n_\r\n$12\r\nlibrary_code\r\n=%d\r\ntxt:%s\r\n", len(code)+4, code), ""},
		{"values that do not exist", "*-1\r\n$-1\r\n*2\r\n*-1\r\n*0\r\n:1\r\n", ""},
		{"attributes", "|1\r\n+a\r\n*2\r\n:1\r\n:2\r\n*1\r\n|1\r\n+b\r\n:3\r\n:4\r\n", ""},
		{"a push message", ">2\r\n+x\r\n#t\r\n+OK\r\n", ""},
		{"many replies", strings.Repeat("*1000\r\n"+strings.Repeat(":1\r\n", 1000), 1000), ""},
		{"the most elements", fmt.Sprintf("*%d\r\n", mostElements), ""},
		{"the most bytes", fmt.Sprintf("$%d\r\n", mostBytes-2), ""},
		{"another protocol", "HTTP/1.1 400 Bad Request\r\n\r\n", ""},

		{"an array", "*1000000000\r\n", "announces"},
		{"an array, one more", fmt.Sprintf("*%d\r\n", mostElements+1), "announces"},
		{"a map", "%500000000\r\n", "announces"},
		{"a map, one more", fmt.Sprintf("%%%d\r\n", mostElements/2+1), "announces"},
		{"a set", "~1000000000\r\n", "announces"},
		{"a push", ">1000000000\r\n", "announces"},
		{"attributes without end", "|500000000\r\n", "announces"},
		{"a string", "$1000000000\r\n", "announces"},
		{"a string, one more", fmt.Sprintf("$%d\r\n", mostBytes-1), "reply of more than"},
		{"verbatim", "=1000000000\r\n", "announces"},
		{"an error", "!1000000000\r\n", "announces"},
		{"more digits than an int has", "*" + strings.Repeat("9", 100), "announces"},
		{"leading zeros", "*0001000000000\r\n", "announces"},
		{"a sign", "*+1000000000\r\n", "not a number"},
		{"minus", "*--1\r\n", "not a number"},
		{"streamed", "$?\r\n", "not a number"},
		{"no digits", "*\r\n", "not a number"},
		{"only a line feed", "*1\n", "not a number"},
		{"nested arrays", strings.Repeat("*400000\r\n", 2), "announces"},
		{"nested strings", "*2\r\n$40000000\r\n" + strings.Repeat("x", 40_000_000) + "\r\n$40000000\r\n", "reply of more than"},
		{"deep", strings.Repeat("*1\r\n", mostNested+1), "inside each other"},
		{"a line without end", "+" + strings.Repeat("x", mostBytes+1), "reply of more than"},
		{"after a reply", "+OK\r\n*1000000000\r\n", "announces"},
	} {
		for _, step := range []int{len(tt.stream), 1, 3, 4096} {
			if step < 100 && len(tt.stream) > 10_000 {
				continue
			}
			var r replies
			var err error
			for rest := []byte(tt.stream); len(rest) > 0 && err == nil; {
				n := min(step, len(rest))
				err = r.scan(rest[:n])
				rest = rest[n:]
			}
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s, %d bytes at a time: %v, want %q", tt.name, step, err, tt.want)
			}
		}
	}
}

// tree writes a reply of a shape that the bytes of shape select.
func tree(out *bytes.Buffer, shape *bytes.Reader, depth int) {
	b, err := shape.ReadByte()
	if err != nil || depth > 10 {
		out.WriteString(":7\r\n")
		return
	}
	n := int(b) / 16
	switch kind := "*%~>|$=!+-:_,#(*"[b%16]; kind {
	case '*', '~', '>', '%':
		fmt.Fprintf(out, "%c%d\r\n", kind, n)
		for range n {
			tree(out, shape, depth+1)
			if kind == '%' {
				tree(out, shape, depth+1)
			}
		}
	case '|':
		out.WriteString("|1\r\n")
		tree(out, shape, depth+1)
		tree(out, shape, depth+1)
		tree(out, shape, depth+1) // the value that the attributes are for
	case '$', '=', '!':
		fmt.Fprintf(out, "%c%d\r\n%s\r\n", kind, n, strings.Repeat("*9", n)[:n])
	default:
		fmt.Fprintf(out, "%c%d\r\n", kind, n)
	}
}

// However a stream is split, the result is the same. Replies that keep the limits are accepted, and
// their end is found.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n:1\r\n"), uint16(3))
	f.Add([]byte("%1\r\n+a\r\n*1000000000\r\n"), uint16(1))
	f.Add([]byte("|1\r\n+a\r\n+b\r\n_\r\n*-1\r\n$-1\r\n"), uint16(2))
	f.Add([]byte(strings.Repeat("*1\r\n", 40)), uint16(7))
	f.Fuzz(func(t *testing.T, stream []byte, step uint16) {
		var whole, parts replies
		want := whole.scan(stream)
		var got error
		for rest := stream; len(rest) > 0 && got == nil; {
			n := min(int(step)+1, len(rest))
			got = parts.scan(rest[:n])
			rest = rest[n:]
		}
		if fmt.Sprint(want) != fmt.Sprint(got) || whole.open != parts.open || want == nil && (whole.state != parts.state || whole.elements != parts.elements || whole.bytes != parts.bytes) {
			t.Errorf("%q: %v %+v, and in parts of %d: %v %+v", stream, want, whole, int(step)+1, got, parts)
		}
		var out bytes.Buffer
		tree(&out, bytes.NewReader(stream[:min(len(stream), 200)]), 0)
		var r replies
		if err := r.scan(out.Bytes()); err != nil || r.state != atStart || r.open != 0 || r.elements != 0 || r.bytes != 0 {
			t.Errorf("%q: %v, %+v", out.String(), err, r)
		}
	})
}

// rogue answers every command with reply.
func rogue(t *testing.T, reply string) string {
	t.Helper()
	ln := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buf := make([]byte, 4096); ; {
					n, err := conn.Read(buf)
					if err != nil {
						return
					}
					answer := reply
					if bytes.Contains(bytes.ToLower(buf[:n]), []byte("hello")) {
						answer = "-ERR unknown command 'hello'\r\n"
					}
					if _, err := io.WriteString(conn, answer); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func TestARogueServerTakesNoMemory(t *testing.T) {
	for _, reply := range []string{"*1000000000\r\n", "%500000000\r\n", strings.Repeat("*500000\r\n", 1000), strings.Repeat("*1\r\n", 1_000_000)} {
		o := &redis.Options{Addr: rogue(t, reply), MaxRetries: -1, DisableIdentity: true, ReadTimeout: time.Minute}
		o.Dialer = Limited(redis.NewDialer(o))
		rdb := redis.NewClient(o)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := rdb.Do(t.Context(), "FCALL", "f", "0").Err()
		runtime.ReadMemStats(&after)
		_ = rdb.Close()
		var wrong *ReplyError
		if took := after.TotalAlloc - before.TotalAlloc; !errors.As(err, &wrong) || took > 100<<20 {
			t.Errorf("%.20q: %v, with %d MB", reply, err, took>>20)
		}
		if e := New("db", err, nil, time.Second, "look at it"); !strings.Contains(e.Error(), "it does not speak the Redis protocol (the server") {
			t.Error(e)
		}
	}
}

// With a limited connection, go-redis still notices that a server has closed a connection, and TLS
// still works.
func TestLimitedConnectionsAreChecked(t *testing.T) {
	trusted := x509.NewCertPool()
	cert, key := redistest.CertificateFiles(t, trusted, "", "127.0.0.1")
	for _, secure := range []bool{false, true} {
		o := &redis.Options{MaxRetries: -1, PoolSize: 1}
		args := []string{"--appendonly", "no"}
		if secure {
			o.TLSConfig = &tls.Config{RootCAs: trusted}
			args = append(args, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
		}
		o.Addr = redistest.Run(t, args...).Addr
		conns := make(chan net.Conn, 10)
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := Limited(Limited(redis.NewDialer(o)))(ctx, network, addr)
			if err == nil {
				conns <- conn
			}
			return conn, err
		}
		rdb := redis.NewClient(o)
		defer func() { _ = rdb.Close() }()
		redistest.Require(t, rdb.Ping(t.Context()).Err())
		conn := <-conns
		inner := conn.(interface{ NetConn() net.Conn }).NetConn()
		if _, twice := inner.(interface{ NetConn() net.Conn }); twice != secure {
			t.Errorf("with TLS %v the connection contains a %T", secure, inner)
		}
		if _, socket := conn.(syscall.Conn); socket == secure {
			t.Errorf("with TLS %v a socket is visible: %v", secure, socket)
		}
		if secure {
			continue
		}
		id := redistest.Must[int64](t)(rdb.ClientID(t.Context()).Result())
		other := redis.NewClient(&redis.Options{Addr: o.Addr})
		redistest.Require(t, other.ClientKillByFilter(t.Context(), "ID", fmt.Sprint(id)).Err())
		_ = other.Close()
		redistest.Eventually(t, "the socket is closed", func() bool {
			raw := redistest.Must[syscall.RawConn](t)(conn.(syscall.Conn).SyscallConn())
			ended := false
			_ = raw.Read(func(fd uintptr) bool {
				n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
				ended = n == 0 && err == nil
				return true
			})
			return ended
		})
		redistest.Require(t, rdb.Ping(t.Context()).Err()) // with the closed connection this would fail
	}
}

func BenchmarkReplies(b *testing.B) {
	for name, stream := range map[string]string{
		"take": "*6\r\n:1\r\n:100\r\n:99\r\n:0\r\n:600\r\n:1\r\n", "code": "$1000000\r\n" + strings.Repeat("x", 1000000) + "\r\n",
	} {
		b.Run(name, func(b *testing.B) {
			var r replies
			for b.Loop() {
				_ = r.scan([]byte(stream))
			}
		})
	}
}
