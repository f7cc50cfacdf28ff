package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/internal/respmap"
)

// reach records which functions the vectors call, and which of them change a key.
type reach struct {
	srv    *embedded.Server
	reads  map[string]bool // whether the function has the flag no-writes
	called map[string]bool
	wrote  map[string]bool
}

func newReach(srv *embedded.Server) (*reach, error) {
	reply, err := srv.Do("FUNCTION", "LIST")
	if err != nil {
		return nil, fmt.Errorf("the engine does not list its functions: %w", err)
	}
	r := &reach{srv: srv, reads: map[string]bool{}, called: map[string]bool{}, wrote: map[string]bool{}}
	libraries, _ := reply.([]any)
	for _, library := range libraries {
		list, _ := respmap.Of(library)["functions"].([]any)
		for _, function := range list {
			fields := respmap.Of(function)
			flags, _ := fields["flags"].([]any)
			r.reads[fmt.Sprint(fields["name"])] = slices.Contains(flags, any("no-writes"))
		}
	}
	return r, nil
}

// call makes a vector's call, and records whether it changes a key. It does not check functions
// with the flag no-writes, because the engine refuses their writes.
func (r *reach) call(words ...string) (any, error) {
	args := make([]any, len(words))
	for i, word := range words {
		args[i] = word
	}
	if !strings.HasPrefix(strings.ToUpper(words[0]), "FCALL") || len(words) < 2 {
		return r.srv.Do(args...)
	}
	function := words[1]
	r.called[function] = true
	if r.reads[function] || r.wrote[function] {
		return r.srv.Do(args...)
	}
	before := r.state()
	reply, err := r.srv.Do(args...)
	r.wrote[function] = r.state() != before
	return reply, err
}

// state returns the whole keyspace as text. Vectors use only a few keys.
func (r *reach) state() string {
	var text strings.Builder
	keys, _ := r.srv.Do("KEYS", "*")
	list, _ := keys.([]any)
	for _, key := range list {
		kind, _ := r.srv.Do("TYPE", key)
		expiry, _ := r.srv.Do("PEXPIRETIME", key)
		var value any
		switch kind {
		case "string":
			value, _ = r.srv.Do("GET", key)
		case "hash":
			value, _ = r.srv.Do("HGETALL", key)
		case "zset":
			value, _ = r.srv.Do("ZRANGE", key, 0, -1, "WITHSCORES")
		}
		fmt.Fprintf(&text, "%q %v %v %q\n", key, kind, expiry, value)
	}
	return text.String()
}

// missing lists the functions that no vector calls, and the functions without the flag no-writes
// that never changed a key.
func (r *reach) missing() []string {
	var rules []string
	for function, reads := range r.reads {
		switch {
		case !r.called[function]:
			rules = append(rules, fmt.Sprintf("no vector calls %s", function))
		case !reads && !r.wrote[function]:
			rules = append(rules, fmt.Sprintf("no call of %s changes a key; flag it no-writes", function))
		}
	}
	slices.Sort(rules)
	return rules
}
