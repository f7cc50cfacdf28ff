package main

import (
	"encoding/json"
	"os"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
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
