package api

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLimiter returns a client for a server with a stopped clock.
func newLimiter(t *testing.T) *client.Client {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "3/m"}}}, functions.Policy{Name: "trial", Limits: []functions.PolicyLimit{{Limit: "1/h"}}, Shadow: true},
		functions.Policy{Name: "login", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Penalty: &functions.Penalty{First: time.Minute, Max: time.Hour, Forget: time.Hour}},
		functions.Policy{Name: "warns", Limits: []functions.PolicyLimit{{Limit: "5/m"}}, Warn: 80},
		functions.Policy{Name: "shared", Limits: []functions.PolicyLimit{{Limit: "4/m"}}, Classes: map[string]int{"default": 25, "batch": 75}},
		functions.Policy{Name: "tenant", Limits: []functions.PolicyLimit{{Key: "tenant", Limit: "2/m"}, {Key: "pool", Limit: "6/m"}}, Borrow: true, Floor: 50})))
	server := embedded.Run(t, embedded.WithLibrary(build.Text()), embedded.WithTime(time.Unix(1_800_000_000, 0)))
	return open(t, "redis://"+server.Addr())
}

func open(t *testing.T, url string) *client.Client {
	t.Helper()
	limiter := redistest.Must[*client.Client](t)(client.Open(url, client.WithTimeout(time.Minute)))
	t.Cleanup(func() { _ = limiter.Close() })
	options := redistest.Must[*redis.Options](t)(redis.ParseURL(url))
	options.MaxRetries, options.DialerRetries = -1, 1
	db := redis.NewClient(options)
	t.Cleanup(func() { _ = db.Close() })
	stores[limiter] = holds.Redis{DB: db}
	return limiter
}

// stores has the server of each limiter.
var stores = map[*client.Client]holds.Store{}

// stopped returns a client for a port on which no server listens.
func stopped(t *testing.T) *client.Client {
	t.Helper()
	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	_ = port.Close()
	return open(t, "redis://"+port.Addr().String())
}

func newHandler(t *testing.T, limiter *client.Client) http.Handler {
	t.Helper()
	h := both{Metrics: metrics.New(prometheus.NewRegistry()), Limiter: limiter, Log: slog.New(slog.DiscardHandler), Hosts: []string{"Example.com"}} // the host of httptest.NewRequest
	h.Holds = holds.New(holds.Options{Limiter: limiter, Store: stores[limiter], Metrics: h.Metrics, Log: h.Log, Timeout: time.Minute})
	return h
}

// both serves each operation as the port does that has it.
type both Options

func (b both) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if operations[strings.TrimPrefix(r.URL.Path, Prefix)].admin {
		b.Admin, b.Token = true, token
		if r.Header.Get("Authorization") == "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	New(Options(b)).ServeHTTP(w, r)
}

const token = "the token of operators"

