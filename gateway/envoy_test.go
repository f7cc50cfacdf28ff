package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rate_limit_quota/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// TestEnvoyConfiguration checks the configuration against the types of Envoy's API, because no
// Envoy is available here. Every field must exist and have a valid value.
func TestEnvoyConfiguration(t *testing.T) {
	file := must[[]byte](t)(os.ReadFile("../examples/gateway/envoy-ext-authz.yaml"))
	var tree any
	require(t, yaml.Load(file, &tree))
	text := must[[]byte](t)(json.Marshal(tree))
	var config bootstrap.Bootstrap
	require(t, protojson.Unmarshal(text, &config))
	if err := config.ValidateAll(); err != nil {
		t.Error(err)
	}
}

// TestEnvoyQuotas checks the configuration of quotas in docs/envoy.md in the same way.
func TestEnvoyQuotas(t *testing.T) {
	file := string(must[[]byte](t)(os.ReadFile("../docs/envoy.md")))
	_, block, found := strings.Cut(file, "```yaml\nname: envoy.filters.http.rate_limit_quota\n")
	block, _, _ = strings.Cut(block, "```")
	var tree any
	require(t, yaml.Load([]byte("name: envoy.filters.http.rate_limit_quota\n"+block), &tree))
	var filter hcm.HttpFilter
	require(t, protojson.Unmarshal(must[[]byte](t)(json.Marshal(tree)), &filter))
	config := must[proto.Message](t)(filter.GetTypedConfig().UnmarshalNew())
	if err := config.(interface{ ValidateAll() error }).ValidateAll(); err != nil || !found {
		t.Error(err)
	}
}
