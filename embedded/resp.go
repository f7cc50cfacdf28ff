package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded/internal/words"
)

// Limits on requests. These are Redis's defaults.
const (
	maxLine = 64 << 10  // bytes in a line
	maxBulk = 512 << 20 // bytes in an argument
	maxArgs = math.MaxInt32
)

// protocolError is an error in a request after which the rest of the connection's input cannot be
// parsed.
type protocolError string

func (e protocolError) Error() string { return "ERR Protocol error: " + string(e) }

// readCommand reads one command: an array of bulk strings, or a line of words. The result of an
// empty command has no words. Memory is allocated as bytes arrive, regardless of the announced
// length.
func readCommand(r *bufio.Reader) ([]string, error) {
	kind, err := r.Peek(1)
	if err != nil {
		return nil, err
	}
	if kind[0] != '*' {
		line, err := readLine(r, '\n', "too big inline request")
		if err != nil {
			return nil, err
		}
		args, ok := words.Split(strings.TrimSuffix(line, "\r"))
		if !ok {
			return nil, protocolError("unbalanced quotes in request")
		}
		return args, nil
	}
	head, err := readHead(r, "too big mbulk count string")
	if err != nil {
		return nil, err
	}
	n, err := parseInt(head[1:])
	if err != nil || n > maxArgs {
		return nil, protocolError("invalid multibulk length")
	}
	var args []string
	for ; n > 0; n-- {
		arg, err := readBulk(r)
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
	return args, nil
}

// readHead reads the line before an array or a bulk string. The line ends with a carriage return
// and one more byte, which Redis does not check.
func readHead(r *bufio.Reader, tooBig protocolError) (string, error) {
	head, err := readLine(r, '\r', tooBig)
	if err == nil {
		_, err = r.ReadByte()
	}
	return head, err
}

// readLine reads up to the delimiter end, and returns the line without the delimiter. If the line
// is too long, it returns the error tooBig.
func readLine(r *bufio.Reader, end byte, tooBig protocolError) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice(end)
		line = append(line, part...)
		switch {
		case len(line) > maxLine+len("\r\n"):
			return "", tooBig
		case err == nil:
			return string(line[:len(line)-1]), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
	}
}

// readBulk reads a bulk string. Like Redis, it does not check the two bytes after the string.
func readBulk(r *bufio.Reader) (string, error) {
	head, err := readHead(r, "too big bulk count string")
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(head, "$") {
		return "", protocolError("expected '$', got '" + (head + " ")[:1] + "'")
	}
	n, err := parseInt(head[1:])
	if err != nil || n < 0 || n > maxBulk {
		return "", protocolError("invalid bulk length")
	}
	size := int(n)
	if size+2 <= r.Size() {
		b, err := r.Peek(size + 2)
		if err != nil {
			return "", err
		}
		s := string(b[:size])
		_, err = r.Discard(size + 2)
		return s, err
	}
	var b bytes.Buffer // grows as bytes arrive
	if _, err := io.CopyN(&b, r, n); err != nil {
		return "", err
	}
	_, err = r.Discard(2)
	return b.String(), err
}
