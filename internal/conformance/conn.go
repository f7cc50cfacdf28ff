package conformance

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Conn is a RESP2 connection that returns replies unchanged. It is not safe for concurrent use.
type Conn struct {
	conn net.Conn
	in   *bufio.Reader
}

// Dial connects to a server at host:port.
func Dial(addr string) (*Conn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{conn, bufio.NewReader(conn)}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Do sends one command and returns its reply in a form for JSON: an integer is a number; a bulk
// string is a string, or {"hex": digits} if it is not UTF-8; other replies are null, an array,
// {"status": text} or {"error": text}. Do returns an error if the connection fails.
func (c *Conn) Do(words ...string) (any, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := c.conn.Write(b.Bytes()); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *Conn) reply() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+':
		return map[string]any{"status": text}, nil
	case '-':
		return map[string]any{"error": text}, nil
	case ':', '$', '*':
	default:
		return nil, fmt.Errorf("the server sent a reply of a type that RESP2 does not have: %q", line)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the server sent a reply that is not RESP2: %q", line)
	case kind == ':':
		return n, nil
	case n < 0:
		return nil, nil
	case kind == '$':
		return c.bulk(n)
	}
	list := make([]any, n)
	for i := range list {
		if list[i], err = c.reply(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (c *Conn) bulk(n int64) (any, error) {
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return nil, err
	}
	if b = b[:n]; !utf8.Valid(b) {
		return map[string]any{"hex": hex.EncodeToString(b)}, nil
	}
	return string(b), nil
}
