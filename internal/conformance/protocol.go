package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// Exchange is a sequence of bytes sent to a server, and all bytes that the server sends back. If
// Ends is true, the server then closes the connection. Otherwise, Received ends with the reply to
// the last command, so Check notices unexpected bytes before this reply.
type Exchange struct {
	Sent     string `json:"sent"`
	Received string `json:"received"`
	Ends     bool   `json:"ends,omitempty"`
}

// LoadExchanges returns the exchanges in a file.
func LoadExchanges(path string) ([]Exchange, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []Exchange
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s has no exchanges", path)
	}
	return list, nil
}

// Compare sends the bytes to the server at host:port in one piece. It returns an error if the
// server's reply differs from the recorded one.
func (e Exchange) Compare(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, e.Sent); err != nil {
		return err
	}
	got := make([]byte, len(e.Received))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != e.Received {
		return fmt.Errorf("to %q it sends %q (%v), want %q", e.Sent, got[:n], err, e.Received)
	}
	if e.Ends {
		if more, err := io.ReadAll(conn); err != nil || len(more) > 0 {
			return fmt.Errorf("to %q it sends %q and then %q (%v), want the end", e.Sent, got, more, err)
		}
	}
	return nil
}
