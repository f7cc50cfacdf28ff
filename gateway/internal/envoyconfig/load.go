package envoyconfig

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
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
// and subfolders, with a notice for each, and names that begin with a dot. If a file is invalid, the error contains yamlfile.Mistakes. Two files with
// the same domain are an error, unless merge is true.
func Load(dir string, merge bool) (*Config, error) {
	names, others, err := files(dir)
	if err != nil {
		return nil, err
	}
	l := newLoader(merge, "file")
	for _, name := range others { // envoyproxy/ratelimit reads them
		l.note(filepath.Join(dir, name), "not read: rules are in files of the folder itself whose names end in .yaml or .yml")
	}
	var wrong []error
	for _, name := range names {
		content, err := yamlfile.ReadFile(filepath.Join(dir, name), maxBytes)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		l.begin(filepath.Join(dir, name))
		if root := l.source.Document(content, "domain:"); root != nil {
			l.domain(root)
		}
	}
	return l.finish(wrong)
}

// loader builds a Config from the nodes of files, or from those that [LoadResources] makes of
// resources. So both have the same checks.
type loader struct {
	config  *Config
	merge   bool
	unit    string           // what has one domain: "file" or "resource"
	source  *yamlfile.Source // the current file or resource
	sources []*yamlfile.Source
	limits  []limited // values of the field limit
}

func newLoader(merge bool, unit string) *loader {
	return &loader{config: &Config{domains: map[string]*node{}}, merge: merge, unit: unit}
}

// begin begins a file or a resource.
func (l *loader) begin(name string) {
	l.source = &yamlfile.Source{Name: name, MostBytes: maxBytes}
	l.sources = append(l.sources, l.source)
}

// finish returns the Config, or the mistakes in all sources with the errors in wrong.
func (l *loader) finish(wrong []error) (*Config, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	for _, source := range l.sources {
		if err := source.Err(); err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return l.config, nil
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

// domain adds the rules of the current file or resource. Mistakes are in l.source.
func (l *loader) domain(root *yaml.Node) {
	var f struct {
		Domain      *yaml.Node `yaml:"domain"`
		Descriptors *yaml.Node `yaml:"descriptors"`
	}
	l.source.Decode(root, "the "+l.unit, &f)
	domain := ""
	if f.Domain != nil && !yamlfile.Null(f.Domain) {
		domain = l.source.Text(f.Domain, "domain")
	}
	at := l.config.domains[domain]
	switch {
	case domain == "" && len(l.source.Mistakes) == 0:
		l.source.Wrong(root, "the field domain is missing or empty; write the domain that the proxy sends, as in domain: web")
	case at != nil && !l.merge:
		l.source.Wrong(f.Domain, "the domain %s is also in another %s; put its descriptors into one %[2]s", yamlfile.Shown(domain), l.unit)
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
		parent = &node{} // for the other mistakes in n
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
		l.notice(n, "detailed_metric and value_to_metric are ignored: a metric names the rule, not the values of requests")
	}
	if d.RateLimit != nil && !yamlfile.Null(d.RateLimit) {
		next.rule = l.rule(d.RateLimit, label)
		next.rule.Shadow, next.rule.Quota = d.ShadowMode, d.QuotaMode
		l.config.rules++
	}
	l.descriptors(next, d.Descriptors, label)
}

// notice adds a notice about a node.
func (l *loader) notice(n *yaml.Node, text string) {
	at := l.source.Name
	if n.Column > 0 { // the nodes of resources have no column
		at += fmt.Sprintf(":%d", n.Line)
	}
	l.note(at, text)
}

// note adds a notice about a place. If there are too many, it keeps only the first ones.
func (l *loader) note(at, text string) {
	const most = 20
	if notice := at + ": " + text; len(l.config.notices) < most && !slices.Contains(l.config.notices, notice) {
		l.config.notices = append(l.config.notices, notice)
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
			l.notice(n, "rate_limit has no requests_per_unit, which counts as 0: every request is denied")
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
