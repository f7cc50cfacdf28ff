package monitoring_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/examples/monitoring"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// scrape makes calls with different outcomes. It returns the metrics that Prometheus gets, with the
// values of each label.
func scrape(t *testing.T) map[string]map[string][]string {
	t.Helper()
	observer, metrics, stop, err := monitoring.New()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	server := embedded.Run(t, embedded.WithLibrary(functions.Source()))
	open := func(addr string, opts ...client.Option) *client.Client {
		limiter := redistest.Must[*client.Client](t)(client.Open("redis://"+addr, append(opts, client.WithTimeout(time.Minute), client.WithObserver(observer))...))
		t.Cleanup(func() { _ = limiter.Close() })
		return limiter
	}
	good, unreachable := open(server.Addr()), open("127.0.0.1:1", client.WithFallback(client.FailOpen)) // nothing listens on port 1
	for range 5 {
		_, _ = good.Allow(t.Context(), "k", "1/d")
		_, _ = unreachable.Allow(t.Context(), "k", "1/d")
	}
	_, _ = good.Allow(t.Context(), "k", "nonsense")
	_, _ = open(embedded.Run(t).Addr()).Allow(t.Context(), "k", "1/d") // a server without the library

	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	found := map[string]map[string][]string{}
	line := regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} \S+$`)
	for _, m := range line.FindAllStringSubmatch(w.Body.String(), -1) {
		if found[m[1]] == nil {
			found[m[1]] = map[string][]string{}
		}
		for _, label := range regexp.MustCompile(`([a-z_]+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			found[m[1]][label[1]] = append(found[m[1]][label[1]], label[2])
		}
	}
	return found
}

var (
	word    = regexp.MustCompile(`[a-z_]+`)
	matcher = regexp.MustCompile(`([a-z_]+)(=~|!=|=)"([^"]*)"`)
	span    = regexp.MustCompile(`\[[^\]]*\]`)
)

// inPromQL lists the PromQL keywords in the expressions, and the label that Prometheus adds.
var inPromQL = []string{"sum", "count", "by", "rate", "increase", "histogram_quantile", "job"}

// wrongIn returns the names and label matchers in expr, a PromQL expression, that match no metric or
// label in found. It also returns the metrics that expr uses. found is in the format of scrape.
func wrongIn(expr string, found map[string]map[string][]string) (wrong, used []string) {
	values := map[string][]string{} // by label, for the metrics in expr
	words := word.FindAllString(matcher.ReplaceAllString(span.ReplaceAllString(expr, ""), "$1"), -1)
	for _, name := range words {
		if labels, ok := found[name]; ok {
			used = append(used, name)
			maps.Copy(values, labels)
		}
	}
	for _, name := range words {
		if _, label := values[name]; found[name] == nil && !label && !slices.Contains(inPromQL, name) {
			wrong = append(wrong, name)
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		if m[1] != "job" && m[2] != "!=" && !slices.ContainsFunc(values[m[1]], regexp.MustCompile("^(?:"+m[3]+")$").MatchString) {
			wrong = append(wrong, m[0])
		}
	}
	return wrong, used
}

// fileMetrics adds to found the metrics in a file. The files are those with which the tests of
// `ratelimit dashboard` and of the gateway compare what these programs serve.
func fileMetrics(t *testing.T, name string, found map[string]map[string][]string) {
	t.Helper()
	file := redistest.Must[*os.File](t)(os.Open(name))
	defer func() { _ = file.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, family := range families {
		found[name] = map[string][]string{}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				found[name][label.GetName()] = append(found[name][label.GetName()], label.GetValue())
			}
		}
	}
}

func TestDashboardAndAlerts(t *testing.T) {
	found := scrape(t)
	fileMetrics(t, "../../cmd/ratelimit/internal/dashboard/testdata/metrics.txt", found)
	fileMetrics(t, "../../gateway/internal/metrics/testdata/metrics.txt", found)
	if servers := found["ratelimit_server_up"]["server"]; !slices.Contains(servers, `\"\x0a\xff`) {
		t.Errorf("the servers are %q", servers)
	}
	var dashboard struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	var alerts struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For string
				Labels           map[string]string
				Annotations      map[string]string
			}
		}
	}
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.Title == "" {
		t.Fatalf("dashboard.json: %v, title %q", err, dashboard.Title)
	}
	if text, err = os.ReadFile("alerts.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Load(text, &alerts, yaml.WithKnownFields()); err != nil {
		t.Fatalf("alerts.yaml: %v", err)
	}

	exprs := map[string]string{}
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			exprs[fmt.Sprintf("panel %q, target %d", panel.Title, i+1)] = target.Expr
		}
	}
	panels := len(exprs)
	for _, group := range alerts.Groups {
		for _, rule := range group.Rules {
			exprs["alert "+rule.Alert] = rule.Expr
			if rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s has no summary or no severity", rule.Alert)
			}
			if _, err := time.ParseDuration(rule.For); rule.For != "" && err != nil {
				t.Errorf("alert %s: %v", rule.Alert, err)
			}
		}
	}
	if panels == 0 || len(exprs) == panels {
		t.Fatalf("%d expressions in panels, %d in alerts", panels, len(exprs)-panels)
	}
	all := map[string]bool{}
	for where, expr := range exprs {
		wrong, used := wrongIn(expr, found)
		if len(wrong) > 0 || len(used) == 0 {
			t.Errorf("%s asks for %s, which no program has: %s", where, strings.Join(wrong, ", "), expr)
		}
		for _, name := range used {
			all[name] = true
		}
	}
	want := []string{"db_client_operation_duration_seconds_bucket", "db_client_operation_duration_seconds_count", "ratelimit_client_breaker_open", "ratelimit_client_decisions_total",
		"ratelimit_gateway_breaker_open", "ratelimit_gateway_requests_total", "ratelimit_gateway_xds_answers_total", "ratelimit_gateway_xds_connected", "ratelimit_policy_calls_total", "ratelimit_server_up"}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("the metrics that are used are %q, want %q", got, want)
	}
}

// TestScrapeConfiguration checks that the scrape configuration has no unknown fields, that its rule
// files exist, and that it names a file with the dashboard's token.
func TestScrapeConfiguration(t *testing.T) {
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			Authorization struct {
				CredentialsFile string `yaml:"credentials_file"`
			}
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	text := redistest.Must[[]byte](t)(os.ReadFile("prometheus.yaml"))
	redistest.Require(t, yaml.Load(text, &config, yaml.WithKnownFields()))
	for _, file := range config.RuleFiles {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	if jobs := config.ScrapeConfigs; len(jobs) != 3 || jobs[2].Authorization.CredentialsFile == "" || len(jobs[2].StaticConfigs[0].Targets) != 1 {
		t.Errorf("%+v", config)
	}
}

// TestWrongInExpression checks that wrongIn detects names that the metrics do not have.
func TestWrongInExpression(t *testing.T) {
	found := map[string]map[string][]string{"calls_total": {"outcome": {"denied"}}}
	for expr, want := range map[string]string{
		`sum by (job) (rate(calls_total{job=~"$job", outcome="denied"}[5m]))`: "",
		`rate(call_total[5m])`:                  "call_total",
		`rate(calls_total{source="a"}[5m])`:     `source, source="a"`,
		`rate(calls_total{outcome=~"n.+"}[5m])`: `outcome=~"n.+"`,
		`sum by (node) (calls_total)`:           "node",
	} {
		if wrong, _ := wrongIn(expr, found); strings.Join(wrong, ", ") != want {
			t.Errorf("%s: %q, want %q", expr, wrong, want)
		}
	}
}
