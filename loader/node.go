package loader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// This file has what a deployment does to one primary: read it, take, check and release the lease,
// write a text, and load a fence. See PROTOCOL.md.

// member is a primary in a call.
type member struct {
	*nodes.Conn
	nodes.Shard
	reading // the last one
	s       *session
	node    *Node // entry in the fleet's report

	leased  bool            // whether this call holds the lease
	renewed time.Time       // a time just before the lease was last written
	unknown map[string]bool // the names of writes whose outcome is not known
	wrote   bool            // whether a text was sent that the node did not refuse
	refused bool            // whether it appeared during the call and cannot take the build
}

// reading is what was read on a node.
type reading struct {
	source string          // the library, "" if there is none
	text   text.Text       // the same, parsed
	err    error           // why it cannot be parsed, or nil
	others []nodes.Library // leases, fences, and the record of a former format
}

const (
	fencePrefix  = functions.Name + "_fence_"
	formerRecord = functions.Name + "_previous" // the library in which former versions kept a record
	fenceLife    = 24 * time.Hour
)

// inspect reads everything about the library on one node. It writes nothing.
func (m *member) inspect(ctx context.Context) {
	a, err := m.Identify(ctx)
	if *m.node = described(m.Address(), a); err == nil {
		err = m.CheckEngine(ctx, a)
	}
	if err == nil {
		err = m.read(ctx)
	}
	if err != nil {
		m.node.fail(err)
		return
	}
	body := text.Body(m.source)
	if m.node.Before = text.Describe(body); m.s.lists == nil {
		m.node.Policies = slices.Sorted(maps.Keys(policiesOf(body)))
	}
}

// read reads the libraries on the node. It fails if the text cannot be parsed.
func (m *member) read(ctx context.Context) error {
	list, cached := "", m.s.lists != nil && !m.leased
	if cached {
		reply, err := m.Do(ctx, "FUNCTION", "LIST", "LIBRARYNAME", functions.Name+"*")
		if err != nil {
			return m.Failure("FUNCTION LIST", err)
		}
		list = fmt.Sprint(reply)
	}
	if known := m.s.known(m.Shard.Addr, list); known != nil {
		m.reading = *known
	} else {
		libraries, err := m.Libraries(ctx, "LIBRARYNAME", functions.Name+"*", "WITHCODE")
		if err != nil {
			return err
		}
		m.parse(libraries)
		if cached {
			m.s.remember(m.Shard.Addr, list, m.reading)
		}
	}
	if m.err != nil {
		return unreadable(m.Conn, m.err)
	}
	m.tell(protocol.Step{Op: protocol.Read, Text: m.s.parts(m.text), Highest: m.text.Highest})
	return nil
}

// parse sets the member's reading. It parses the text if it is not the one of the last reading.
func (m *member) parse(libraries []nodes.Library) {
	source := ""
	m.others = nil
	for _, l := range libraries { // FUNCTION LIST takes a pattern, so it may also list other libraries
		switch {
		case l.Name == functions.Name:
			source = l.Code
		case l.Name == formerRecord || strings.HasPrefix(l.Name, leasePrefix) || strings.HasPrefix(l.Name, fencePrefix):
			m.others = append(m.others, l)
		}
	}
	if source != m.source || m.text.Parts == nil {
		m.source = source
		m.text, m.err = text.Parse(source)
	}
}

// hasLease reports whether the last read found a lease.
func (m *member) hasLease() bool {
	return slices.ContainsFunc(m.others, func(l nodes.Library) bool { return strings.HasPrefix(l.Name, leasePrefix) })
}

