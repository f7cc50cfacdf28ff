package combinations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// world is a server in this process, and the model that it is compared with. The server and its
// goroutine run outside the synctest bubble of a scenario, but follow the clock of the bubble.
type world struct {
	server *embedded.Server
	future *embedded.Server // looks into the future with copies of keys
	loaded [2]int           // the builds on server and future
	texts  [2]string        // the builds
	jobs   chan func()
	done   chan struct{}

	mu sync.Mutex // guards all fields below, and is held while the server executes a command

	model     *model.Model
	ahead     time.Duration // how far the server's clock is ahead of the bubble's
	now       int64         // the server's time, in microseconds since the epoch
	counts    map[string][]int64
	ledger    map[int64][]*execution // executed commands by exported call
	seen      map[int64][]observation
	faults    []fault
	step      *step // the current step
	crowd     int64 // the exported calls of the step; commands in shared round trips do not tell theirs
	fired     map[string]bool
	forced    map[string]bool            // keys that FORCE may have put into debt
	kinds     map[string]map[string]bool // the algorithms that wrote each key
	once      map[string]int64           // until when a call that moved units is repeated, in ms, by request key
	turns     map[string]turn            // the turn in a queue, by request key
	mixed     map[string]bool            // keys whose units changed otherwise than by takes under one limit
	denied    map[string]denial          // the last denial of each key
	executed  int64                      // commands executed so far
	clockBack bool                       // whether the clock was set back
	planted   map[string]string          // keys with foreign values
	lostTrack bool                       // whether a call had an effect that the model does not know; the scenario then ends
	log       strings.Builder
	failed    *violation
	prefix    string
}

// violation is a broken invariant.
type violation struct{ rule, text string }

// denial is when the server denied a key.
type denial struct {
	executed int64 // the number of the command
	at       time.Time
}

// execution is one command that the server executed.
type execution struct {
	model.Call
	reply     []any // nil for an error
	reason    string
	moved     map[string]int64
	delivered bool
	repeated  bool // whether ONCE repeated a reply
	at        time.Time
}

func newWorld() (*world, error) {
	w := &world{jobs: make(chan func()), done: make(chan struct{}), loaded: [2]int{-1, -1}}
	var err error
	for build := range builds {
		if w.texts[build], err = library(build); err != nil {
			return nil, err
		}
	}
	if w.server, err = embedded.Start(); err != nil {
		return nil, err
	}
	if w.future, err = embedded.Start(); err != nil {
		return nil, err
	}
	go func() {
		for job := range w.jobs {
			job()
			w.done <- struct{}{}
		}
	}()
	return w, nil
}

func (w *world) close() {
	close(w.jobs)
	w.server.Close()
	w.future.Close()
}

// outside runs job in the goroutine outside the bubble. The clock of the bubble stands still.
func (w *world) outside(job func()) {
	w.jobs <- job
	<-w.done
}

// epoch is added to the clock of the bubble, which starts in 2000.
const epoch = 26*365*24*time.Hour + 123*time.Microsecond

// begin empties the server for a scenario. w.mu must be held.
func (w *world) begin(p *plan) {
	w.ahead, w.now = epoch, 0
	w.ledger, w.seen = map[int64][]*execution{}, map[int64][]observation{}
	w.faults, w.fired, w.step, w.failed = nil, map[string]bool{}, nil, nil
	w.forced, w.kinds, w.once, w.turns = map[string]bool{}, map[string]map[string]bool{}, map[string]int64{}, map[string]turn{}
	w.mixed, w.denied, w.executed, w.clockBack = map[string]bool{}, map[string]denial{}, 0, false
	w.planted, w.lostTrack = map[string]string{}, false
	w.log.Reset()
	w.prefix = p.Prefix
	w.model = model.New(time.Now().Add(w.ahead).UnixMicro())
	now := time.Now()
	w.outside(func() {
		w.do("FLUSHALL")
		w.sync(now)
		w.deploy(0)
	})
}