// send sends a request. header alternates the names and values of header fields.
func send(t *testing.T, h http.Handler, method, name, body string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, Prefix+name, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

// TestReplies checks replies. Each call depends on the calls before it.
func TestReplies(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, tt := range []struct{ name, body, want string }{
		{"take", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":3}`, `{"allowed":false,"limit":3,"remaining":2,"retry_after_ms":20000,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":4}`, `{"allowed":false,"limit":3,"remaining":2,"retry_after_ms":-1,"reset_after_ms":20000,"index":1,"key":"a"}`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":9,"upto":true}`, `{"allowed":true,"taken":2,"limit":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"peek", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":false,"limit":3,"remaining":0,"retry_after_ms":20000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"peek", `{"keys":["a"],"limits":["3/m"],"upto":true}`, `{"allowed":false,"taken":0,"limit":3,"remaining":0,"retry_after_ms":20000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"refund", `{"keys":["a"],"limits":["3/m"],"cost":[3]}`, `{"allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"a"}`},
		{"take", `{"keys":["a","<b>"],"limits":["3/m","@api"],"cost":[1,2],"each":true}`, `{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000,"index":2,"key":"<b>","each":[{"key":"a","allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000},{"key":"<b>","allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000}]}`},
		{"take", `{"keys":["t"],"limits":["@trial"],"cost":2}`, `{"allowed":true,"limit":1,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"t","shadow":{"allowed":false,"retry_after_ms":-1,"index":1}}`},
		{"take", `{"keys":["f"],"limits":["3/m"],"cost":5,"force":true}`, `{"allowed":true,"limit":3,"remaining":0,"retry_after_ms":60000,"reset_after_ms":100000,"index":1,"key":"f"}`},
		{"take", `{"keys":["s"],"limits":["@shared"],"class":"batch"}`, `{"allowed":true,"limit":4,"remaining":0,"retry_after_ms":0,"reset_after_ms":15000,"index":1,"key":"s"}`},
		{"peek", `{"keys":["s"],"limits":["@shared"],"class":"batch"}`, `{"allowed":false,"limit":4,"remaining":0,"retry_after_ms":15000,"reset_after_ms":15000,"index":1,"key":"s"}`},
		{"take", `{"keys":["s"],"limits":["@shared"]}`, `{"allowed":true,"limit":4,"remaining":1,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"s"}`},
		{"take", `{"keys":["s"],"limits":["4/m"],"floor":50}`, `{"allowed":false,"limit":4,"remaining":0,"retry_after_ms":15000,"reset_after_ms":30000,"index":1,"key":"s"}`},
		{"take", `{"keys":["{p}t","{p}"],"limits":["2/m","6/m"],"borrow":true,"floor":50,"cost":2}`, `{"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":60000,"index":1,"key":"{p}t"}`},
		{"take", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"borrow":true}`, `{"allowed":true,"limit":6,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"index":2,"key":"{p}"}`},
		{"peek", `{"keys":["{p}t","{p}"],"limits":["@tenant"]}`, `{"allowed":false,"limit":2,"remaining":0,"retry_after_ms":10000,"reset_after_ms":60000,"index":1,"key":"{p}t"}`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":2}`, `{"allowed":true,"limit":6,"remaining":1,"retry_after_ms":0,"reset_after_ms":60000,"index":2,"key":"{p}"}`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["2/m","6/m"],"paid":1,"cost":2}`, `{"allowed":true,"limit":2,"remaining":6,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"{p}t"}`},
		{"acquire", `{"key":"lf","limit":"concurrency 2 lease=30s","lease_id":"w","floor":50}`, `{"allowed":true,"limit":2,"remaining":0,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"lf","lease_id":"w","lease_ms":30000}`},
		{"take", `{"keys":["o"],"limits":["3/m"],"once":{"key":"o:1","ttl_ms":1000},"track":"o:usage"}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"o"}`},
		{"take", `{"keys":["o"],"limits":["3/m"],"once":{"key":"o:1","ttl_ms":1000},"track":"o:usage"}`, `{"allowed":true,"limit":3,"remaining":2,"retry_after_ms":0,"reset_after_ms":20000,"index":1,"key":"o"}`},
		{"usage", `{"key":"o:usage"}`, `{"allowed":1,"denied":0,"cost":1,"first_ms":1800000000000,"last_ms":1800000000000,"interval_ms":60000,"series":[{"start_ms":1800000000000,"allowed":1,"denied":0}]}`},
		{"refund", `{"keys":["o"],"limits":["3/m"],"each":true,"once":{"key":"o:2","ttl_ms":1000}}`, `{"allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0,"index":1,"key":"o","each":[{"key":"o","allowed":true,"limit":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":0}]}`},
		{"acquire", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":30000,"index":1,"key":"l","lease_id":"w","lease_ms":30000}`},
		{"renew", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"x"}`, `{"allowed":false,"limit":2,"remaining":1,"retry_after_ms":-1,"reset_after_ms":30000,"index":1,"key":"l","lease_id":"x","lease_ms":0}`},
		{"release", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"released":true,"lease_id":"w"}`},
		{"release", `{"key":"l","limit":"concurrency 2 lease=30s","lease_id":"w"}`, `{"released":false,"lease_id":"w"}`},
		{"block", `{"keys":["a","z"],"ms":60000}`, `{"blocked":2,"for_ms":60000}`},
		{"block", `{"keys":["a"],"ms":1000,"extend":true}`, `{"blocked":1,"for_ms":1000}`},
		{"peek", `{"keys":["a"],"limits":["3/m"]}`, `{"allowed":false,"limit":3,"remaining":0,"retry_after_ms":60000,"reset_after_ms":60000,"index":1,"key":"a"}`},
		{"unblock", `{"keys":["a","z","none"]}`, `{"unblocked":2,"keys":3}`},
		{"reset", `{"keys":["a","none"]}`, `{"reset":1,"keys":2}`},
		{"override", `{"keys":["v","w"],"limit":"9/m","ms":60000}`, `{"overridden":2,"limit":"9/m","for_ms":60000}`},
		{"take", `{"keys":["v"],"limits":["3/m"]}`, `{"allowed":true,"limit":9,"remaining":8,"retry_after_ms":0,"reset_after_ms":6667,"index":1,"key":"v"}`},
		{"override_end", `{"keys":["v","none"]}`, `{"ended":1,"keys":2}`},
		{"peek", `{"keys":["v"],"limits":["3/m"]}`, `{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":26667,"index":1,"key":"v"}`},
	} {
		answer := send(t, h, "POST", tt.name, tt.body)
		if got := strings.TrimSpace(answer.Body.String()); answer.Code != http.StatusOK || got != tt.want || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s\nis %d %s, want\n%s", tt.name, tt.body, answer.Code, got, tt.want)
		}
	}
	var lease struct {
		Allowed bool
		LeaseID string `json:"lease_id"`
	}
	if err := json.Unmarshal(send(t, h, "POST", "acquire", `{"key":"r","limit":"concurrency 2 lease=30s"}`).Body.Bytes(), &lease); err != nil || !lease.Allowed || len(lease.LeaseID) < 20 {
		t.Errorf("without lease_id: %+v, %v", lease, err)
	}
	byGet, byPost := send(t, h, "GET", "info", "ignored"), send(t, h, "POST", "info", "")
	if want := `"policies":["api","login","shared","tenant","trial","warns"],"shadow_denied":{"trial":1}}`; !strings.Contains(byGet.Body.String(), want) || byGet.Body.String() != byPost.Body.String() {
		t.Errorf("info: %s and %s, want %s", byGet.Body, byPost.Body, want)
	}
}

