package accesslog

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
)

// common parses the Common Log Format, and formats that begin with it:
//
//	client ident user [time] "request" status size "referer" "agent" ...
type common struct {
	clock     clock
	requested []*[]byte // pointers to the requested fields, in the requested order

	client, user, method, path, status, size, referer, agent []byte
}

func newCommon(fields []string, called map[string]string) (*common, error) {
	c := &common{}
	all := map[string]*[]byte{
		"client": &c.client, "user": &c.user, "method": &c.method, "path": &c.path, "status": &c.status, "size": &c.size, "referer": &c.referer, "agent": &c.agent,
	}
	for name := range called {
		return nil, fmt.Errorf("--field %s=%s is for JSON and CSV; the fields of the Common Log Format have no names", name, called[name])
	}
	for _, name := range fields {
		field := all[name]
		if field == nil {
			return nil, fmt.Errorf("no field %q in the Common Log Format; there are client, user, method, path, status, size, referer and agent", name)
		}
		c.requested = append(c.requested, field)
	}
	return c, nil
}

func (c *common) parse(line []byte, values [][]byte) (int64, error) {
	open := bytes.Index(line, []byte(" ["))
	if open < 0 {
		return 0, fmt.Errorf("no time in brackets, as in 203.0.113.7 - - [01/Mar/2026:18:00:00 +0000]; the line begins %s", quoted(line))
	}
	size := bytes.IndexByte(line[open:], ']')
	if size < 0 {
		return 0, fmt.Errorf("at byte %d: the time has no closing bracket", open+2)
	}
	if err := c.who(line[:open]); err != nil {
		return 0, err
	}
	at, err := c.clock.read(line[open+2 : open+size])
	if err != nil {
		return 0, fmt.Errorf("at byte %d: %w", open+3, err)
	}
	request, rest, err := rest{line[open+size+1:], open + size + 1}.quoted()
	if err != nil {
		return 0, err
	}
	c.method, c.path = request.request()
	c.status, rest = rest.word()
	if n, err := strconv.Atoi(string(c.status)); err != nil || n < 0 || n > 999 {
		return 0, fmt.Errorf("at byte %d: %s is not a status such as 200", rest.at-len(c.status)+1, quoted(c.status))
	}
	if c.size, rest = rest.word(); orMissing(c.size) == nil && len(c.size) > 0 {
		c.size = noBytes
	}
	c.referer, c.agent = nil, nil
	if referer, after, err := rest.quoted(); err == nil { // Combined Log Format
		c.referer = orMissing(referer.line)
		if agent, _, err := after.quoted(); err == nil {
			c.agent = orMissing(agent.line)
		}
	}
	for i, field := range c.requested {
		values[i] = *field
	}
	return at, nil
}

// noBytes is the size of a response without a body, which the Common Log Format writes as a dash.
var noBytes = []byte("0")

// who parses client, ident and user. A user may contain spaces. In Apache's vhost_combined format,
// the line begins with the host.
func (c *common) who(text []byte) error {
	client, rest, _ := bytes.Cut(text, []byte(" "))
	ident, user, ok := bytes.Cut(rest, []byte(" "))
	if len(ident) > 1 && bytes.IndexByte(user, ' ') > 0 {
		if _, err := netip.ParseAddr(string(ident)); err == nil {
			client = ident
			_, user, ok = bytes.Cut(user, []byte(" "))
		}
	}
	if len(client) == 0 || !ok {
		return fmt.Errorf("at byte 1: %s before the time is not client, ident and user, as in 203.0.113.7 - -", quoted(text))
	}
	c.client, c.user = orMissing(client), orMissing(user)
	return nil
}

// orMissing returns nil for a dash, which stands for a missing value.
func orMissing(text []byte) []byte {
	if len(text) == 1 && text[0] == '-' {
		return nil
	}
	return text
}

// rest is the unparsed part of a line, and its offset in the line.
type rest struct {
	line []byte
	at   int
}

func (r rest) blanks() rest {
	n := len(r.line) - len(bytes.TrimLeft(r.line, " "))
	return rest{r.line[n:], r.at + n}
}

func (r rest) word() ([]byte, rest) {
	r = r.blanks()
	end := bytes.IndexByte(r.line, ' ')
	if end < 0 {
		end = len(r.line)
	}
	return r.line[:end], rest{r.line[end:], r.at + end}
}

// quoted splits a quoted string off the beginning of r. It returns the text between the quotes and
// the rest of the line. A backslash escapes a quote.
func (r rest) quoted() (inner, after rest, err error) {
	r = r.blanks()
	if len(r.line) == 0 || r.line[0] != '"' {
		return r, r, fmt.Errorf("at byte %d: the request has no opening quote", r.at+1)
	}
	for i := 1; i < len(r.line); i++ {
		switch r.line[i] {
		case '\\':
			i++
		case '"':
			return rest{r.line[1:i], r.at + 1}, rest{r.line[i+1:], r.at + i + 1}, nil
		}
	}
	return r, r, fmt.Errorf("at byte %d: the request has no closing quote", r.at+1)
}

// request returns the method and the path of a request line, or nil and nil if the line is invalid.
func (r rest) request() (method, path []byte) {
	method, target, ok := bytes.Cut(r.line, []byte(" "))
	if !ok {
		return nil, nil
	}
	if end := bytes.LastIndexByte(target, ' '); end >= 0 {
		target = target[:end]
	}
	return method, pathOf(target)
}

// pathOf returns the path of a request target, without scheme, host, query and fragment.
func pathOf(target []byte) []byte {
	if _, after, ok := bytes.Cut(target, []byte("://")); ok && len(target) > 0 && target[0] != '/' {
		start := bytes.IndexByte(after, '/')
		if start < 0 {
			return []byte("/")
		}
		target = after[start:]
	}
	if end := bytes.IndexAny(target, "?#"); end >= 0 {
		target = target[:end]
	}
	return target
}
