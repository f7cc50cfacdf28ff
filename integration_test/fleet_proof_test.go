package integration_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/internal/redisurl"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// TestFleetProof repeats rounds in which two processes deploy two namespaces to the same servers, and
// die, are suspended until their leases have expired, or lose what they wrote. Primaries restart with
// old data, lose their libraries, or are replaced by replicas that lack the last writes. A client
// with an old build heals during this. After each round, a watch makes one round. Then
//   - all primaries have the same text,
//   - it has every deployment that reported success, or a later one,
//   - it has no value that was reported as undone,
//   - the steps of all deployers, also of those that died, follow the rules of PROTOCOL.md.
//
// If there is only one primary, it may lose a deployment by a fault of its own.
func TestFleetProof(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		if b.Cluster {
			prove(t, proofOfCluster(t, b))
		} else {
			prove(t, proofOfServer(t, b))
		}
	})
}

// TestFleetProofBehindSentinel is the proof for a primary that a Sentinel names.
func TestFleetProofBehindSentinel(t *testing.T) {
	t.Parallel()
	prove(t, proofBehindSentinel(t))
}

// rounds returns the number of rounds of a proof. Without RATELIMIT_SOAK, 5 to 9 deployers are
// killed in them, and with it about 30 to 40.
func rounds() int {
	if os.Getenv("RATELIMIT_SOAK") != "" {
		return 48
	}
	return 8
}

// proof is the state of a proof.
type proof struct {
	site
	ctx   context.Context
	t     *testing.T
	alone bool   // whether there is one primary
	trace string // the file that has the steps of all calls
	old   functions.Build
	watch *loader.Loader
	limit int

	mu   sync.Mutex
	gone []string // how the leases of deployers that died or are suspended identify them

	good       map[string]protocol.Part // by namespace: the highest part that was reported as successful
	undone     map[string]bool          // the values that were reported as undone
	read       int                      // the number of steps in the trace that good and undone reflect
	outcomes   map[string]int
	kills      int // counted by wait
	late       int // writes of suspended deployers that a fence refused
	heals      atomic.Int64
	namespaces []string
}

func prove(t *testing.T, s site) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	dir := must[string](t)(os.MkdirTemp("", "proof-")) // without spaces, unlike t.TempDir
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	p := &proof{site: s, ctx: ctx, t: t, trace: filepath.Join(dir, "trace"), old: newBuild(t), outcomes: map[string]int{}, good: map[string]protocol.Part{}, undone: map[string]bool{}, namespaces: []string{"payments", "search"}}
	p.alone = len(must[[]*redis.Client](t)(s.primaries())) == 1
	steps := loader.Config{Steps: recordTo(p.trace)}
	p.watch = newLoader(t, p.open(), steps)
	must[loader.Report](t)(newLoader(t, p.open(), steps).Deploy(ctx, policyBuild(t, "owner"), loader.Options{}))
	stop := p.startClient(steps)
	defer stop()
	p.settle()
	for i := range rounds() {
		p.round(i)
		if t.Failed() {
			break
		}
	}
	stop()
	all := readSteps(t, p.trace)
	if err := protocol.Check(all); err != nil {
		t.Error(err)
		for _, s := range all {
			if strings.Contains(err.Error(), s.Call) {
				t.Logf("%+v", s)
			}
		}
	}
	t.Logf("%d rounds: %d deployers were killed, the others %v; %d late writes were refused; the client healed %d times; %d steps follow the rules", rounds(), p.kills, p.outcomes, p.late, p.heals.Load(), len(all))
	if p.kills < rounds()/2 || p.outcomes[protocol.Succeeded] < rounds()/8 || p.late == 0 || !p.alone && p.outcomes[protocol.Undone] == 0 {
		t.Error("the proof did not try what it should")
	}
}

