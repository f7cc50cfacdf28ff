package httplimit_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:32]
}

// Each kind of request uses the expected key on the server.
func TestKeys(t *testing.T) {
	limiter, server := newLimiter(t)
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", ok)
	value := func(v string) httplimit.Key {
		return httplimit.Func("tenant", func(*http.Request) (string, error) { return v, nil })
	}
	long := strings.Repeat("x", 10_000)
	header, authorization, cookie := httplimit.Header("x-api-key"), httplimit.Header("authorization"), httplimit.Cookie("sid")
	for _, tt := range []struct {
		name    string
		key     httplimit.Key
		request *http.Request
		want    string // "": status 400
	}{
		{"the address", httplimit.Address(), get("/"), "address=192.0.2.1"},
		{"a header", header, get("/", "X-Api-Key", "secret"), "header:X-Api-Key~" + hash("secret")},
		{"a header twice", header, get("/", "X-Api-Key", "one", "X-Api-Key", "one", "X-Api-Key", ""), "header:X-Api-Key~" + hash("one")},
		{"spaces", header, get("/", "X-Api-Key", " \tBearer  One\t"), "header:X-Api-Key~" + hash("Bearer  One")},
		{"Bearer", authorization, get("/", "Authorization", "Bearer T"), "header:Authorization~" + hash("bearer T")},
		{"bearer", authorization, get("/", "Authorization", "bearer T"), "header:Authorization~" + hash("bearer T")},
		{"Bearer and spaces", authorization, get("/", "Authorization", "BEARER \t T "), "header:Authorization~" + hash("bearer T")},
		{"no scheme", authorization, get("/", "Authorization", "Secret"), "header:Authorization~" + hash("Secret")},
		{"Basic", authorization, get("/", "Authorization", "Basic dXNlcjpwYQ=="), "header:Authorization~" + hash("basic dXNlcjpwYQ==")},
		{"Basic without padding", authorization, get("/", "Authorization", "basic dXNlcjpwYQ"), "header:Authorization~" + hash("basic dXNlcjpwYQ==")},
		{"Basic with other last bits", authorization, get("/", "Authorization", "Basic dXNlcjpwYR="), "header:Authorization~" + hash("basic dXNlcjpwYQ==")},
		{"Basic in the alphabet of URLs", authorization, get("/", "Authorization", "Basic -_-_"), "header:Authorization~" + hash("basic +/+/")},
		{"Basic, not base64", authorization, get("/", "Authorization", "Basic a:b"), "header:Authorization~" + hash("basic a:b")},
		{"a long header", header, get("/", "X-Api-Key", long), "header:X-Api-Key~" + hash(long)},
		{"no header", header, get("/"), ""},
		{"an empty header", header, get("/", "X-Api-Key", ""), ""},
		{"a cookie", cookie, get("/", "Cookie", "a=b; sid=secret; sid=secret"), "cookie:sid~" + hash("secret")},
		{"a cookie on two lines, in other spellings", cookie, get("/", "Cookie", `sid="secret"`, "Cookie", "sid=%73ecret; sid="), "cookie:sid~" + hash("secret")},
		{"a cookie with a space", cookie, get("/", "Cookie", "sid=a%20b; sid=a+b; sid=a%2Bb"), "cookie:sid~" + hash("a+b")},
		{"a cookie that is not encoded", cookie, get("/", "Cookie", "sid=%secret"), "cookie:sid~" + hash("%secret")},
		{"an empty cookie", cookie, get("/", "Cookie", "sid="), ""},
		{"no cookie", cookie, get("/", "Cookie", "sid"), ""},
		{"the pattern of a mux", httplimit.Pattern(mux), get("/items/7"), "route=GET /items/%7Bid%7D"},
		{"no pattern of a mux", httplimit.Pattern(mux), get("/elsewhere"), "route=none"},
		{"a function", value("acme"), get("/"), "tenant=acme"},
		{"a function without a value", value(""), get("/"), ""},
		{"what would be another key", value("a|address=1.2.3.4{b}%7C\r\n\x7fé"), get("/"), "tenant=a%7Caddress=1.2.3.4%7Bb%7D%257C%0D%0A%7Fé"},
		{"128 bytes", value(long[:128]), get("/"), "tenant=" + long[:128]},
		{"129 bytes", value(long[:129]), get("/"), "tenant~" + hash(long[:129])},
		{"two", httplimit.Join(value("acme"), httplimit.Address()), get("/"), "tenant=acme|address=192.0.2.1"},
		{"one of two", httplimit.Join(httplimit.Address(), header), get("/"), ""},
		{"the first", httplimit.FirstOf(header, httplimit.Address()), get("/", "X-Api-Key", "secret"), "header:X-Api-Key~" + hash("secret")},
		{"the second", httplimit.FirstOf(header, httplimit.Address()), get("/"), "address=192.0.2.1"},
		{"none", httplimit.FirstOf(header, cookie), get("/"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			must[any](t)(server.Do("FLUSHALL"))
			response := serve(newHandler(t, limiter, "100/d", tt.key, ok), tt.request)
			keys := must[any](t)(server.Do("KEYS", "*"))
			if tt.want == "" {
				checkStatus(t, response, http.StatusBadRequest)
				if detail := body(t, response)["detail"]; !strings.HasPrefix(fmt.Sprint(detail), "the request lacks what it is limited by: no ") {
					t.Error(detail)
				}
				if len(keys.([]any)) != 0 {
					t.Errorf("counted under %q", keys)
				}
				return
			}
			checkStatus(t, response, http.StatusOK)
			if got := fmt.Sprint(keys); got != "[api|"+tt.want+"]" {
				t.Errorf("counted under %s, want %s", got, tt.want)
			}
			for name, lines := range response.Header {
				if text := fmt.Sprint(name, lines); strings.Contains(text, "secret") || strings.Contains(text, "acme") {
					t.Errorf("what the client sent is in the response: %s", text)
				}
			}
		})
	}
}

