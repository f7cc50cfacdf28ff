package envoyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v4"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// maxBytes is the size limit of a file. A file with 100,000 rules is about a fifth of this size.
const maxBytes = 64 << 20

// Load reads the files in the folder dir. It ignores files whose names do not end in .yaml or .yml,
// or begin with a dot. If a file is invalid, the error contains yamlfile.Mistakes. Two files with
// the same domain are an error, unless merge is true.
func Load(dir string, merge bool) (*Config, error) {
	names, err := files(dir)
	if err != nil {
		return nil, err
	}
	l := loader{config: &Config{domains: map[string]*node{}}, merge: merge}
	var wrong []error
	var sources []*yamlfile.Source
	for _, name := range names {
		content, err := yamlfile.ReadFile(filepath.Join(dir, name), maxBytes)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		l.file(filepath.Join(dir, name), content)
		sources = append(sources, l.source)
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	for _, source := range sources {
		if err := source.Err(); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return l.config, nil
}

func files(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w; name the folder that has the .yaml files", err)
	}
	var names []string
	for _, entry := range list {
		if extension := filepath.Ext(entry.Name()); !strings.HasPrefix(entry.Name(), ".") && (extension == ".yaml" || extension == ".yml") {
			names = append(names, entry.Name())
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s has no file that ends in .yaml or .yml; put one there, or name another folder", dir)
	}
	return names, nil
}

type loader struct {
	config *Config
	merge  bool
	source *yamlfile.Source // the current file
	limits []limited        // values of the field limit
}

type limited struct {
	source *yamlfile.Source
	node   *yaml.Node
	limit  string
}

// check makes the library parse each limit, and records those that it rejects. Whether a server has
// a policy is not known here.
func (l *loader) check() error {
	seen := map[string]bool{}
	for _, g := range l.limits {
		if strings.HasPrefix(g.limit, "@") && !seen[g.limit] {
			l.config.policies = append(l.config.policies, client.Limit(g.limit))
		}
		seen[g.limit] = true
	}
	if len(seen) == 0 {
		return nil
	}
	wrong, err := policies.LimitErrors(slices.Collect(maps.Keys(seen)))
	if err != nil {
		return err
	}
	for _, g := range l.limits {
		if err := wrong[g.limit]; err != nil {
			g.source.Wrong(g.node, "limit: %v", err)
		}
	}
	return nil
}

// file adds the rules of a file. Mistakes are in l.source.
func (l *loader) file(name string, content []byte) {
	l.source = &yamlfile.Source{Name: name, MostBytes: maxBytes}
	root := l.source.Document(content, "domain:")
	if root == nil {
		return
	}
	var f struct {
		Domain      *yaml.Node `yaml:"domain"`
		Descriptors *yaml.Node `yaml:"descriptors"`
	}
	l.source.Decode(root, "the file", &f)
	domain := ""
	if f.Domain != nil && !yamlfile.Null(f.Domain) {
		domain = l.source.Text(f.Domain, "domain")
	}
	at := l.config.domains[domain]
	switch {
	case domain == "" && len(l.source.Mistakes) == 0:
		l.source.Wrong(root, "the field domain is missing or empty; write the domain that the proxy sends, as in domain: web")
	case at != nil && !l.merge:
		l.source.Wrong(f.Domain, "the domain %s is also in another file; put its descriptors into one file", yamlfile.Shown(domain))
	case at == nil:
		at = &node{}
		l.config.domains[domain] = at
	}
	if at != nil {
		l.descriptors(at, f.Descriptors, domain)
	}
}

// descriptors adds a list of descriptors as children of parent. label is the label of parent in the
// metrics.
func (l *loader) descriptors(parent *node, list *yaml.Node, label string) {
	if list == nil || yamlfile.Null(list) {
		return
	}
	for _, item := range l.source.Items(list, "descriptors") {
		l.descriptor(parent, item, label)
	}
}

func (l *loader) descriptor(parent *node, n *yaml.Node, label string) {
	var d struct {
		Key            string     `yaml:"key"`
		Value          *yaml.Node `yaml:"value"`
		RateLimit      *yaml.Node `yaml:"rate_limit"`
		Descriptors    *yaml.Node `yaml:"descriptors"`
		ShadowMode     bool       `yaml:"shadow_mode"`
		QuotaMode      bool       `yaml:"quota_mode"`
		DetailedMetric bool       `yaml:"detailed_metric"`
		ValueToMetric  bool       `yaml:"value_to_metric"`
		ShareThreshold bool       `yaml:"share_threshold"`
	}
	before := len(l.source.Mistakes)
	given := l.source.Decode(n, "a descriptor", &d)
	if d.Key == "" {
		if len(l.source.Mistakes) == before {
			l.source.Wrong(n, "a descriptor has no key; write key: and the name of an entry")
		}
		return
	}
	value := ""
	if d.Value != nil && !yamlfile.Null(d.Value) {
		value = l.source.Text(d.Value, "value")
	}
	label += "." + d.Key
	if value != "" {
		label += "_" + value
	}
	next := &node{shared: d.ShareThreshold}
	last := cmp.Or(value, d.Key)
	if parent.exact[pair{d.Key, value}] != nil {
		l.source.Wrong(n, "the descriptor %s is there twice; remove one of them", yamlfile.Shown(label))
		return
	}
	if parent.exact == nil {
		parent.exact = map[pair]*node{}
	}
	parent.exact[pair{d.Key, value}] = next
	if prefix, ok := strings.CutSuffix(last, "*"); ok {
		parent.wildcards = append(parent.wildcards, wildcard{d.Key, prefix, value == "", last, next})
	} else if d.ShareThreshold {
		l.source.Wrong(given["share_threshold"].Key, "share_threshold is for a value that ends with *, and the value is %s", yamlfile.Shown(value))
	}
	if d.DetailedMetric || d.ValueToMetric {
		l.notice("%s:%d: detailed_metric and value_to_metric are ignored: a metric names the rule, not the values of requests", l.source.Name, n.Line)
	}
	if d.RateLimit != nil && !yamlfile.Null(d.RateLimit) {
		next.rule = l.rule(d.RateLimit, label)
		next.rule.Shadow, next.rule.Quota = d.ShadowMode, d.QuotaMode
		l.config.rules++
	}
	l.descriptors(next, d.Descriptors, label)
}

// notice adds a notice. If there are too many, it keeps only the first ones.
func (l *loader) notice(format string, args ...any) {
	const most = 20
	if len(l.config.notices) < most {
		l.config.notices = append(l.config.notices, fmt.Sprintf(format, args...))
	}
}

// rule decodes rate_limit. If rate_limit is invalid, the rule is incomplete, but Load fails.
func (l *loader) rule(n *yaml.Node, label string) *Rule {
	var r struct {
		Limit     *yaml.Node   `yaml:"limit"`
		Unit      string       `yaml:"unit"`
		Count     int64        `yaml:"requests_per_unit"`
		Unlimited bool         `yaml:"unlimited"`
		Name      *yaml.Node   `yaml:"name"`
		Replaces  []*yaml.Node `yaml:"replaces"`
	}
	before := len(l.source.Mistakes)
	given := l.source.Decode(n, "rate_limit", &r)
	rule := &Rule{Label: label, Unlimited: r.Unlimited}
	if r.Name != nil && !yamlfile.Null(r.Name) {
		rule.Name = l.source.Text(r.Name, "name")
	}
	for _, item := range r.Replaces {
		rule.Replaces = append(rule.Replaces, l.replaced(item, rule.Name))
	}
	if len(l.source.Mistakes) > before {
		return rule
	}
	unit := rls.RateLimitResponse_RateLimit_Unit(rls.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(r.Unit)])
	_, counted := given["requests_per_unit"]
	switch {
	case r.Limit != nil && (r.Unit != "" || counted || r.Unlimited):
		l.source.Wrong(given["limit"].Key, "rate_limit has limit and one of unit, requests_per_unit and unlimited; keep limit alone")
	case r.Limit != nil:
		rule.Limit = client.Limit(l.source.Text(r.Limit, "limit"))
		if len(l.source.Mistakes) == before {
			l.limits = append(l.limits, limited{l.source, r.Limit, string(rule.Limit)})
		}
	case r.Unlimited && unit != 0:
		l.source.Wrong(given["unit"].Key, "rate_limit has unlimited and a unit; keep one of them")
	case r.Unlimited:
	case unit == 0:
		at := n
		if e, ok := given["unit"]; ok {
			at = e.Value
		}
		l.source.Wrong(at, "the unit is %s; write second, minute, hour, day, week, month or year", yamlfile.Shown(r.Unit))
	case r.Count > math.MaxUint32:
		l.source.Wrong(given["requests_per_unit"].Value, "requests_per_unit is %d; the most is %d", r.Count, uint32(math.MaxUint32))
	default:
		if !counted {
			l.notice("%s:%d: rate_limit has no requests_per_unit, which counts as 0: every request is denied", l.source.Name, n.Line)
		}
		rule.Count, rule.Unit, rule.Limit = uint32(r.Count), unit, Window(uint32(r.Count), unit, 1)
	}
	return rule
}

func (l *loader) replaced(n *yaml.Node, own string) string {
	var r struct {
		Name *yaml.Node `yaml:"name"`
	}
	l.source.Decode(n, "an item of replaces", &r)
	if r.Name == nil || yamlfile.Null(r.Name) || r.Name.Value == "" {
		l.source.Wrong(n, "an item of replaces is empty; write - name: and the name of another rate_limit")
		return ""
	}
	if r.Name.Value == own {
		l.source.Wrong(r.Name, "the rate_limit %s replaces itself; name another", yamlfile.Shown(own))
	}
	return r.Name.Value
}

// Window returns the limit for a rule with a unit: a window aligned with the clock. A count of 0
// denies every request. If multiplier is above 1, a week counts as 7 days, a month as 30 days and a
// year as 365 days.
func Window(count uint32, unit rls.RateLimitResponse_RateLimit_Unit, multiplier uint32) client.Limit {
	period := units[unit]
	days := map[string]uint64{"w": 7, "mo": 30, "y": 365}[period]
	switch {
	case count == 0:
		return "0/s"
	case multiplier > 1 && days > 0:
		period = fmt.Sprintf("%dd", days*uint64(multiplier))
	case multiplier > 1:
		period = fmt.Sprintf("%d%s", multiplier, period)
	}
	return client.Limit(fmt.Sprintf("fixed_window %d/%s align=clock", count, period))
}
