package loader_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// The servers remember the last ten deployments of each namespace. A list of the libraries without
// their source code shows the number of the last one and a digest, which another deployment changes.
func TestHistory(t *testing.T) {
	addr, _ := startRedis(t)
	ctx := t.Context()
	l := newLoader(t, at(t, addr))
	must[loader.Report](t)(in(t, at(t, addr), "payments").Deploy(ctx, set(t, "payments/api 1/m"), loader.Options{}))
	shown := map[string]bool{}
	for i := range 12 {
		must[loader.Report](t)(l.Deploy(ctx, set(t, fmt.Sprintf("api %d/m", i+1)), loader.Options{}))
		number := must[text.Text](t)(text.Parse(texts(t, addr)["ratelimit"])).Highest
		begins, found := fmt.Sprintf("number %d, text ", number), ""
		for _, lib := range must[[]redis.Library](t)(at(t, addr).FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: "ratelimit"}).Result()) {
			for _, f := range lib.Functions {
				if strings.HasPrefix(f.Name, text.By) {
					found = f.Description
				}
			}
		}
		digest, ok := strings.CutPrefix(found, begins)
		if !ok || len(digest) != 32 || shown[digest] {
			t.Errorf("deployment %d is shown as %q, want %q and a new digest", i, found, begins)
		}
		shown[digest] = true
	}
	list := must[[]loader.Deployment](t)(l.History(ctx))
	of := map[string]int{}
	for i, d := range list {
		of[d.Namespace]++
		if i > 0 && d.Number > list[i-1].Number {
			t.Errorf("%d comes after %d", d.Number, list[i-1].Number)
		}
	}
	if of[""] != 10 || of["payments"] != 1 || list[0].Who == "" || list[0].AtMS == 0 || fmt.Sprint(list[0].Changed) != "[api]" {
		t.Errorf("%v: %+v", of, list)
	}
	if list := must[[]loader.Deployment](t)(in(t, at(t, addr), "payments").History(ctx)); len(list) != 1 || list[0].Namespace != "payments" {
		t.Errorf("of a namespace: %+v", list)
	}
}
