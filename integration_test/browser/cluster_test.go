package browser

import (
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var picture = flag.String("picture", "", "write docs/dashboard.png to this `file`, after five minutes of traffic")

const clusterPolicies = `policies:
  api:
    description: Calls of one customer
    limit: 10/s burst=20, 50000/d
    track: true
  search:
    description: A stricter limit on trial, for a part of the customers
    limit: 120/m
    canary: {limit: 60/m, share: 20%}
  login:
    description: Password attempts from one address
    limit: sliding_log 5/m, 20/h
  export:
    description: On trial
    limit: fixed_window 100/d align=clock
    shadow: true
`

// A source makes calls for one key. Its rate rises and falls, with the given mean per second.
type source struct {
	limit     client.Limit
	key, name string // name is the usage key, if there is one
	mean      float64
	due       float64
}

func sources() (list []*source) {
	for i, customer := range []string{"acme", "globex", "initech", "umbrella", "hooli", "wonka"} {
		mean := 12 / (1 + 0.7*float64(i))
		list = append(list,
			&source{limit: "@api", key: "api:{" + customer + "}", name: "usage:{" + customer + "}", mean: mean},
			&source{limit: "@search", key: "search:{" + customer + "}", mean: mean / 5},
			&source{limit: "@export", key: "export:{" + customer + "}", mean: mean / 20})
	}
	for i := range 8 {
		list = append(list, &source{limit: "@login", key: fmt.Sprintf("login:203.0.113.%d", 7+31*i), mean: 0.2 / float64(1+3*i)})
	}
	return list
}

// calls makes the calls of one tenth of a second, which ends at the given time since the start.
func (s *source) calls(t *testing.T, c *client.Client, since time.Duration) {
	s.due += s.mean / 10 * (1 + 0.6*math.Sin(since.Seconds()/12+s.mean))
	for ; s.due >= 1; s.due-- {
		req := client.Request{Keys: []string{s.key}, Limits: []client.Limit{s.limit}, UsageKey: s.name}
		redistest.Must[client.Result](t)(c.Take(t.Context(), req))
	}
}

// TestCluster checks that the page shows the policies, the usage keys and the servers of a cluster,
// and that no row is cut.
func TestCluster(t *testing.T) {
	const primaries = 3
	var nodes []*redis.Client
	var addrs []string
	for i := range primaries {
		args := []string{"--cluster-enabled", "yes"}
		if *picture != "" {
			args = append(args, "--port", fmt.Sprint(7001+i))
		}
		addr := redistest.Run(t, args...).Addr
		node := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = node.Close() })
		nodes, addrs = append(nodes, node), append(addrs, addr)
	}
	redistest.Join(t, nodes, primaries)
	url := "redis://" + addrs[0]
	file := t.TempDir() + "/policies.yaml"
	redistest.Require(t, os.WriteFile(file, []byte(clusterPolicies), 0o600))
	if out, err := exec.Command(redistest.Must[string](t)(program()), "deploy", "--redis", url, "--policies", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	length := 4 * time.Second
	if *picture != "" {
		length = 5*time.Minute + 10*time.Second // the chart has 150 samples, one every two seconds
	}
	s := &site{t: t, stays: length}
	s.serve(url, "--policies", file)
	p := s.open(1060, 900, "light")

	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs[:1], ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	limiter := redistest.Must[*client.Client](t)(client.New(rdb, client.WithTimeout(longest)))
	all := sources()
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	for began, since := time.Now(), time.Duration(0); since < length; since = (<-tick.C).Sub(began) {
		for _, one := range all {
			one.calls(t, limiter, since)
		}
	}
	p.do(chromedp.SetValue(chromedp.CSS(`#limiter`), "api:{acme}"), chromedp.SetValue(chromedp.CSS(`#limit`), "@api"), chromedp.Click(chromedp.CSS(`#ask button`)))
	p.until(`document.querySelector('#answer meter') !== null`)
	p.until(`document.querySelectorAll('#nodes tr').length === 3 && document.querySelectorAll('#policies tr').length === 5 && document.querySelectorAll('#rows tr').length === 6`)
	for _, box := range []string{"#rows", "#policies", "#nodes"} {
		if got := p.text(`(box => box.scrollWidth > box.clientWidth ? 'cut' : 'whole')(document.querySelector('` + box + `').closest('.scroll'))`); got != "whole" {
			t.Errorf("the rows of %s are %s", box, got)
		}
	}
	if got := p.text(`document.querySelector('#faults').innerText`); got != "" {
		t.Errorf("the page shows a fault: %s", got)
	}
	if *picture != "" {
		redistest.Require(t, os.WriteFile(*picture, run(p, chromedp.FullScreenshot(100)), 0o666))
	}
}
