package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/engine"
)

// Limits of the protocol, as Redis has them by default.
const (
	maxBulk      = 512 << 20
	maxMultibulk = 1 << 20
	maxInline    = 64 << 10
)

type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// readCommand reads one command: an array of bulk strings, or a line of words.
// An empty command gives no words.
func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := readLine(r)
	if err != nil || line == "" {
		return nil, err
	}
	if line[0] != '*' {
		return strings.Fields(line), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n > maxMultibulk {
		return nil, protocolError("invalid multibulk length")
	}
	if n <= 0 {
		return nil, nil
	}
	args := make([]string, 0, min(n, 64))
	for range n {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if line == "" || line[0] != '$' {
			return nil, protocolError(fmt.Sprintf("expected '$', got '%.1s'", line))
		}
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 || size > maxBulk {
			return nil, protocolError("invalid bulk length")
		}
		buf := make([]byte, size+2)
		if _, err := io.ReadFull(r, buf); err != nil {
			return nil, err
		}
		args = append(args, string(buf[:size]))
	}
	return args, nil
}

func readLine(r *bufio.Reader) (string, error) {
	var b []byte
	for {
		part, err := r.ReadSlice('\n')
		b = append(b, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return "", err
		}
		if len(b) > maxInline {
			return "", protocolError("too big inline request")
		}
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// appendReply writes a reply in RESP2 or RESP3.
func appendReply(b []byte, r engine.Reply, resp3 bool) []byte {
	switch r := r.(type) {
	case nil:
		if resp3 {
			return append(b, "_\r\n"...)
		}
		return append(b, "$-1\r\n"...)
	case int64:
		b = append(b, ':')
		b = strconv.AppendInt(b, r, 10)
		return append(b, "\r\n"...)
	case string:
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(r)), 10)
		b = append(b, "\r\n"...)
		b = append(b, r...)
		return append(b, "\r\n"...)
	case engine.Status:
		b = append(b, '+')
		b = append(b, r...)
		return append(b, "\r\n"...)
	case engine.Error:
		b = append(b, '-')
		b = append(b, oneLine(string(r))...)
		return append(b, "\r\n"...)
	case []engine.Reply:
		b = append(b, '*')
		b = strconv.AppendInt(b, int64(len(r)), 10)
		b = append(b, "\r\n"...)
		for _, x := range r {
			b = appendReply(b, x, resp3)
		}
		return b
	case engine.Set:
		head := byte('*')
		if resp3 {
			head = '~'
		}
		b = append(b, head)
		b = strconv.AppendInt(b, int64(len(r)), 10)
		b = append(b, "\r\n"...)
		for _, x := range r {
			b = appendReply(b, x, resp3)
		}
		return b
	case engine.Map:
		if resp3 {
			b = append(b, '%')
			b = strconv.AppendInt(b, int64(len(r)/2), 10)
		} else {
			b = append(b, '*')
			b = strconv.AppendInt(b, int64(len(r)), 10)
		}
		b = append(b, "\r\n"...)
		for _, x := range r {
			b = appendReply(b, x, resp3)
		}
		return b
	}
	panic(fmt.Sprintf("embedded: reply of type %T", r))
}

func oneLine(s string) string {
	if !strings.ContainsAny(s, "\r\n") {
		return s
	}
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(s)
}

// parseReply reads one RESP2 reply, and gives what is behind it.
func parseReply(b []byte) (engine.Reply, []byte, error) {
	end := -1
	for i := 0; i+1 < len(b); i++ {
		if b[i] == '\r' && b[i+1] == '\n' {
			end = i
			break
		}
	}
	if end < 1 {
		return nil, nil, io.ErrUnexpectedEOF
	}
	kind, line, rest := b[0], string(b[1:end]), b[end+2:]
	switch kind {
	case '+':
		return engine.Status(line), rest, nil
	case '-':
		return engine.Error(line), rest, nil
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
	case kind == '*':
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
