package envoyconfig

import (
	"cmp"
	"fmt"
	"strconv"

	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ratelimit-functions/ratelimit/internal/yamlfile"
)

// LoadResources returns the rules in resources of xDS. It has the same checks as [Load]: a resource
// counts as a file, and its fields as those with the same names. An error names the resource, and
// the descriptor by its position. A field that this version does not know is an error, because a rule
// without it could mean something else.
func LoadResources(list []*rlsconf.RateLimitConfig, merge bool) (*Config, error) {
	l := newLoader(merge, "resource")
	for _, config := range list {
		l.begin("resource " + yamlfile.Shown(cmp.Or(config.GetName(), config.GetDomain())))
		r := resource{source: l.source}
		root := r.mapping(config, entry("domain", text(config.GetDomain())))
		root.Content = append(root.Content, r.descriptors(config.GetDescriptors())...)
		if len(l.source.Mistakes) == 0 {
			l.domain(root)
		}
	}
	config, err := l.finish(nil)
	for i, source := range l.sources {
		for m := range source.Mistakes {
			mistake := &source.Mistakes[m]
			at, _ := position("", list[i].GetDescriptors(), mistake.Line)
			mistake.File, mistake.Line, mistake.Column = source.Name+at, 0, 0
		}
	}
	return config, err
}

// resource makes the nodes of one resource. The line of a node is the number of its descriptor,
// counted from 1 in the order of the resource, or 0 outside of all descriptors.
type resource struct {
	source *yamlfile.Source
	line   int
}

// mapping returns a mapping with the entries that are not nil.
func (r *resource) mapping(message interface{ ProtoReflect() protoreflect.Message }, entries ...[]*yaml.Node) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Line: r.line}
	for _, e := range entries {
		for _, part := range e {
			if part.Kind == yaml.ScalarNode {
				part.Line = r.line
			}
			n.Content = append(n.Content, part)
		}
	}
	if unknown := message.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		r.source.Wrong(n, "a field of %s is unknown to this version; leave it out, or upgrade the gateway", message.ProtoReflect().Descriptor().Name())
	}
	return n
}

func (r *resource) descriptors(list []*rlsconf.RateLimitDescriptor) []*yaml.Node {
	if len(list) == 0 {
		return nil
	}
	items := &yaml.Node{Kind: yaml.SequenceNode, Line: r.line}
	for _, d := range list {
		r.line++
		own := r.mapping(d, entry("key", text(d.GetKey())), entry("value", text(d.GetValue())), r.rateLimit(d.GetRateLimit()),
			entry("shadow_mode", flag(d.GetShadowMode())), entry("detailed_metric", flag(d.GetDetailedMetric())))
		own.Content = append(own.Content, r.descriptors(d.GetDescriptors())...)
		items.Content = append(items.Content, own)
	}
	return entry("descriptors", items)
}

func (r *resource) rateLimit(p *rlsconf.RateLimitPolicy) []*yaml.Node {
	if p == nil {
		return nil
	}
	unit := ""
	if p.GetUnit() != rlsconf.RateLimitUnit_UNKNOWN {
		unit = p.GetUnit().String()
	}
	var count, replaces *yaml.Node
	if !p.GetUnlimited() || p.GetRequestsPerUnit() > 0 {
		count = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatUint(uint64(p.GetRequestsPerUnit()), 10)}
	}
	if len(p.GetReplaces()) > 0 {
		replaces = &yaml.Node{Kind: yaml.SequenceNode, Line: r.line}
		for _, other := range p.GetReplaces() {
			replaces.Content = append(replaces.Content, r.mapping(other, entry("name", text(other.GetName()))))
		}
	}
	return entry("rate_limit", r.mapping(p, entry("unit", text(unit)), entry("requests_per_unit", count),
		entry("unlimited", flag(p.GetUnlimited())), entry("name", text(p.GetName())), entry("replaces", replaces)))
}

// entry returns the nodes of an entry of a mapping, or nil if value is nil.
func entry(key string, value *yaml.Node) []*yaml.Node {
	if value == nil {
		return nil
	}
	return []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: value.Line}, value}
}

// text returns a node for a field, or nil if the field is empty, as it is by default.
func text(value string) *yaml.Node {
	if value == "" {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value}
}

func flag(value bool) *yaml.Node {
	if !value {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
}

// position returns where descriptor number n of a resource is, such as ", descriptors[0].descriptors[2]",
// and how many of the n are left if list ends before. It returns "" for number 0.
func position(path string, list []*rlsconf.RateLimitDescriptor, n int) (string, int) {
	for i, d := range list {
		if n == 0 {
			break
		}
		n--
		at := fmt.Sprintf("%s.descriptors[%d]", path, i)
		if n == 0 {
			return at, 0
		}
		if found, left := position(at, d.GetDescriptors(), n); left == 0 {
			return found, 0
		} else {
			n = left
		}
	}
	return "", n
}
