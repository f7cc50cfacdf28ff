package loader

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// A lease prevents two deployments to the same servers from running at the same time. It is a
// library on one node, the leader (see fleet.leader), that says who deploys and until when. Each
// lease has its own library name, but all register the same function name. Function names are
// unique on a server, so only one lease can be loaded. A deployment renews and deletes its lease by
// the library name, so it never deletes the lease of a deployment that has taken over. Because a
// lease is a library, it needs no key.
const (
	leasePrefix   = leaseFunction + "_"
	leaseFunction = functions.Name + "_lease"
)

type lease struct {
	name    string // name of the library
	who     string // who deploys, for display
	fromMS  int64  // start by the leader's clock, in ms since the epoch
	untilMS int64
}

func (l lease) text() string {
	return fmt.Sprintf(`#!lua name=%s
-- A deployment of the library %s is under way. If it died, the next one takes over when the time is up.
local WHO = %s
local FROM_MS = %d
local UNTIL_MS = %d
redis.register_function{
  function_name = '%s',
  description = 'Returns who is deploying the library %s, and until when at most, in ms since the epoch.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function() return { WHO, UNTIL_MS } end,
}
`, l.name, functions.Name, luastring.Append(nil, l.who), l.fromMS, l.untilMS, leaseFunction, functions.Name)
}

func readLease(name, code string) lease {
	return lease{name: name, who: value(code, "WHO"), fromMS: number(code, "FROM_MS"), untilMS: number(code, "UNTIL_MS")}
}

// isOver reports whether the lease may be taken over: it has expired, or it starts more than a
// minute in the future. Such a start means that the clock was set back; the lease would block all
// deployments until the clock catches up.
func (l lease) isOver(nowMS int64) bool {
	return nowMS > l.untilMS || nowMS < l.fromMS-time.Minute.Milliseconds()
}

// holder is a deployment that has the lease, or tries to get it.
type holder struct {
	c     *conn
	ttl   time.Duration
	clock clock

	mu    sync.Mutex
	lease lease
	taken time.Time // a time just before the lease was last written
}

func (s *session) holder(c *conn) *holder {
	return &holder{
		c: c, ttl: max(6*s.timeout, 10*time.Second), clock: s.l.clock,
		lease: lease{name: leasePrefix + strings.ToLower(rand.Text()), who: whoAmI()},
	}
}

// whoAmI describes this process for display.
func whoAmI() string {
	name, host := "somebody", "an unknown host"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	clean := func(r rune) rune {
		if r < ' ' {
			return -1
		}
		return r
	}
	return strings.Map(clean, fmt.Sprintf("%s@%s (process %d)", name, host, os.Getpid()))
}

// take takes the lease. If another deployment has it, take waits for up to patience.
func (h *holder) take(ctx context.Context, patience time.Duration) error {
	deadline := h.clock.now().Add(patience)
	for contested := 0; ; {
		err := h.write(ctx, "FUNCTION", "LOAD")
		if err == nil {
			return nil
		}
		if !isReply(err, "ERR Function ") || !strings.HasSuffix(replyText(err), " already exists") {
			h.release(ctx) // the load may have succeeded, with only its reply lost
			return h.c.loadFailure(ctx, err)
		}
		found, err := h.c.readHeld(ctx)
		if err != nil {
			return err
		}
		if len(found.leases) == 0 { // the other lease is gone, or the function belongs to an unrelated library
			if contested++; contested < 20 {
				continue
			}
			return nameTaken(h.c, leaseFunction, h.c.holderOf(ctx, leaseFunction), nil)
		}
		now, err := h.c.timeMS(ctx)
		if err != nil {
			return err
		}
		other := found.leases[0]
		if other.isOver(now) {
			if _, err := h.c.do(ctx, "FUNCTION", "DELETE", other.name); err != nil && !isReply(err, "ERR Library not found") {
				return failure(h.c, "FUNCTION DELETE", err)
			}
			continue
		}
		left := deadline.Sub(h.clock.now())
		if left <= 0 {
			return leased(h.c, other)
		}
		select {
		case <-ctx.Done():
			return leased(h.c, other)
		case <-h.clock.after(min(200*time.Millisecond, left)):
		}
	}
}

// write loads the lease library with command. The lease is valid for h.ttl from now.
func (h *holder) write(ctx context.Context, command ...any) error {
	began := h.clock.now()
	now, err := h.c.timeMS(ctx)
	if err != nil {
		return err
	}
	next := h.lease
	next.fromMS, next.untilMS = now, now+h.ttl.Milliseconds()
	if _, err := h.c.do(ctx, append(command, next.text())...); err != nil {
		return err
	}
	h.lease, h.taken = next, began
	return nil
}

// keep renews the lease if necessary, so that it lasts for the next steps on one node. It fails if
// another deployment has taken over.
func (h *holder) keep(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	age := h.clock.now().Sub(h.taken)
	if age < h.ttl/3 {
		return nil
	}
	if age >= h.ttl { // another deployment may have started and ended in the meantime
		found, err := h.c.readHeld(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(found.leases, func(l lease) bool { return l.name == h.lease.name }) {
			return h.lost(nil)
		}
	}
	err := h.write(ctx, "FUNCTION", "LOAD", "REPLACE")
	var known *Error
	switch {
	case err == nil, errors.As(err, &known):
		return err
	case isReply(err, "ERR Function "):
		return h.lost(err)
	}
	return h.c.loadFailure(ctx, err)
}

func (h *holder) lost(err error) error {
	return h.c.fail("FUNCTION LOAD", ErrOvertaken, err, lookAtStatus, "gave the lease of this deployment to another one, because it had expired")
}

// release deletes the lease. If the deletion fails, release returns a note for the report.
func (h *holder) release(ctx context.Context) []*Error {
	_, err := h.c.do(context.WithoutCancel(ctx), "FUNCTION", "DELETE", h.lease.name)
	if err == nil || isReply(err, "ERR Library not found") {
		return nil
	}
	e := failure(h.c, "FUNCTION DELETE", err)
	e.Problem, e.Remedy = fmt.Sprintf("the lease of this deployment could not be released (%s); it expires within %v", e.Problem, h.ttl), ""
	return []*Error{e}
}

func (c *conn) timeMS(ctx context.Context) (int64, error) {
	reply, err := c.do(ctx, "TIME")
	if err != nil {
		return 0, failure(c, "TIME", err)
	}
	parts, _ := reply.([]any)
	if len(parts) == 2 {
		seconds, ok1 := parts[0].(string)
		micros, ok2 := parts[1].(string)
		s, err1 := strconv.ParseUint(seconds, 10, 40) // with 40 bits, s*1000 cannot overflow
		us, err2 := strconv.ParseUint(micros, 10, 40)
		if ok1 && ok2 && err1 == nil && err2 == nil {
			return int64(s*1000 + us/1000), nil
		}
	}
	return 0, garbage(c, "TIME", reply)
}