// TestPenalty checks that a take with a policy that has a penalty blocks the key that it denies, and that peeks and
// refunds do not.
func TestPenalty(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, step := range []struct{ name, cost, want string }{
		{"take", "5", `"allowed":true`},
		{"peek", "1", `"retry_after_ms":12000`},
		{"peek", "1", `"retry_after_ms":12000`},
		{"take", "1", `"retry_after_ms":60000`},
		{"refund", "1", `"retry_after_ms":60000`},
		{"peek", "1", `"retry_after_ms":60000`},
	} {
		if got := send(t, h, "POST", step.name, `{"keys":["ip"],"limits":["@login"],"cost":`+step.cost+`}`); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), step.want) {
			t.Errorf("%s: %d %s, want %s", step.name, got.Code, got.Body, step.want)
		}
	}
}

// TestWarning checks that an allowed take with a policy that warns says how many percent of the limit are used, and
// that peeks do not.
func TestWarning(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	for _, step := range []struct{ name, cost, want string }{
		{"take", "3", ""},
		{"take", "1", `,"warning":80}`},
		{"peek", "1", ""},
		{"take", "1", `,"warning":100}`},
		{"take", "1", ""},
	} {
		got := send(t, h, "POST", step.name, `{"keys":["ip"],"limits":["@warns"],"cost":`+step.cost+`}`)
		if text := strings.TrimSpace(got.Body.String()); got.Code != http.StatusOK || !strings.HasSuffix(text, step.want) || step.want == "" && strings.Contains(text, "warning") {
			t.Errorf("%s %s: %d %s, want %s", step.name, step.cost, got.Code, text, step.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	limiter := newLimiter(t)
	h := newHandler(t, limiter)
	if answer := send(t, h, "POST", "take", `{"keys":["used"],"limits":["3/m"],"track":"usage"}`); answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	for _, tt := range []struct {
		name, body     string
		status         int
		reason, detail string // detail is part of the message
	}{
		{"take", ``, 400, "BADARGS", `the body is empty; send a JSON object such as {"keys":["user:42"],"limits":["100/m"]}`},
		{"take", `{"keys":`, 400, "BADARGS", `the body is not JSON (unexpected EOF)`},
		{"take", `keys=a`, 400, "BADARGS", `the body is not JSON (invalid character 'k'`},
		{"take", `[]`, 400, "BADARGS", `the request is []; send a JSON object`},
		{"take", `{} {}`, 400, "BADARGS", `something follows the JSON object`},
		{"take", "{\"keys\":[\"\xff\"]}", 400, "BADARGS", `not UTF-8`},
		{"take", `{"keys":["a\\\ud800"],"limits":["3/m"]}`, 400, "BADARGS", `with half of a surrogate pair; write both halves`},
		{"take", `{"keys":["\udc00\ud800"],"limits":["3/m"]}`, 400, "BADARGS", `half of a surrogate pair`},
		{"take", `{"keys":["\ud83d\ude00","\\ud800"],"limits":["3/q","3/m"]}`, 400, "BADLIMIT", `take "😀" "\\ud800": BADLIMIT`},
		{"take", `{"keys":["a"],"limits":["3/m"],"costs":1}`, 400, "BADARGS", `the request has an unknown field costs; the fields are keys, limits, cost, upto, class, floor, borrow, force, once, track, each`},
		{"take", `{"Keys":["a"],"limits":["3/m"]}`, 400, "BADARGS", `an unknown field Keys`},
		{"take", `{"keys":["a"],"limits":["3/m"],"a\u001b` + strings.Repeat("x", 100) + `":1}`, 400, "BADARGS", `an unknown field "a\x1b` + strings.Repeat("x", 58) + `..."`},
		{"take", `{"keys":["a"],"keys":["b"],"limits":["3/m"]}`, 400, "BADARGS", `has the field keys twice; keep one`},
		{"take", `{"keys":["a"]}`, 400, "BADARGS", `the field limits is missing`},
		{"take", `{"keys":["a"],"limits":null}`, 400, "BADARGS", `limits is null; write a list`},
		{"take", `{"keys":"a","limits":["3/m"]}`, 400, "BADARGS", `keys is "a"; write a list, such as "keys":["user:42"]`},
		{"take", `{"keys":[1],"limits":["3/m"]}`, 400, "BADARGS", `keys[0] is 1; write a string`},
		{"take", `{"keys":["a",null],"limits":["3/m"]}`, 400, "BADARGS", `keys[1] is null; write a string`},
		{"take", `{"keys":["a",""],"limits":["3/m"]}`, 400, "BADARGS", `keys[1] is empty`},
		{"take", `{"keys":["a"],"limits":["3/m"],"track":""}`, 400, "BADARGS", `track is empty; give at least one character, or leave the field out`},
		{"take", `{"keys":["a"],"limits":["3/m"],"upto":1}`, 400, "BADARGS", `upto is 1; write true or false`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":1.0}`, 400, "BADCOST", `cost is 1.0; write a whole number of at most 2^53 in digits`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":1e3}`, 400, "BADCOST", `cost is 1e3;`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":"1"}`, 400, "BADCOST", `cost is "1";`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[]}`, 400, "BADARGS", `cost is an empty list`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[[1]]}`, 400, "BADCOST", `cost is [1];`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":99999999999999999999}`, 400, "BADCOST", `cost is 99999999999999999999;`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":-1}`, 400, "BADCOST", `"-1": a cost is a whole number from 0 to 9007199254740992`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":1}`, 400, "BADARGS", `once is 1; send a JSON object`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o"}}`, 400, "BADARGS", `the field once.ttl_ms is missing; the fields are key, ttl_ms`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":0}}`, 400, "BADARGS", `once.ttl_ms is 0; give 1 to 3153600000000`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":3153600000001}}`, 400, "BADARGS", `once.ttl_ms is 3153600000001`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":1.5}}`, 400, "BADARGS", `once.ttl_ms is 1.5; write a whole number`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":1,"x":1}}`, 400, "BADARGS", `once has an unknown field x`},
		{"take", `{"keys":[],"limits":["3/m"]}`, 400, "BADKEYS", `the number of keys is 0; give each limit one key`},
		{"take", `{"keys":["a","a"],"limits":["3/m","3/m"]}`, 400, "BADKEYS", `given twice`},
		{"take", `{"keys":["a"],"limits":["3/q"]}`, 400, "BADLIMIT", `take "a": BADLIMIT`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[1,2]}`, 400, "BADARGS", `the number of costs is 2 and the number of limits 1`},
		{"take", `{"keys":["a"],"limits":["3/m"],"upto":true,"force":true}`, 400, "BADARGS", `Force and UpTo are both set`},
		{"take", `{"keys":["a"],"limits":["@shared"],"class":"bulk"}`, 400, "BADARGS", `"bulk": no such class of @shared; its classes are batch, default`},
		{"take", `{"keys":["a"],"limits":["3/m"],"class":"batch"}`, 400, "BADARGS", `"batch": only policies have classes`},
		{"peek", `{"keys":["a"],"limits":["3/m"],"floor":101}`, 400, "BADARGS", `Floor is 101; give a percentage`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":-9223372036854775808}`, 400, "BADARGS", `Floor is -9223372036854775808`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":9223372036854775807}`, 400, "BADARGS", `give a percentage`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":1.5}`, 400, "BADARGS", `floor is 1.5; write a whole number`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":20,"force":true}`, 400, "BADARGS", `Force is set and Floor is 20`},
		{"take", `{"keys":["a"],"limits":["3/m"],"borrow":true}`, 400, "BADARGS", `give a guarantee and a pool`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":3}`, 400, "BADARGS", `paid is 3; give the index in the reply to the take`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":2,"cost":[0,1]}`, 400, "BADARGS", `cost is [0 1] beside paid; a guarantee and a pool are charged the same`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"]}`, 400, "BADARGS", `PAID`},
		{"acquire", `{"key":"a","limit":"concurrency 2 lease=30s","class":"batch"}`, 400, "BADARGS", `"batch"`},
		{"renew", `{"key":"a","limit":"concurrency 2 lease=30s","lease_id":"x","floor":1}`, 400, "BADARGS", `unknown field floor`},
		{"take", `{"keys":["usage"],"limits":["3/m"]}`, 400, "BADSTATE", `usage`},
		{"take", `{"keys":["a"],"limits":["@none"]}`, 404, "NOPOLICY", `none`},
		{"take", `{"keys":["` + strings.Repeat("k", 9000) + `"],"limits":["@none"]}`, 404, "NOPOLICY", `take "` + strings.Repeat("k", 60) + `...": `},
		{"peek", `{"keys":["a"],"limits":["3/m"],"force":true}`, 400, "BADARGS", `unknown field force; the fields are keys, limits, cost, upto, class, floor, borrow, each`},
		{"refund", `{"keys":["a"],"limits":["3/m"],"upto":true}`, 400, "BADARGS", `unknown field upto`},
		{"acquire", `{"key":"a","limit":"3/m"}`, 400, "BADLIMIT", `acquire "a"`},
		{"acquire", `{"key":"a","limit":"concurrency 2 lease=30s","lease_id":""}`, 400, "BADARGS", `lease_id is empty`},
		{"renew", `{"key":"a","limit":"concurrency 2 lease=30s"}`, 400, "BADARGS", `the field lease_id is missing`},
		{"block", `{"keys":["a"],"ms":0}`, 400, "BADARGS", `ms is 0; give 1 to 3153600000000`},
		{"override", `{"keys":["a"],"limit":"9/m","ms":0}`, 400, "BADARGS", `ms is 0; give 1 to 3153600000000`},
		{"override", `{"keys":["a"],"limit":"@api","ms":1}`, 400, "BADLIMIT", `override "a"`},
		{"override", `{"keys":["a"],"ms":1}`, 400, "BADARGS", `the field limit is missing; the fields are keys, limit, ms`},
		{"override", `{"keys":[],"limit":"9/m","ms":1}`, 400, "BADKEYS", `0`},
		{"usage", `{"key":"used"}`, 400, "BADSTATE", `used`},
		{"info", `{"x":1}`, 400, "BADARGS", `unknown field x`},
		{"none", `{}`, 404, "", `/v1/none is not a path of the API; /v1/openapi.yaml lists the paths`},
		{"take", `{"keys":["` + strings.Repeat("a", mostBytes) + `"]}`, 413, "BADARGS", `the body has more than 65536 bytes; send fewer keys in a call`},
	} {
		answer := send(t, h, "POST", tt.name, tt.body)
		var got struct {
			Title, Detail, Reason string
			Status                int
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %.100s: %v in %s", tt.name, tt.body, err, answer.Body)
		}
		if answer.Code != tt.status || got.Status != tt.status || got.Title != http.StatusText(tt.status) || got.Reason != tt.reason ||
			!strings.Contains(got.Detail, tt.detail) || answer.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.100s:\n%d %s, want\n%d %s %s", tt.name, tt.body, answer.Code, answer.Body, tt.status, tt.reason, tt.detail)
		}
	}
	if answer := send(t, h, "GET", "take", ""); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}
	if answer := send(t, h, "DELETE", "info", ""); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, POST" {
		t.Errorf("DELETE: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}
}