// takeLease takes the lease on the node. FUNCTION LOAD without REPLACE is the test-and-set. If
// another call holds it, takeLease returns that lease. It takes over a lease that is over, after it
// has loaded fences against the writes of its holder.
func (m *member) takeLease(ctx context.Context) (*lease, error) {
	for range 20 {
		err := m.writeLease(ctx, "FUNCTION", "LOAD")
		if err == nil {
			m.leased = true
			m.tell(protocol.Step{Op: protocol.Lease})
			return nil, nil
		}
		if !nodes.IsReply(err, "ERR Function ") || !strings.HasSuffix(nodes.ReplyText(err), " already exists") {
			m.leased = true // the load may have succeeded, with only its reply lost
			m.releaseLease(ctx)
			return nil, loadFailure(ctx, m.Conn, err)
		}
		found, err := m.Libraries(ctx, "LIBRARYNAME", leasePrefix+"*", "WITHCODE")
		if err != nil {
			return nil, err
		}
		if len(found) == 0 { // the other lease is gone, or the function belongs to an unrelated library
			continue
		}
		now, err := m.TimeMS(ctx)
		if err != nil {
			return nil, err
		}
		other := readLease(found[0].Name, found[0].Code)
		if !other.isOver(now) {
			return &other, nil
		}
		for _, name := range []string{other.token(), other.token() + protocol.UndoSuffix} {
			if err := m.fence(ctx, name); err != nil {
				return nil, err
			}
		}
		if _, err := m.Do(ctx, "FUNCTION", "DELETE", other.name); err != nil && !nodes.IsReply(err, "ERR Library not found") {
			return nil, m.Failure("FUNCTION DELETE", err)
		}
		m.tell(protocol.Step{Op: protocol.TakeOver, Name: other.token()})
	}
	return nil, nameTaken(m.Conn, leaseFunction, holderOf(ctx, m.Conn, leaseFunction), nil)
}

// writeLease loads the lease with command. It is then valid for leaseLife from now.
func (m *member) writeLease(ctx context.Context, command ...any) error {
	began := m.s.l.config.clock.now()
	now, err := m.TimeMS(ctx)
	if err != nil {
		return err
	}
	mine := lease{leasePrefix + m.s.token, m.s.who, now, now + m.s.leaseLife().Milliseconds()}
	if _, err = m.Do(ctx, append(command, mine.text())...); err == nil {
		m.renewed = began
	}
	return err
}

// keepLease checks that this call holds the lease, and renews it if necessary. A lost lease is taken
// again only if the node holds a text that fits.
func (m *member) keepLease(ctx context.Context, fits func(text.Text) bool) error {
	found, err := m.Libraries(ctx, "LIBRARYNAME", leasePrefix+"*", "WITHCODE")
	if err != nil {
		return err
	}
	m.leased = slices.ContainsFunc(found, func(l nodes.Library) bool { return l.Name == leasePrefix+m.s.token })
	if m.leased && m.s.l.config.clock.now().Sub(m.renewed) >= m.s.leaseLife()/3 {
		err := m.writeLease(ctx, "FUNCTION", "LOAD", "REPLACE")
		var known *nodes.Error
		switch {
		case errors.As(err, &known):
			return err
		case nodes.IsReply(err, "ERR Function "):
			m.leased = false // it was taken over just now
		case err != nil:
			return loadFailure(ctx, m.Conn, err)
		}
	}
	if m.leased {
		m.tell(protocol.Step{Op: protocol.Checked})
		return nil
	}
	other, err := m.takeLease(ctx)
	if err != nil {
		return err
	}
	if other != nil {
		return overtaken(m.Conn, "gave the lease of this deployment to another one, by "+other.who+", because it had expired")
	}
	if err := m.read(ctx); err != nil {
		return err
	}
	if !fits(m.text) {
		return overtaken(m.Conn, "lost the lease of this deployment, and got another one since then")
	}
	return nil
}

// write loads a text and waits for the replicas. name is unique to the call and to what it writes.
func (m *member) write(ctx context.Context, next text.Text, name string) error {
	source, err := next.Render(name, m.s.who)
	if err != nil {
		return uncomposed(m.Conn, err)
	}
	m.unknown[name] = true
	m.tell(protocol.Step{Op: protocol.Write, Name: name, Text: m.s.parts(next)})
	if err = m.loadAndWait(ctx, source); err == nil || nodes.ReplyText(err) != "" {
		delete(m.unknown, name)
	}
	m.wrote = m.wrote || err == nil || m.unknown[name]
	switch {
	case err == nil:
		m.tell(protocol.Step{Op: protocol.Wrote, Name: name})
		return nil
	case m.unknown[name]:
		return loadFailure(ctx, m.Conn, err)
	}
	m.tell(protocol.Step{Op: protocol.Refused, Name: name})
	if nodes.IsReply(err, "ERR Function "+text.By+name+" already exists") {
		return overtaken(m.Conn, "refuses the writes of this deployment, because another one took over its lease")
	}
	return loadFailure(ctx, m.Conn, err)
}