// A request with two values for one credential is refused, also if FirstOf has another key: only the
// application knows which value counts. Nothing is charged.
func TestDifferentValues(t *testing.T) {
	limiter, server := newLimiter(t)
	for _, tt := range []struct {
		key   httplimit.Key
		lines []string
		want  string
	}{
		{httplimit.Header("X-Api-Key"), []string{"X-Api-Key", "one", "X-Api-Key", "two"}, "header X-Api-Key"},
		{httplimit.Header("Authorization"), []string{"Authorization", "Bearer T", "Authorization", "bearer t"}, "header Authorization"},
		{httplimit.Cookie("session"), []string{"Cookie", "session=junk; session=REAL"}, "cookie session"},
		{httplimit.Cookie("session"), []string{"Cookie", "session=junk", "Cookie", "a=b; session=REAL"}, "cookie session"},
	} {
		for _, key := range []httplimit.Key{tt.key, httplimit.FirstOf(tt.key, httplimit.Address()), httplimit.Join(httplimit.Address(), tt.key)} {
			response := serve(newHandler(t, limiter, "100/d", key, ok), get("/", tt.lines...))
			checkStatus(t, response, http.StatusBadRequest)
			if detail, want := body(t, response)["detail"], "the request has several different values for the "+tt.want+"; send one"; detail != want {
				t.Errorf("%q: %v, want %s", tt.lines, detail, want)
			}
		}
	}
	if keys := must[any](t)(server.Do("KEYS", "*")); len(keys.([]any)) != 0 {
		t.Errorf("counted under %q", keys)
	}
}

func TestPattern(t *testing.T) {
	limiter, _ := newLimiter(t)
	handler := newHandler(t, limiter, "100/d", httplimit.Pattern(), ok, httplimit.WithOnError(func(_ *http.Request, err error) { t.Log(err) }))
	mux := http.NewServeMux()
	mux.Handle("/items/{id}", handler)
	serve(mux, get("/items/1"))
	serve(mux, get("/items/2"))
	limitertest.WantUsed(t, limiter, "api|route=/items/%7Bid%7D", 2)

	// In middleware around the mux, the pattern is not known. WithOnError gets an error, and the request
	// is allowed, because the client did nothing wrong.
	var found error
	handler = newHandler(t, limiter, "100/d", httplimit.Pattern(), mux, httplimit.WithOnError(func(_ *http.Request, err error) { found = err }))
	checkStatus(t, serve(handler, get("/items/1")), http.StatusOK)
	if found == nil || !strings.Contains(found.Error(), "the request has no pattern") {
		t.Error(found)
	}
}