// TestNoDecision checks that without a decision the status is 503, and that the log has at most one
// line a second.
func TestNoDecision(t *testing.T) {
	bare := embedded.Run(t)
	hungUp := listen(t, func(conn net.Conn) { // reads the first call and closes the connection
		buffer := make([]byte, 4096)
		for {
			n, err := conn.Read(buffer)
			if err != nil || bytes.Contains(buffer[:n], []byte("ratelimit_take")) {
				return
			}
			if _, err := io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", bytes.Count(buffer[:n], []byte("*")))); err != nil {
				return
			}
		}
	})
	for _, tt := range []struct {
		name           string
		limiter        *client.Client
		reason, detail string
		lost           bool
	}{
		{"nothing listens", stopped(t), "UNAVAILABLE", "no connection, nothing was counted", false},
		{"no library", open(t, "redis://"+bare.Addr()), "NOTDEPLOYED", "deploy it with ratelimit deploy, or start the gateway with --deploy", false},
		{"lost reply", open(t, "redis://"+hungUp), "UNAVAILABLE", "it was counted once or not at all", true},
	} {
		var log bytes.Buffer
		registry := prometheus.NewRegistry()
		h := New(Options{Limiter: tt.limiter, Metrics: metrics.New(registry), Log: slog.New(slog.NewTextHandler(&log, nil)), AnyHost: true})
		var got struct {
			Detail, Reason string
			Lost           bool `json:"outcome_unknown"`
		}
		for range 3 {
			answer := send(t, h, "POST", "take", `{"keys":["a"],"limits":["@api"]}`)
			if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != http.StatusServiceUnavailable ||
				got.Reason != tt.reason || !strings.Contains(got.Detail, tt.detail) || got.Lost != tt.lost {
				t.Errorf("%s: %d %s, want %s %s, %v", tt.name, answer.Code, answer.Body, tt.reason, tt.detail, tt.lost)
			}
		}
		if n := strings.Count(log.String(), "no decision"); n != 1 {
			t.Errorf("%s: %d lines:\n%s", tt.name, n, log.String())
		}
		wantMetric(t, registry, `requests_total{decision="error",name="unknown",source="api"} 3`)
	}
}

