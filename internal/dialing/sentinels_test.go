package dialing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// With a fake clock and pipes: a Sentinel that does not answer fails after the patience, and at once
// for as long again; other servers keep their own deadlines.
func TestSentinels(t *testing.T) {
	const patience, timeout = time.Second, time.Minute
	var ends []net.Conn
	pipes := func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		ends = append(ends, near, far)
		go func() {
			for buf := make([]byte, 100); ; {
				if _, err := far.Read(buf); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
	asks := func(t *testing.T, conn net.Conn, command string) (time.Duration, error) {
		t.Helper()
		if _, err := conn.Write([]byte(command)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := conn.SetReadDeadline(began.Add(timeout)); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(make([]byte, 10))
		return time.Since(began), err
	}
	for name, tt := range map[string]struct {
		addr, first string
		want        time.Duration
	}{
		"a Sentinel":             {"s:1", "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n", patience},
		"a primary":              {"p:1", "*2\r\n$5\r\nhello\r\n$1\r\n3\r\n", timeout},
		"a Sentinel found later": {"s:2", "*3\r\n$8\r\nsentinel\r\n$23\r\nget-master-addr-by-name\r\n$1\r\nm\r\n", patience},
	} {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				for _, end := range ends {
					_ = end.Close()
				}
			}()
			dial := Sentinels(pipes, []string{"s:1"}, patience)
			conn, err := dial(t.Context(), "tcp", tt.addr)
			if err != nil {
				t.Fatal(err)
			}
			took, err := asks(t, conn, tt.first)
			silent := errors.As(err, new(noAnswer))
			if took != tt.want || !errors.Is(err, os.ErrDeadlineExceeded) || silent != (took == patience) {
				t.Errorf("%s: %v after %v, want %v", name, err, took, tt.want)
			}
			for _, later := range []struct {
				after time.Duration
				fails bool
			}{{patience - 1, silent}, {1, false}} {
				time.Sleep(later.after)
				again, err := dial(t.Context(), "tcp", tt.addr)
				if (err != nil) != later.fails || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: then %v, want an error: %v", name, err, later.fails)
				}
				if err == nil && silent {
					if took, _ := asks(t, again, "*1\r\n$5\r\nhello\r\n"); took != patience {
						t.Errorf("%s: then it has %v", name, took)
					}
				}
			}
			if err := conn.SetReadDeadline(time.Time{}); err != nil {
				t.Error(err) // a subscription has no deadline
			}
		})
	}
}

// A Sentinel's host that does not answer at all fails after the patience too, even if the dialer
// ignores the context. A connection that it opens later is closed.
func TestSentinelsThatCannotBeDialed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		dial := Sentinels(func(context.Context, string, string) (net.Conn, error) {
			time.Sleep(time.Minute)
			return near, nil
		}, []string{"s:1"}, time.Second)
		began := time.Now()
		_, err := dial(t.Context(), "tcp", "s:1")
		if took := time.Since(began); took != time.Second || !errors.As(err, new(noAnswer)) {
			t.Errorf("%v after %v", err, took)
		}
		if e := New("db", fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(err)), nil, time.Minute, ""); !strings.Contains(e.Error(), "no Sentinel answers: no answer within 1s") {
			t.Error(e)
		}
		if _, err := far.Read(make([]byte, 1)); err == nil {
			t.Error("the connection stays open")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := dial(ctx, "tcp", "s:1"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(time.Minute) // until the dialer returns
	})
}
