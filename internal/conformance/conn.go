package conformance

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2/proto"
)

// Conn is a RESP2 connection that returns replies unchanged. It is not safe for concurrent use.
type Conn struct{ *proto.Client }

// Dial connects to a server at host:port.
func Dial(addr string) (*Conn, error) {
	client, err := proto.Dial(addr)
	return &Conn{client}, err
}

// Do sends one command and returns its reply in a form for JSON: an integer is a number; a bulk
// string is a string, or {"hex": digits} if it is not UTF-8; other replies are null, an array,
// {"status": text} or {"error": text}. Do returns an error if the connection fails.
func (c *Conn) Do(words ...string) (any, error) {
	raw, err := c.Client.Do(words...)
	if err != nil {
		return nil, err
	}
	return parse(raw)
}

// parse parses a reply. Unlike proto.Parse, it tells a status from a bulk string, and null from an
// empty string or array.
func parse(raw string) (any, error) {
	switch kind, text := raw[0], raw[1:len(raw)-2]; {
	case kind == '+':
		return map[string]any{"status": text}, nil
	case kind == '-':
		return map[string]any{"error": text}, nil
	case kind == ':':
		return strconv.ParseInt(text, 10, 64)
	case raw == proto.Nil, raw == proto.NilList:
		return nil, nil
	case kind == '$':
		text, err := proto.ReadString(raw)
		if !utf8.ValidString(text) {
			return map[string]any{"hex": hex.EncodeToString([]byte(text))}, err
		}
		return text, err
	case kind == '*':
		items, err := proto.ReadArray(raw)
		list := make([]any, len(items))
		for i := range items {
			if err == nil {
				list[i], err = parse(items[i])
			}
		}
		return list, err
	}
	return nil, fmt.Errorf("the server sent a reply of a type that RESP2 does not have: %q", raw)
}