// deploy loads a build. The counts of policies begin at 0 again.
func (w *world) deploy(build int) {
	if w.loaded[0] != build {
		must(w.server.Load(w.texts[build]))
	}
	w.loaded[0] = build
	w.counts, w.model.Calls = w.policyCalls(), map[model.Side]model.Counts{}
	w.model.ClassCalls, w.model.BorrowCalls = map[model.Class]model.Counts{}, map[string]model.Borrows{}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// sync moves the server's clock to the time of the bubble. It reads all keys, so that expired ones go.
func (w *world) sync(bubble time.Time) {
	us := bubble.Add(w.ahead).UnixMicro()
	if us == w.now {
		return
	}
	w.now = us
	maps.DeleteFunc(w.once, func(_ string, until int64) bool { return until < us/1000 })
	w.server.SetTime(time.UnixMicro(us))
	w.model.SetTime(us)
	if keys, _ := w.do("KEYS", "*").([]any); len(keys) > 0 {
		w.do(append([]any{"EXISTS"}, keys...)...)
	}
}

// do runs a command of the harness, which must succeed.
func (w *world) do(args ...any) any {
	reply, err := w.server.Do(args...)
	must(err)
	return reply
}

// policyCalls returns the counts of calls that ratelimit_info reports: "policy_calls api" is {allowed,
// denied} for the policy api; with a canary, its percent and its two counts follow. The names of the
// others are "class_calls api batch" and "borrow_calls tenant".
func (w *world) policyCalls() map[string][]int64 {
	counts := map[string][]int64{}
	info := respmap.Of(w.do("FCALL_RO", "ratelimit_info", "0"))
	for _, field := range []string{"policy_calls", "class_calls", "borrow_calls"} {
		list, _ := info[field].([]any)
		for _, entry := range list {
			name, n := field, []int64(nil)
			for _, value := range entry.([]any) {
				if number, ok := value.(int64); ok {
					n = append(n, number)
				} else {
					name += " " + value.(string)
				}
			}
			counts[name] = n
		}
	}
	return counts
}

// modelCalls returns the counts of the model as policyCalls does.
func (w *world) modelCalls() map[string][]int64 {
	counts := map[string][]int64{}
	for name, n := range w.counts {
		counts[name] = make([]int64, len(n))
	}
	for side, n := range w.model.Calls {
		at := 0
		if side.Canary {
			at = 3
		}
		copy(counts["policy_calls "+side.Policy][at:], []int64{n.Allowed, n.Denied})
	}
	for class, n := range w.model.ClassCalls {
		copy(counts["class_calls "+class.Policy+" "+class.Class], []int64{n.Allowed, n.Denied})
	}
	for policy, n := range w.model.BorrowCalls {
		copy(counts["borrow_calls "+policy], []int64{n.Guaranteed, n.Borrowed, n.Denied})
	}
	return counts
}

// checkCounts compares the counts of policies with those of the model.
func (w *world) checkCounts() {
	want := w.modelCalls()
	for name, n := range w.policyCalls() {
		for i := range n {
			n[i] -= w.counts[name][i]
		}
		if !slices.Equal(n, want[name]) {
			w.fail("counts of policies", "%s: the library counted %v, the model %v", name, n, want[name])
		}
	}
}

// fail records the first broken invariant.
func (w *world) fail(rule, format string, args ...any) {
	if w.lostTrack || w.failed != nil {
		return
	}
	w.failed = &violation{rule: rule, text: strings.ReplaceAll(fmt.Sprintf(format, args...), tooLong, "{v}:kkk...")}
	w.note("VIOLATION %s: %s", rule, w.failed.text)
}

func (w *world) note(format string, args ...any) {
	w.log.WriteString(strings.ReplaceAll(fmt.Sprintf(format, args...), tooLong, "{v}:kkk...") + "\n")
}

// contents returns the value and the expiry of keys.
func (w *world) contents(keys []string) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		all[key] = w.content(key)
	}
	return all
}

func (w *world) content(key string) string {
	kind := w.do("TYPE", key).(string)
	read := map[string][]any{"string": {"GET", key}, "zset": {"ZRANGE", key, "0", "-1", "WITHSCORES"}, "hash": {"HGETALL", key}, "list": {"LRANGE", key, "0", "-1"}}[kind]
	if read == nil {
		return kind
	}
	return fmt.Sprintf("%s %q expires %v", kind, fmt.Sprint(w.do(read...)), w.do("PEXPIRETIME", key))
}

// changed returns the keys whose contents differ.
func changed(before, after map[string]string) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if before[key] != after[key] {
			keys = append(keys, fmt.Sprintf("%s: %s -> %s", key, before[key], after[key]))
		}
	}
	return keys
}
