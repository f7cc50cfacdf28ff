package dialing

import (
	"context"
	"net"
	"time"
)

// Late returns a function that dials like dial, but reports a dial error only when the connection
// is used. Otherwise go-redis would count the errors. After as many errors as the pool has
// connections, every call fails without dialing until a background goroutine, which dials once a
// second, succeeds.
func Late(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return notConnected{&Failed{err}}, nil
		}
		return conn, nil
	}
}

// Failed is the reason why a connection of [Late] could not be made. It hides the cause from go-redis,
// which would otherwise pause and retry.
type Failed struct{ Cause error }

func (d *Failed) Error() string { return d.Cause.Error() }

// notConnected stands for a connection that could not be made.
type notConnected struct{ err *Failed }

func (c notConnected) Read([]byte) (int, error)  { return 0, c.err }
func (c notConnected) Write([]byte) (int, error) { return 0, c.err }

func (notConnected) Close() error                     { return nil }
func (notConnected) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (notConnected) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (notConnected) SetDeadline(time.Time) error      { return nil }
func (notConnected) SetReadDeadline(time.Time) error  { return nil }
func (notConnected) SetWriteDeadline(time.Time) error { return nil }