func (p *proof) open() redis.UniversalClient {
	servers := must[redisurl.Servers](p.t)(redisurl.Parse(p.url))
	servers.Options.ContextTimeoutEnabled = true
	rdb := servers.Open()
	p.t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// startClient starts a client that has the old build, and heals with it. It returns a function that
// stops the client.
func (p *proof) startClient(steps loader.Config) (stop func()) {
	ctx, cancel := context.WithCancel(p.ctx)
	heal := loader.Healer(p.old, steps)
	c := newLimiter(p.t, p.open(), client.WithHealer(func(ctx context.Context, server redis.UniversalClient) error {
		p.heals.Add(1)
		return heal(ctx, server)
	}))
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_, _ = c.Allow(ctx, fmt.Sprintf("healed:%d", i%30), "1000/s")
			}
		}
	})
	return func() {
		cancel()
		group.Wait()
		_ = c.Close()
	}
}

func (p *proof) round(i int) {
	random := rand.New(rand.NewPCG(32, uint64(i)))
	fault := p.faults[(i+i/4)%len(p.faults)]
	commands := 30 // of a deployment under its leases
	if p.alone {
		commands = 9
	}
	plan := func(what string) *deployer {
		p.limit++
		when := map[string]int{"dies": 1 + random.IntN(commands), "stops": 1 + random.IntN(3), "loses": 1 + random.IntN(3), "ends": 1}[what]
		if p.alone && what != "dies" {
			when = 1
		}
		return startDeployer(p.ctx, p.t, p.url, p.trace, p.namespaces[p.limit%2], fmt.Sprintf("%d/m", p.limit), what, when)
	}
	require(p.t, fault.prepare(i))
	var group sync.WaitGroup
	done := make(chan struct{})
	group.Go(func() { p.expireGone(done) })
	struck := make(chan error, 1)
	if !p.alone {
		go func() { struck <- fault.strike(i) }()
	}

	first, second := []string{"dies", "stops", "dies", "loses"}[i%4], []string{"dies", "ends", "ends", "dies"}[i%4]
	if i%8 == 5 {
		second = "dies"
	}
	a := plan(first)
	var both sync.WaitGroup
	if first == "stops" { // the other one starts when the first one has stopped
		p.wait(a)
	} else {
		both.Go(func() { p.wait(a) })
	}
	if first != "loses" || !p.alone { // if the only server loses the libraries while another deployer waits, there is nothing to go back to
		p.wait(plan(second))
	}
	if both.Wait(); a.stopped {
		require(p.t, a.resume())
		p.wait(a)
	}
	if p.alone {
		require(p.t, fault.strike(i))
	} else {
		require(p.t, <-struck)
	}
	close(done)
	group.Wait()

	calls := p.account()
	p.settle()
	p.compare(i, fault.name, p.alone && (fault.name != noFault.name || first == "loses" && calls[protocol.Undone] == 0))
}

// wait waits until a deployer has ended or stopped.
func (p *proof) wait(d *deployer) {
	p.t.Helper()
	if err := d.wait(); err != nil {
		p.t.Logf("a deployer failed: %v", err)
	}
	if d.stopped || d.hasDied() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.gone = append(p.gone, fmt.Sprintf("process %d\\041", d.cmd.Process.Pid))
		if !d.stopped {
			p.kills++
		}
	}
}

// expireGone makes the leases of deployers that are gone expire, until done is closed.
func (p *proof) expireGone(done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		gone := slices.Clone(p.gone)
		p.mu.Unlock()
		if len(gone) > 0 {
			p.expire(func(code string) bool {
				return slices.ContainsFunc(gone, func(who string) bool { return strings.Contains(code, who) })
			})
		}
	}
}

var untilMS = regexp.MustCompile(`local UNTIL_MS = \d+`)

