package dashboard

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/policycalls"
	"github.com/ratelimit-functions/ratelimit/internal/printable"
)

// metrics serves the calls for each policy in Prometheus's text format. Each server has its own
// series, because its counts start at 0 whenever it loads the library. A sum over all servers would
// fall if one of them started again or did not reply. Prometheus would count the later rise as new
// calls.
func (d *Dashboard) metrics(w http.ResponseWriter, r *http.Request) {
	rdb, err := d.connection(r.Context())
	if err != nil {
		http.Error(w, d.from.Explain(err), http.StatusServiceUnavailable)
		return
	}
	nodes, err := policycalls.Nodes(r.Context(), rdb, d.from.Timeout)
	if len(nodes) == 0 {
		http.Error(w, d.from.Faults(err), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(d.metricsText(nodes)))
}

func (d *Dashboard) metricsText(nodes []policycalls.Node) string {
	var up, calls, classes, pools strings.Builder
	up.WriteString("# HELP ratelimit_server_up 1 if the server replied to ratelimit_info, else 0.\n# TYPE ratelimit_server_up gauge\n")
	calls.WriteString("# HELP ratelimit_policy_calls_total Takes, and leases to acquire, that named the policy, since the server loaded its library. " +
		"A shadow policy counts what it would have decided.\n# TYPE ratelimit_policy_calls_total counter\n")
	classes.WriteString("# HELP ratelimit_class_calls_total The same calls by class of the policy, its canary included.\n# TYPE ratelimit_class_calls_total counter\n")
	pools.WriteString("# HELP ratelimit_pool_calls_total Allowed calls of a policy with a guarantee and a pool, by who paid: the guarantee, or the pool alone.\n" +
		"# TYPE ratelimit_pool_calls_total counter\n")
	for _, node := range nodes {
		server, replied := label(d.from.NodeName(node.Addr)), 1
		if node.Err != nil {
			replied = 0
		}
		fmt.Fprintf(&up, "ratelimit_server_up{server=%s} %d\n", server, replied)
		for _, name := range node.Info.Policies {
			of, counted := node.Info.PolicyCalls[name]
			if !counted {
				continue
			}
			series := func(variant string, allowed, denied int64) {
				labels := fmt.Sprintf(`server=%s,policy=%s,variant="%s"`, server, label(name), variant)
				fmt.Fprintf(&calls, "ratelimit_policy_calls_total{%s,decision=\"allowed\"} %d\n", labels, allowed)
				fmt.Fprintf(&calls, "ratelimit_policy_calls_total{%s,decision=\"denied\"} %d\n", labels, denied)
			}
			series("rest", of.Allowed, of.Denied)
			if of.CanaryShare > 0 {
				series("canary", of.CanaryAllowed, of.CanaryDenied)
			}
			own := fmt.Sprintf("server=%s,policy=%s", server, label(name))
			for _, class := range slices.Sorted(maps.Keys(of.Classes)) {
				fmt.Fprintf(&classes, "ratelimit_class_calls_total{%s,class=%s,decision=\"allowed\"} %d\n", own, label(class), of.Classes[class].Allowed)
				fmt.Fprintf(&classes, "ratelimit_class_calls_total{%s,class=%s,decision=\"denied\"} %d\n", own, label(class), of.Classes[class].Denied)
			}
			if of.Pool != nil {
				fmt.Fprintf(&pools, "ratelimit_pool_calls_total{%s,paid=\"guarantee\"} %d\n", own, of.Pool.Guaranteed)
				fmt.Fprintf(&pools, "ratelimit_pool_calls_total{%s,paid=\"pool\"} %d\n", own, of.Pool.Borrowed)
			}
		}
	}
	return up.String() + calls.String() + classes.String() + pools.String()
}

func label(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(printable.Line(value)) + `"`
}
