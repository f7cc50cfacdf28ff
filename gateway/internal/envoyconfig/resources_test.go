package envoyconfig_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	entries "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/envoyconfig"
)

// recorded returns the resources of a file in testdata.
func recorded(t *testing.T, name string) (list []*rlsconf.RateLimitConfig) {
	t.Helper()
	var raw []json.RawMessage
	require(t, json.Unmarshal(must[[]byte](t)(os.ReadFile(filepath.Join("testdata", name))), &raw))
	for _, text := range raw {
		config := &rlsconf.RateLimitConfig{}
		require(t, protojson.Unmarshal(text, config))
		list = append(list, config)
	}
	return list
}

// TestEnvoyGateway replays what Envoy Gateway sends; testdata/README.md says where that is from.
func TestEnvoyGateway(t *testing.T) {
	config := must[*envoyconfig.Config](t)(envoyconfig.LoadResources(recorded(t, "envoy-gateway.json"), false))
	if config.Rules() != 11 || len(config.Policies()) != 0 {
		t.Errorf("%d rules, policies %v", config.Rules(), config.Policies())
	}
	if want := `[resource "first-listener": detailed_metric and value_to_metric are ignored: a metric names the rule, not the values of requests]`; fmt.Sprint(config.Notices()) != want {
		t.Errorf("%q", config.Notices())
	}
	descriptor := func(pairs ...string) (d []*entries.RateLimitDescriptor_Entry) {
		for i := 0; i < len(pairs); i += 2 {
			d = append(d, &entries.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		return d
	}
	const shared = "test-namespace/test-policy-1"
	for _, tt := range []struct {
		domain     string
		descriptor []*entries.RateLimitDescriptor_Entry
		want       string
	}{
		{"first-listener", descriptor("first-route", "first-route", "rule-0-match-0", "alice"), "fixed_window 10/s align=clock"},
		{"first-listener", descriptor("first-route", "first-route", "rule-0-match-0", "client-a"), "fixed_window 15/s align=clock"},
		{"first-listener", descriptor("first-route", "first-route", "rule-1-match--1", "rule-1-match--1"), "fixed_window 5/mo align=clock"},
		{"first-listener", descriptor("second-route", "second-route", "masked_remote_address", "192.168.0.0/16"), "fixed_window 45/s align=clock"},
		{"first-listener", descriptor("second-route", "second-route", "masked_remote_address", "192.168.0.0/16", "remote_address", "192.168.3.4"), "fixed_window 5/s align=clock"},
		{"first-listener", descriptor("shadow-route", "shadow-route", "rule-0-match-0", "rule-0-match-0"), "shadow fixed_window 5/h align=clock"},
		{"first-listener", descriptor("third-route", "third-route"), ""},
		{"second-listener", descriptor("first-route", "first-route", "rule-0-match-0", "alice"), ""},
		{shared, descriptor(shared+"/rule/0", shared+"/rule/0", "rule-0-match-0", "rule-0-match-0"), "fixed_window 5/s align=clock"},
		{shared, descriptor(shared+"/rule/2", shared+"/rule/2", "rule-1-match-0", "x"), "0/s"},
	} {
		rule, _ := config.Find(tt.domain, tt.descriptor)
		got := ""
		if rule != nil {
			got = string(rule.Limit)
			if rule.Shadow {
				got = "shadow " + got
			}
		}
		if got != tt.want {
			t.Errorf("%s %v: %q, want %q", tt.domain, tt.descriptor, got, tt.want)
		}
	}
}

// TestWrongResources checks that resources have the checks of files, and that the error names the
// resource and the descriptor.
func TestWrongResources(t *testing.T) {
	minute := func(n uint32) *rlsconf.RateLimitPolicy {
		return &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_MINUTE, RequestsPerUnit: n}
	}
	rule := func(p *rlsconf.RateLimitPolicy) []*rlsconf.RateLimitConfig {
		return []*rlsconf.RateLimitConfig{{Name: "web", Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{
			{Key: "a", RateLimit: minute(1), Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "b", RateLimit: minute(1)}}},
			{Key: "c", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "d"}, {Key: "e", RateLimit: p}}},
		}}}
	}
	strange := minute(1)
	strange.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1))
	const at = `resource "web".descriptors[1].descriptors[1]: `
	for _, tt := range []struct {
		list []*rlsconf.RateLimitConfig
		want string
	}{
		{rule(&rlsconf.RateLimitPolicy{RequestsPerUnit: 5}), at + `the unit is ""; write second, minute`},
		{rule(&rlsconf.RateLimitPolicy{Unit: 99}), at + `the unit is "99"; write second`},
		{rule(&rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_DAY, Unlimited: true}), at + "rate_limit has unlimited and a unit"},
		{rule(&rlsconf.RateLimitPolicy{Unit: 1, Name: "me", Replaces: []*rlsconf.RateLimitReplace{{Name: "me"}}}), at + `the rate_limit "me" replaces itself`},
		{rule(&rlsconf.RateLimitPolicy{Unit: 1, Replaces: []*rlsconf.RateLimitReplace{{}}}), at + "an item of replaces is empty"},
		{rule(strange), at + "a field of RateLimitPolicy is unknown to this version; leave it out, or upgrade the gateway"},
		{[]*rlsconf.RateLimitConfig{{Name: "web"}}, `resource "web": the field domain is missing or empty`},
		{[]*rlsconf.RateLimitConfig{{}}, `resource "": the field domain is missing or empty`},
		{[]*rlsconf.RateLimitConfig{nil}, `resource "": the field domain is missing or empty`},
		{[]*rlsconf.RateLimitConfig{{Name: "a", Domain: "web"}, {Name: "b", Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "x"}}}}, `resource "b": the domain "web" is also in another resource; put its descriptors into one resource`},
		{[]*rlsconf.RateLimitConfig{{Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{{Value: "x"}}}}, `resource "web".descriptors[0]: a descriptor has no key`},
		{[]*rlsconf.RateLimitConfig{{Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{nil}}}, `resource "web".descriptors[0]: a descriptor has no key`},
		{[]*rlsconf.RateLimitConfig{{Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "x"}, {Key: "x"}}}}, `resource "web".descriptors[1]: the descriptor "web.x" is there twice`},
	} {
		config, err := envoyconfig.LoadResources(tt.list, false)
		if err == nil || config != nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v\nwant %s", err, tt.want)
		}
	}
	merged := must[*envoyconfig.Config](t)(envoyconfig.LoadResources([]*rlsconf.RateLimitConfig{
		{Name: "a", Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "a", RateLimit: minute(1)}}},
		{Name: "b", Domain: "web", Descriptors: []*rlsconf.RateLimitDescriptor{{Key: "b", RateLimit: &rlsconf.RateLimitPolicy{Unlimited: true}}}},
	}, true))
	if merged.Rules() != 2 {
		t.Errorf("%d rules", merged.Rules())
	}
}

// TestManyResources checks 100,000 rules, in one resource and in many.
func TestManyResources(t *testing.T) {
	const most = 100_000
	for _, each := range []int{1, most} {
		var list []*rlsconf.RateLimitConfig
		for i := range most / each {
			config := &rlsconf.RateLimitConfig{Name: fmt.Sprint("web", i), Domain: fmt.Sprint("web", i)}
			for k := range each {
				config.Descriptors = append(config.Descriptors, &rlsconf.RateLimitDescriptor{Key: "user", Value: fmt.Sprint(k), RateLimit: &rlsconf.RateLimitPolicy{Unit: 1, RequestsPerUnit: uint32(k)}})
			}
			list = append(list, config)
		}
		config := must[*envoyconfig.Config](t)(envoyconfig.LoadResources(list, false))
		last := fmt.Sprint(each - 1)
		rule, key := config.Find(list[len(list)-1].Domain, []*entries.RateLimitDescriptor_Entry{{Key: "user", Value: last}})
		if config.Rules() != most || rule == nil || rule.Count != uint32(each-1) || !strings.HasSuffix(key, "|user="+last) {
			t.Errorf("%d rules, the last is %v", config.Rules(), rule)
		}
	}
}
