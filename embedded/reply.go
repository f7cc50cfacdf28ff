package embedded

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// appendBounded is like appendReply, but replaces a reply above maxReply with an error.
func appendBounded(b []byte, r engine.Reply, resp3 bool) []byte {
	end := len(b) + maxReply
	if all := appendReply(b, r, resp3, end); len(all) <= end {
		return all
	}
	return appendReply(b, errReplyTooLong, resp3, end)
}

// appendReply appends a reply in RESP2 or RESP3. It may stop before the end of the reply when b has
// more than end bytes.
func appendReply(b []byte, r engine.Reply, resp3 bool, end int) []byte {
	switch r := r.(type) {
	case nil:
		if resp3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "$-1\r\n"...)
	case int64:
		return appendHead(b, ':', r)
	case string:
		b = appendHead(b, '$', int64(len(r)))
		return append(append(b, r...), "\r\n"...)
	case engine.Status:
		return append(append(append(b, '+'), r...), "\r\n"...)
	case engine.Error:
		return append(append(append(b, '-'), engine.OneLine(string(r))...), "\r\n"...)
	case raw:
		return append(b, r...)
	case []engine.Reply:
		return appendList(b, '*', len(r), r, resp3, end)
	case engine.Set:
		if resp3 {
			return appendList(b, '~', len(r), r, resp3, end)
		}
		return appendList(b, '*', len(r), r, resp3, end)
	case engine.Map:
		if resp3 {
			return appendList(b, '%', len(r)/2, r, resp3, end)
		}
		return appendList(b, '*', len(r), r, resp3, end)
	}
	panic(fmt.Sprintf("embedded: reply of type %T", r))
}

func appendHead(b []byte, kind byte, n int64) []byte {
	return append(strconv.AppendInt(append(b, kind), n, 10), "\r\n"...)
}

func appendList(b []byte, kind byte, n int, list []engine.Reply, resp3 bool, end int) []byte {
	b = appendHead(b, kind, int64(n))
	for _, x := range list {
		if len(b) > end {
			break
		}
		b = appendReply(b, x, resp3, end)
	}
	return b
}

// appendResp2 appends the first of the RESP3 replies in from, converted to RESP2. It returns the result
// and the remaining replies. Doubles become strings, in the form that Redis uses.
func appendResp2(b, from []byte) (to, rest []byte) {
	end := bytes.Index(from, []byte("\r\n")) + 2
	if end < 2 {
		return append(b, from...), nil
	}
	head, rest := from[:end], from[end:]
	n, _ := strconv.Atoi(string(from[1 : end-2]))
	switch head[0] {
	case ',':
		v, _ := strconv.ParseFloat(string(from[1:end-2]), 64)
		return appendReply(b, engine.FormatDouble(v), false, maxReply), rest
	case '_':
		return appendReply(b, nil, false, maxReply), rest
	case '$':
		size := 0 // of a null
		if n >= 0 {
			size = n + len("\r\n")
		}
		return append(append(b, head...), rest[:size]...), rest[size:]
	case '*', '~', '%':
		if head[0] == '%' {
			n *= 2
		}
		b = appendHead(b, '*', int64(n))
		for range n {
			b, rest = appendResp2(b, rest)
		}
		return b, rest
	}
	return append(b, head...), rest
}

// parseReply parses one reply from miniredis for an in-process session. It returns the reply and
// the remaining bytes. Maps and sets become arrays, as in RESP2, and doubles become strings.
func parseReply(b []byte) (engine.Reply, []byte, error) {
	end := bytes.Index(b, []byte("\r\n"))
	if end < 1 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	kind, line, rest := b[0], string(b[1:end]), b[end+2:]
	switch kind {
	case '+':
		return engine.Status(line), rest, nil
	case '-':
		return engine.Error(line), rest, nil
	case ',':
		v, err := strconv.ParseFloat(line, 64)
		return engine.FormatDouble(v), rest, err
	case '_':
		return nil, rest, nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("reply %q: %w", b[:end], err)
	}
	switch {
	case kind == ':':
		return n, rest, nil
	case n < 0:
		return nil, rest, nil
	case kind == '$':
		if int64(len(rest)) < n+2 {
			return nil, nil, io.ErrUnexpectedEOF
		}
		return string(rest[:n]), rest[n+2:], nil
	case kind == '*' || kind == '~' || kind == '%':
		if kind == '%' {
			n *= 2 // keys and values
		}
		list := make([]engine.Reply, n)
		for i := range list {
			if list[i], rest, err = parseReply(rest); err != nil {
				return nil, nil, err
			}
		}
		return list, rest, nil
	}
	return nil, nil, fmt.Errorf("reply of unknown type %q", kind)
}