// loadAndWait loads a library and waits for the replicas, if there are any.
func (m *member) loadAndWait(ctx context.Context, code string) error {
	role, err := m.Role(ctx)
	if m.node.Replicas, m.node.Acked = len(role.Replicas), 0; err != nil || role.Primary != "" {
		m.node.Replicas = -1
	}
	if m.node.Replicas <= 0 {
		_, err := m.Do(ctx, "FUNCTION", "LOAD", "REPLACE", code)
		return err
	}
	acked, err, wait := m.DoAndWait(ctx, m.node.Replicas, "FUNCTION", "LOAD", "REPLACE", code)
	if m.node.Acked = acked; nodes.ReplyText(wait) != "" { // the user has no permission for WAIT
		m.node.Acked = -1
	} else if err == nil {
		err = wait
	}
	return err
}

// fence is rule 10: it makes the node refuse a text that was sent under this name and may arrive later.
func (m *member) fence(ctx context.Context, name string) error {
	now, err := m.TimeMS(ctx)
	if err != nil {
		return err
	}
	_, err = m.Do(ctx, "FUNCTION", "LOAD", fenceText(name, now))
	// "already exists" means that the write has arrived, or that there is such a fence.
	if err != nil && !strings.HasSuffix(nodes.ReplyText(err), " already exists") {
		return loadFailure(ctx, m.Conn, err)
	}
	delete(m.unknown, name)
	m.tell(protocol.Step{Op: protocol.Fence, Name: name})
	return nil
}

func fenceText(name string, atMS int64) string {
	return fmt.Sprintf(`#!lua name=%s%s
-- This library makes the server refuse a text that a deployment sent and that may still arrive. A
-- later deployment deletes it after a day.
local AT_MS = %d
redis.register_function{ function_name = '%s%s', flags = { 'no-writes', 'allow-stale' }, callback = function() return AT_MS end }
`, fencePrefix, name, atMS, text.By, name)
}

// releaseLease deletes the lease. If the outcome of a write is unknown, it first loads a fence. If
// that fails, the lease stays: whoever takes it over loads the fence. releaseLease returns a note
// for the report if the lease could not be released.
func (m *member) releaseLease(ctx context.Context) []*nodes.Error {
	if !m.leased {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	failed := func(err error) []*nodes.Error {
		e := &nodes.Error{Addr: m.Address(), Err: err, Problem: err.Error()}
		_ = errors.As(err, &e)
		note := *e
		note.Problem, note.Remedy = fmt.Sprintf("the lease of this deployment could not be released (%s); it expires within %v", e.Problem, m.s.leaseLife()), ""
		return []*nodes.Error{&note}
	}
	for name := range m.unknown {
		if err := m.fence(ctx, name); err != nil {
			return failed(err)
		}
	}
	m.leased = false
	m.tell(protocol.Step{Op: protocol.Release})
	if _, err := m.Do(ctx, "FUNCTION", "DELETE", leasePrefix+m.s.token); err != nil && !nodes.IsReply(err, "ERR Library not found") {
		return failed(m.Failure("FUNCTION DELETE", err))
	}
	return nil
}

// tidy deletes old fences, and the record of a former format. It ignores errors, because nothing
// depends on it.
func (m *member) tidy(ctx context.Context, nowMS int64) {
	for _, l := range m.others {
		at, _ := strconv.ParseInt(value(l.Code, "AT_MS"), 10, 64)
		if l.Name == formerRecord || strings.HasPrefix(l.Name, fencePrefix) && (nowMS-at > fenceLife.Milliseconds() || at > nowMS+fenceLife.Milliseconds()) {
			_, _ = m.Do(ctx, "FUNCTION", "DELETE", l.Name)
		}
	}
}

// tell tells the trace about a protocol step on the node.
func (m *member) tell(step protocol.Step) {
	step.Addr = m.node.Addr
	m.s.tell(step)
}

// value returns the value in a line "local NAME = '...'" or "local NAME = ..." of Lua code, or ""
// if there is none.
func value(code, name string) string {
	for line := range strings.Lines(code) {
		if v, ok := strings.CutPrefix(line, "local "+name+" = "); ok {
			if text, _, ok := luastring.Cut(v); ok {
				return text
			}
			return strings.TrimSpace(v)
		}
	}
	return ""
}
