package loader_test

import (
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
)

// An option implements the interfaces of the calls that accept it, so passing it to another call
// does not compile.
func TestOptionsFitTheirCalls(t *testing.T) {
	calls := map[string]reflect.Type{
		"Deploy": reflect.TypeFor[loader.DeployOption](), "Plan": reflect.TypeFor[loader.PlanOption](),
		"Rollback": reflect.TypeFor[loader.RollbackOption](), "Delete": reflect.TypeFor[loader.DeleteOption](),
	}
	for _, tt := range []struct {
		name   string
		option any
		fits   map[string]bool
	}{
		{"AllowDowngrade", loader.AllowDowngrade, map[string]bool{"Deploy": true, "Plan": true, "Rollback": true}},
		{"RemovePolicies", loader.RemovePolicies, map[string]bool{"Deploy": true, "Plan": true, "Rollback": true}},
		{"DenyKeysInUse", loader.DenyKeysInUse, map[string]bool{"Deploy": true, "Plan": true, "Rollback": true}},
		{"ReplaceForeign", loader.ReplaceForeign, map[string]bool{"Deploy": true, "Plan": true, "Rollback": true, "Delete": true}},
		{"WaitForLease", loader.WaitForLease, map[string]bool{"Deploy": true, "Rollback": true, "Delete": true}},
		{"To", loader.To, map[string]bool{"Rollback": true}},
	} {
		for call, wanted := range calls {
			method, _ := reflect.TypeFor[*loader.Loader]().MethodByName(call)
			if taken := method.Type.In(method.Type.NumIn() - 1).Elem(); taken != wanted {
				t.Errorf("%s takes %v", call, taken)
			}
			if fits := reflect.TypeOf(tt.option).Out(0).Implements(wanted); fits != tt.fits[call] {
				t.Errorf("%s fits %s: %v", tt.name, call, fits)
			}
		}
	}
}

// An invalid value is rejected before anything is sent.
func TestOptionsThatCannotBe(t *testing.T) {
	var sent []string
	l := newLoader(t, connect(t, redis.Options{Addr: "127.0.0.1:1"}), loader.WithTrace(func(s loader.Step) { sent = append(sent, s.Command) }))
	for i, call := range []func() (loader.Report, error){
		func() (loader.Report, error) { return l.Deploy(t.Context(), build(t), loader.WaitForLease(-1)) },
		func() (loader.Report, error) { return l.Rollback(t.Context(), loader.WaitForLease(-1)) },
		func() (loader.Report, error) { return l.Delete(t.Context(), loader.WaitForLease(-1)) },
		func() (loader.Report, error) { return l.Rollback(t.Context(), loader.To("")) },
	} {
		if _, err := call(); err == nil {
			t.Errorf("call %d has no error", i+1)
		}
	}
	if len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}