// If a key function returns an error, WithOnError gets the error, and the request is allowed. FirstOf
// does not try the next key.
func TestKeyThatFails(t *testing.T) {
	limiter, _ := newLimiter(t)
	broken := errors.New("no directory of tenants")
	key := httplimit.FirstOf(httplimit.Func("tenant", func(*http.Request) (string, error) { return "", broken }), httplimit.Address())
	var found error
	handler := newHandler(t, limiter, "100/d", key, ok, httplimit.WithOnError(func(_ *http.Request, err error) { found = err }))
	checkStatus(t, serve(handler, get("/")), http.StatusOK)
	if !errors.Is(found, broken) {
		t.Error(found)
	}
	limitertest.WantUsed(t, limiter, "api|address=192.0.2.1", 0)
}

func TestNewRefuses(t *testing.T) {
	limiter, _ := newLimiter(t)
	key := httplimit.Address()
	none := func(*http.Request) (string, error) { return "", nil }
	policy := httplimit.Policy{Name: "a", Limit: "1/s", Quota: 1, Window: 1}
	twice := func(opt httplimit.Option) []httplimit.Option { return []httplimit.Option{opt, opt} }
	second := httplimit.WithRefuseOnError(time.Second)
	for _, tt := range []struct {
		limiter client.Limiter
		name    string
		limit   client.Limit
		key     httplimit.Key
		opts    []httplimit.Option
		want    string
	}{
		{nil, "api", "1/s", key, nil, "the limiter is nil; make one with client.Open or client.New"},
		{(*client.Client)(nil), "api", "1/s", key, nil, "the limiter is a nil *client.Client; make one with client.Open or client.New"},
		{(*wrapped)(nil), "api", "1/s", key, nil, "the limiter is a nil *httplimit_test.wrapped; make one"},
		{&wrapped{}, "api", "1/s", key, nil, "the limiter beneath *httplimit_test.wrapped is nil; make one"},
		{&wrapped{&wrapped{(*client.Client)(nil)}}, "api", "1/s", key, nil, "the limiter beneath *httplimit_test.wrapped is a nil *client.Client; make one"},
		{limiter, "api", "", key, nil, "the limit is empty; give one such as 100/m"},
		{limiter, "", "1/s", key, nil, "the name is empty; give what is limited or called, such as api or partner"},
		{limiter, strings.Repeat("x", 130), "1/s", key, nil, "has 130 bytes; give 1 to 129"},
		{limiter, "a|b", "1/s", key, nil, `the name "a|b" holds '|'; use letters, digits`},
		{limiter, "a\r\nb", "1/s", key, nil, `holds '\r'`},
		{limiter, "é", "1/s", key, nil, `the name "é" holds`},
		{limiter, "api", "1/s", httplimit.Key{}, nil, "key 1 of New is the zero Key; make it with Address"},
		{limiter, "api", "1/s", httplimit.Join(), nil, "Join without keys; give at least one"},
		{limiter, "api", "1/s", httplimit.FirstOf(key, httplimit.Key{}), nil, "key 2 of FirstOf is the zero Key"},
		{limiter, "api", "1/s", httplimit.Join(key, httplimit.Header("")), nil, "Header without a name"},
		{limiter, "api", "1/s", httplimit.Header("host"), nil, `use Func("host", f) with an f that returns Request.Host`},
		{limiter, "api", "1/s", httplimit.Cookie(""), nil, "Cookie without a name"},
		{limiter, "api", "1/s", httplimit.Pattern(nil), nil, "Pattern([<nil>])"},
		{limiter, "api", "1/s", httplimit.Func("", none), nil, "Func without a name or a function"},
		{limiter, "api", "1/s", httplimit.Func("a", nil), nil, "Func without a name or a function"},
		{limiter, "api", "1/s", httplimit.Address(nil), nil, "an option of Address is nil"},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithTrustedProxies("X-Forwarded-For", "10.0.0.0/33")), nil, `WithTrustedProxies: "10.0.0.0/33" is not a network; write an address, unix: or one such as 10.0.0.0/8`},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithTrustedProxies("X-Forwarded-For", "fe80::1%eth0")), nil, `"fe80::1%eth0" is not a network`},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithTrustedProxies("X-Forwarded-For", "::ffff:10.0.0.0/104")), nil, "is an IPv4 network written as IPv6"},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithTrustedProxies("10.0.0.0/8")), nil, `WithTrustedProxies: "10.0.0.0/8" is not a field that is read; give X-Forwarded-For or Forwarded, then the networks`},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithTrustedProxies("Forwarded", "10.0.0.0/8"), httplimit.WithTrustedProxies("x-forwarded-for", "unix:")), nil, "both Forwarded and X-Forwarded-For are given"},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithIPv6Prefix(0)), nil, "WithIPv6Prefix(0); give the size of a network"},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithIPv6Prefix(129)), nil, "WithIPv6Prefix(129)"},
		{limiter, "api", "1/s", key, []httplimit.Option{nil}, "an option is nil"},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithSkip(nil)}, "WithSkip(nil)"},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithRequest(nil)}, "WithRequest(nil)"},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithOnError(nil)}, "WithOnError(nil)"},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithRefuseOnError(999)}, "WithRefuseOnError(999ns); give at least a second"},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithPolicies(httplimit.Policy{Limit: "1/s", Quota: 1, Window: 1})}, `the name "" has 0 bytes`},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithPolicies(httplimit.Policy{Name: "a", Quota: 1, Window: 1})}, `policy "a" has no limit`},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithPolicies(httplimit.Policy{Name: "a", Limit: "1/s", Window: 1})}, `policy "a" has the quota 0 and the window 1ns; give both`},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithPolicies(httplimit.Policy{Name: "a", Limit: "1/s", Quota: 1})}, `the window 0s`},
		{limiter, "api", "1/s", key, []httplimit.Option{httplimit.WithPolicies(policy), httplimit.WithPolicies(policy)}, `policy "a" has the name or the quota of another one of "1/s"`},
		{limiter, "api", "1/s", httplimit.Address(httplimit.WithIPv6Prefix(56), httplimit.WithIPv6Prefix(64)), nil, "WithIPv6Prefix is given twice, as 56 and as 64; give it once"},
		{limiter, "api", "1/s", key, []httplimit.Option{second, httplimit.WithRefuseOnError(time.Minute)}, `WithRefuseOnError is given twice, as "1s" and as "1m0s"; give it once`},
		{limiter, "api", "1/s", key, twice(httplimit.WithPenalty(time.Second, time.Minute, time.Hour)), `WithPenalty is given twice, as "1s 1m0s 1h0m0s" and as "1s 1m0s 1h0m0s"`},
		{limiter, "api", "1/s", key, twice(httplimit.WithRequest(func(*http.Request, *client.Request) error { return nil })), "WithRequest is given twice; give it once"},
		{limiter, "api", "1/s", key, twice(httplimit.WithOnError(func(*http.Request, error) {})), "WithOnError is given twice; give it once"},
		{limiter, "api", "1/s", key, twice(httplimit.WithDelay()), "WithDelay is given twice"},
		{limiter, "api", "1/s", key, twice(httplimit.WithRefuseMisconfigured()), "WithRefuseMisconfigured is given twice"},
		{limiter, "api", "1/s", key, twice(httplimit.WithXHeaders()), "WithXHeaders is given twice"},
	} {
		middleware, err := httplimit.New(tt.limiter, tt.name, tt.limit, tt.key, tt.opts...)
		if middleware != nil || err == nil || !strings.HasPrefix(err.Error(), "ratelimit: httplimit.New: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}