// listen serves connections until the end of the test.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	port := redistest.Must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = port.Close() })
	go func() {
		for {
			conn, err := port.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close()
		}
	}()
	return port.Addr().String()
}

func wantMetric(t *testing.T, registry *prometheus.Registry, want string) {
	t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(answer.Body.String(), "ratelimit_gateway_"+want+"\n") {
		t.Errorf("%s is not in\n%s", want, answer.Body)
	}
}

func TestMetricsAndLog(t *testing.T) {
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	h := both{Limiter: newLimiter(t), Metrics: metrics.New(registry), Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), AnyHost: true}
	for _, call := range []struct{ name, body string }{
		{"take", `{"keys":["a"],"limits":["@api"],"cost":2}`},
		{"take", `{"keys":["a"],"limits":["@api"],"cost":2}`},
		{"take", `{"keys":["a"],"limits":["@none"]}`},
		{"take", `{"keys":["b"],"limits":["3/m"]}`},
		{"take", `{"keys":["b"],"limits":["3/q"]}`},
		{"acquire", `{"key":"c","limit":"concurrency 1 lease=1s"}`},
		{"reset", `{"keys":["b"]}`},
		{"reset", `{}`},
	} {
		send(t, h, "POST", call.name, call.body)
	}
	for _, want := range []string{
		`decision="allowed",name="@api"`, `decision="denied",name="@api"`, `decision="error",name="unknown"`, `decision="allowed",name="take"`,
		`decision="error",name="take"`, `decision="allowed",name="acquire"`, `decision="done",name="reset"`, `decision="error",name="reset"`,
	} {
		wantMetric(t, registry, `requests_total{`+want+`,source="api"} 1`)
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=DEBUG msg=denied source=api name=@api") {
		t.Errorf("the log has\n%s", text)
	}
}
