package text_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// Functions finds the functions that source code registers. A server that loads the library lists
// the same functions.
func TestFunctions(t *testing.T) {
	got := text.Functions("redis.register_function('a', f)\nredis.register_function{\n  callback = f,\n  function_name = \"b\" }\nredis.register_function( 'a', f)")
	if strings.Join(got, " ") != "a b" {
		t.Errorf("%q", got)
	}
	server, err := embedded.Start(embedded.WithLibrary(functions.Source()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	reply, err := server.Do("FUNCTION", "LIST")
	libraries, _ := reply.([]any)
	if err != nil || len(libraries) != 1 {
		t.Fatalf("%v, %v", reply, err)
	}
	var listed []string
	list, _ := respmap.Of(libraries[0])["functions"].([]any)
	for _, f := range list {
		listed = append(listed, respmap.Of(f)["name"].(string))
	}
	slices.Sort(listed)
	if names := text.Functions(functions.Source()); len(names) == 0 || !slices.Equal(names, listed) {
		t.Errorf("read out of the text: %q\nregistered: %q", names, listed)
	}
}
