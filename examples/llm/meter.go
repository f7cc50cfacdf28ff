package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
)

// chat is the part of a request that the proxy needs.
type chat struct {
	body       []byte // sent to the upstream; a request for a stream also requests the usage
	prompt     int64  // approximate tokens of the prompt
	estimate   int64  // estimated tokens of the prompt and the answer
	wantsUsage bool   // whether the client itself requests the usage of a stream
}

// readChat reads a request. It counts every four bytes of the body as one token of the prompt.
// answer is the estimate for the answer to a request without max_tokens.
func readChat(body []byte, answer int64) (c chat, err error) {
	var fields map[string]json.RawMessage // all fields, because most are forwarded unchanged
	known := struct {
		Stream        bool
		StreamOptions map[string]any `json:"stream_options"`
		N             int64
		MaxTokens     int64 `json:"max_tokens"`
		MaxCompletion int64 `json:"max_completion_tokens"` // the newer name of max_tokens
	}{N: 1}
	if err := cmp.Or(json.Unmarshal(body, &fields), json.Unmarshal(body, &known)); err != nil {
		return c, fmt.Errorf("the body is no chat completion: %w", err)
	}
	longest := cmp.Or(known.MaxCompletion, known.MaxTokens, answer)
	if known.N < 1 || known.N > 1000 || longest < 0 || longest > 1<<30 {
		return c, fmt.Errorf("n is %d and max_tokens %d; give up to 1000 and up to %d", known.N, longest, 1<<30)
	}
	if known.Stream {
		c.wantsUsage = known.StreamOptions["include_usage"] == true
		if known.StreamOptions == nil {
			known.StreamOptions = map[string]any{}
		}
		known.StreamOptions["include_usage"] = true
		if fields["stream_options"], err = json.Marshal(known.StreamOptions); err != nil {
			return c, err
		}
	}
	c.prompt = int64(len(body)+3) / 4
	c.estimate = c.prompt + known.N*longest
	c.body, err = json.Marshal(fields) // drops duplicate names, which the upstream might read differently
	return c, err
}

// meter passes a response on, event by event. At the end of the response, meter
// settles the estimate:
//
//   - to the usage, if the upstream has sent one;
//   - otherwise, in a stream, to the prompt and a token for each event that was passed on: a client
//     that hangs up pays for the tokens that it has received;
//   - otherwise to 0, if the upstream failed;
//   - otherwise the estimate stays charged. If a client could hang up before the first
//     token for free, it could send any number of prompts.
type meter struct {
	chat
	hold hold
	ctx  context.Context // the request's context

	body   io.Closer
	events *bufio.Scanner
	rest   []byte // the unread part of the current event
	stream bool
	failed bool   // the upstream sent an error as an event
	tokens int64  // approximate number of tokens passed on
	used   *int64 // tokens used, as reported by the upstream; nil: not reported

	settled bool
}

// maxEvent is the maximum number of bytes of an event, or of an answer that is not a stream.
const maxEvent = 16 << 20

// response removes the upstream's RateLimit fields from the upstream's response. It makes m the body
// of a successful response. Otherwise it keeps the body, and settles the estimate to 0.
func (m *meter) response(res *http.Response) error {
	res.Header.Del("RateLimit") // these are the upstream's limits, not the client's
	res.Header.Del("RateLimit-Policy")
	if res.StatusCode/100 != 2 {
		m.settle(0)
		return nil
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	m.stream = kind == "text/event-stream"
	m.body, m.events = res.Body, bufio.NewScanner(res.Body)
	m.events.Buffer(nil, maxEvent)
	m.events.Split(whole)
	if m.stream {
		m.events.Split(event)
		res.Header.Del("Content-Length") // count may remove an event
	}
	res.Body = m
	return nil
}

// unreachable responds to a request for which the upstream sent no response.
func (m *meter) unreachable(w http.ResponseWriter, _ *http.Request, err error) {
	if m.ctx.Err() != nil {
		return // the client has hung up; see meter
	}
	m.settle(0)
	slog.ErrorContext(m.ctx, "the upstream sends no response", "error", err)
	refuse(w, http.StatusBadGateway, "upstream_failed", "the upstream sends no response")
}

// whole is a [bufio.SplitFunc] that returns all data as one token.
func whole(data []byte, atEOF bool) (int, []byte, error) {
	if !atEOF || len(data) == 0 {
		return 0, nil, nil
	}
	return len(data), data, nil
}

// event is a [bufio.SplitFunc] for server-sent events. An event ends with an empty line.
func event(data []byte, atEOF bool) (int, []byte, error) {
	for _, end := range []string{"\n\n", "\r\n\r\n"} {
		if i := bytes.Index(data, []byte(end)); i >= 0 {
			return i + len(end), data[:i+len(end)], nil
		}
	}
	return whole(data, atEOF)
}

// Read implements [io.Reader].
func (m *meter) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if !m.events.Scan() {
			return 0, cmp.Or(m.events.Err(), io.EOF)
		}
		m.rest = m.count(m.events.Bytes())
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// count reads an event, or a whole answer. It returns the part to send to the client.
func (m *meter) count(text []byte) []byte {
	data := text
	if m.stream {
		data = nil
		for line := range bytes.Lines(text) {
			if value, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, value...)
			}
		}
	}
	var part struct {
		Choices []json.RawMessage
		Usage   *struct {
			Total int64 `json:"total_tokens"`
		}
		Error any
	}
	if json.Unmarshal(data, &part) != nil {
		return text // "[DONE]", a comment, or other text without tokens
	}
	if m.stream {
		m.tokens += int64(len(part.Choices))
	}
	m.failed = m.failed || part.Error != nil
	if part.Usage == nil {
		return text
	}
	m.used = &part.Usage.Total
	if m.stream && len(part.Choices) == 0 && !m.wantsUsage {
		return nil
	}
	return text
}

// Close implements [io.Closer]. It is called once, after the response, even if the client has hung
// up.
func (m *meter) Close() error {
	switch broken := m.events.Err() != nil && m.ctx.Err() == nil; {
	case m.used != nil:
		m.settle(*m.used)
	case m.tokens > 0:
		m.settle(m.prompt + m.tokens)
	case broken || m.failed:
		m.settle(0)
	}
	return m.body.Close()
}

// keep keeps the estimate charged, unless it was settled. The gateway would otherwise give it back.
func (m *meter) keep() {
	if !m.settled {
		m.settle(m.estimate)
	}
}

// settle replaces the charged estimate with the number of tokens in used. If this fails, the
// estimate remains charged.
func (m *meter) settle(used int64) {
	m.settled = true
	res, err := m.hold.Settle(context.WithoutCancel(m.ctx), used)
	if err != nil || !res.Allowed {
		slog.ErrorContext(m.ctx, "an estimate was not corrected", "tokens", used, "blocked", err == nil, "error", err)
	}
}