// expire changes the time at which leases end, as if this time had passed.
func (p *proof) expire(which func(code string) bool) {
	for _, n := range p.nodes {
		list, _ := n.FunctionList(p.ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit_lease_*", WithCode: true}).Result()
		for _, library := range list { // a server that has failed, or a replica, refuses
			if which(library.Code) {
				_ = n.FunctionLoadReplace(p.ctx, untilMS.ReplaceAllString(library.Code, "local UNTIL_MS = 1")).Err()
			}
		}
	}
}

// account reads what the deployers of a round reported, and returns how many reported each outcome.
func (p *proof) account() map[string]int {
	p.t.Helper()
	steps := readSteps(p.t, p.trace)
	number, undo, outcomes, over := map[string]protocol.Step{}, map[string]protocol.Step{}, map[string]int{}, map[string]bool{}
	for _, s := range steps[p.read:] {
		switch s.Op {
		case protocol.TakeOver:
			over[s.Name] = true
		case protocol.Refused:
			if over[s.Call] {
				p.late++
			}
		case protocol.Number:
			if s.Number > 0 {
				number[s.Call] = s
			}
		case protocol.Undo:
			undo[s.Call] = s
		case protocol.End:
			made, deploys := number[s.Call]
			if !deploys {
				continue
			}
			outcomes[s.Outcome]++
			p.outcomes[s.Outcome]++
			mine := made.Mine
			if len(mine) == 0 {
				mine = slices.Collect(maps.Keys(made.Text))
			}
			for _, namespace := range mine {
				part := made.Text[namespace]
				if s.Outcome == protocol.Succeeded {
					p.succeeded(namespace, part)
				} else if s.Outcome == protocol.Undone {
					p.undone[part.Value] = true
					if back := undo[s.Call].Text[namespace]; back.Value == p.good[namespace].Value {
						p.succeeded(namespace, back)
					}
				}
			}
		}
	}
	p.read = len(steps)
	return outcomes
}

func (p *proof) succeeded(namespace string, part protocol.Part) {
	if part.Number >= p.good[namespace].Number {
		p.good[namespace] = part
	}
	delete(p.undone, part.Value)
}

// settle lets a watch make a round. It is repeated only if it reports an error.
func (p *proof) settle() {
	p.t.Helper()
	waitFor(p.ctx, p.t, "a round of the watch", func() error {
		p.expire(func(string) bool { return true })
		return p.watch.Repair(p.ctx, p.old)
	})
	p.account()
}

// compare checks what all primaries have. If forgives is true, the only primary has had a fault, and
// may have lost what was reported.
func (p *proof) compare(i int, name string, forgives bool) {
	p.t.Helper()
	var common map[string]protocol.Part
	for n, found := range p.texts() {
		if common == nil {
			common = found
		}
		if !maps.Equal(found, common) {
			p.t.Errorf("round %d, %s: after a round of the watch, %s has %v, and another has %v", i, name, n, found, common)
		}
	}
	if forgives {
		p.good = common
		for _, part := range common {
			delete(p.undone, part.Value)
		}
	}
	for namespace, good := range p.good {
		if part := common[namespace]; part.Number < good.Number || part.Number == good.Number && part != good {
			p.t.Errorf("round %d, %s: the servers have %+v of %q; a deployment of %+v reported success", i, name, part, namespace, good)
		}
	}
	for namespace, part := range common {
		if p.undone[part.Value] {
			p.t.Errorf("round %d, %s: the servers have %+v of %q, which was reported as undone", i, name, part, namespace)
		}
	}
}

// texts returns the parts of the text on each primary, by address.
func (p *proof) texts() map[string]map[string]protocol.Part {
	p.t.Helper()
	all := map[string]map[string]protocol.Part{}
	for _, n := range must[[]*redis.Client](p.t)(p.primaries()) {
		list := must[[]redis.Library](p.t)(n.FunctionList(p.ctx, redis.FunctionListQuery{LibraryNamePattern: functions.Name, WithCode: true}).Result())
		if len(list) != 1 {
			p.t.Fatalf("%s has %d libraries", n.Options().Addr, len(list))
		}
		all[n.Options().Addr] = protocol.Of(must[text.Text](p.t)(text.Parse(list[0].Code)))
	}
	return all
}
