package dashboard

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestMain ignores a goroutine of go-redis. If a pool fails to dial, this goroutine retries once a
// second. It can therefore outlive the closed pool by a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// get sends a request to a handler, with the host 127.0.0.1 unless change sets another.
func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Host = "127.0.0.1:8088"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// Without a token, only requests to a local host name are served, even if the name of
// another site resolves to this address.
func TestHost(t *testing.T) {
	h := New(Source{}).Handler("", false)
	for name, want := range map[string]int{
		"127.0.0.1:8088": 200, "127.9.9.9": 200, "localhost:8088": 200, "LOCALHOST": 200, "[::1]:8088": 200, "[::1]": 200,
		"evil.example:8088": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example:80": 403, "10.0.0.1:8088": 403, "": 403, "0.0.0.0:8088": 403,
	} {
		if got := get(h, "/", host(name)); got.Code != want {
			t.Errorf("Host %q: %d, want %d", name, got.Code, want)
		}
	}
}

// A page of another site, or of another port of this machine, can make a browser send requests
// here. The other page cannot read the replies. But each request for /events would count as a
// viewer, and other requests would send commands to the servers. Therefore requests that come from
// another site are refused, unless they follow a link to the dashboard page (/).
func TestOtherSites(t *testing.T) {
	type headers map[string]string
	const origin, site, mode, dest = "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"
	for _, tt := range []struct {
		name       string
		headers    headers
		page, rest bool // page: whether / is served; rest: whether the other paths are served
	}{
		{"no browser", headers{}, true, true},
		{"an address that was typed", headers{site: "none", mode: "navigate", dest: "document"}, true, true},
		{"the page itself", headers{site: "same-origin", mode: "cors", dest: "empty"}, true, true},
		{"the page itself, with its origin", headers{site: "same-origin", origin: "http://127.0.0.1:8088"}, true, true},
		{"the page itself, behind a proxy that changes the host", headers{site: "same-origin", origin: "https://dashboard.example"}, true, true},
		{"a link of another site", headers{site: "cross-site", mode: "navigate", dest: "document"}, true, false},
		{"a link of another port", headers{site: "same-site", mode: "navigate", dest: "document"}, true, false},
		{"a frame of another site", headers{site: "cross-site", mode: "navigate", dest: "iframe"}, false, false},
		{"an EventSource of another site", headers{site: "cross-site", mode: "cors", dest: "empty", origin: "https://evil.example"}, false, false},
		{"an EventSource of another port", headers{site: "same-site", mode: "cors", dest: "empty", origin: "http://127.0.0.1:3000"}, false, false},
		{"fetch without CORS", headers{site: "cross-site", mode: "no-cors", dest: "empty"}, false, false},
		{"an image", headers{site: "cross-site", mode: "no-cors", dest: "image"}, false, false},
		{"a site that no browser knows", headers{site: "nearby"}, false, false},
		{"an old browser, the page itself", headers{origin: "http://127.0.0.1:8088"}, true, true},
		{"an old browser, another site", headers{origin: "https://evil.example"}, false, false},
		{"an old browser, another port", headers{origin: "http://127.0.0.1:3000"}, false, false},
		{"an old browser, a page without an origin", headers{origin: "null"}, false, false},
	} {
		for token, bearer := range map[string]string{"": "", "sixteen letters!": "Bearer sixteen letters!"} {
			d := New(Source{})
			h := d.Handler(token, false)
			for _, path := range []string{"/", "/?x", "/app.js", "/style.css", "/peek", "/usage", "/events", "/none"} {
				got := get(h, path, func(r *http.Request) {
					for name, value := range tt.headers {
						r.Header.Set(name, value)
					}
					r.Header.Set("Authorization", bearer)
					ctx, gone := context.WithCancel(r.Context())
					gone() // ends /events
					*r = *r.WithContext(ctx)
				})
				served := tt.rest
				if strings.HasPrefix(path, "/?") || path == "/" {
					served = tt.page
				}
				if (got.Code != http.StatusForbidden) != served {
					t.Errorf("%s, token %q, %s: %d %s", tt.name, token, path, got.Code, got.Body)
				}
			}
		}
	}
}

// If the dashboard has a token, every path requires it. A request for /?token=TOKEN sets a cookie,
// whose value is not the token.
func TestToken(t *testing.T) {
	const token = "0123456789 ;äöü\""
	h := New(Source{}).Handler(token, false)
	bearer := func(text string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", text) }
	}
	for _, path := range []string{"/", "/?token=", "/?token=0123456789", "/app.js", "/style.css", "/events", "/peek?key=k&limit=1/s", "/usage?key=aw", "/metrics", "/none"} {
		if got := get(h, path, host("machine.example")); got.Code != http.StatusUnauthorized || strings.Contains(got.Body.String(), token) {
			t.Errorf("%s without the token: %d %s", path, got.Code, got.Body)
		}
	}
	for text, want := range map[string]int{"Bearer " + token: 200, "Bearer x": 401, "Bearer ": 401, token: 401, "Basic " + token: 401} {
		if got := get(h, "/", bearer(text)); got.Code != want {
			t.Errorf("%s: %d, want %d", text, got.Code, want)
		}
	}
	in := get(h, "/?token=0123456789%20;%C3%A4%C3%B6%C3%BC%22", host("machine.example"))
	if in.Code != http.StatusUnauthorized { // net/url rejects a bare semicolon
		t.Errorf("%d", in.Code)
	}
	in = get(h, "/?token=0123456789+%3B%C3%A4%C3%B6%C3%BC%22", host("machine.example"))
	cookies := in.Result().Cookies()
	if in.Code != http.StatusSeeOther || in.Header().Get("Location") != "/" || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || strings.Contains(cookies[0].Value, "0123") {
		t.Fatalf("%d %v", in.Code, in.Header())
	}
	if cookies[0].Secure {
		t.Error("the cookie is for TLS only")
	}
	behind := get(New(Source{}).Handler(token, true), "/?token=0123456789+%3B%C3%A4%C3%B6%C3%BC%22", host("machine.example"))
	if cookies := behind.Result().Cookies(); len(cookies) != 1 || !cookies[0].Secure {
		t.Errorf("behind TLS: %v", cookies)
	}
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookies[0].Name, Value: value}) }
	}
	if got := get(h, "/app.js", with(cookies[0].Value)); got.Code != 200 {
		t.Errorf("with the cookie: %d", got.Code)
	}
	if got := get(h, "/app.js", with(cookies[0].Value+"x")); got.Code != http.StatusUnauthorized {
		t.Errorf("with another cookie: %d", got.Code)
	}
}

// Only GET and HEAD are accepted, and the headers of every response restrict the page to what it
// needs.
func TestReadOnly(t *testing.T) {
	h := New(Source{}).Handler("", false)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		for _, path := range []string{"/", "/peek", "/usage", "/metrics", "/events"} {
			if got := get(h, path, func(r *http.Request) { r.Method = method }); got.Code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d", method, path, got.Code)
			}
		}
	}
	for path, want := range map[string]int{"/": 200, "/app.js": 200, "/style.css": 200, "/page/": 404, "/dashboard.go": 404, "/peek": 422} {
		got := get(h, path)
		policy := got.Header().Get("Content-Security-Policy")
		if got.Code != want || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'") || strings.Contains(policy, "unsafe") || got.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d, want %d; %v", path, got.Code, want, got.Header())
		}
		if body := got.Body.String(); want == 200 && (strings.Contains(body, "http://") || strings.Contains(body, "https://") || strings.Contains(body, "innerHTML")) &&
			!strings.Contains(body, "http://www.w3.org/2000/svg") {
			t.Errorf("%s loads something from elsewhere, or makes HTML of text", path)
		}
	}
}

// Invalid requests are refused before they reach a server. A server's error is explained.
func TestAsking(t *testing.T) {
	build := must[functions.Build](t)(functions.New(functions.WithPolicies(functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "a", Limit: "3/d"}, {Key: "b", Limit: "2/d"}}})))
	rdb := redis.NewClient(&redis.Options{Addr: embedded.Run(t, embedded.WithLibrary(build.Text())).Addr(), ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	asked := 0
	h := New(Source{
		Timeout: time.Minute,
		Connect: func(context.Context) (redis.UniversalClient, error) {
			asked++
			return rdb, nil
		},
		Explain: func(err error) string { return "explained: " + err.Error() },
	}).Handler("", false)
	require(t, rdb.FCall(t.Context(), "ratelimit_take", []string{"x", "<b>"}, "1/d", "TRACK").Err())
	require(t, rdb.FCall(t.Context(), "ratelimit_override", []string{"o"}, "7/h", 60000).Err())
	for _, path := range []string{"/peek", "/peek?key=a", "/peek?limit=1/s", "/peek?key=&limit=1/s", "/peek?key=a&key=&limit=1/s", "/peek?key=a&limit=%20", "/usage", "/usage?key=", "/usage?key=!"} {
		if got := get(h, path); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), `{"error":"give a key`) {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	if asked != 0 {
		t.Errorf("a server was asked %d times", asked)
	}
	for path, want := range map[string]string{
		"/peek?key=a&key=%3Cc%3E&limit=@calc": `{"allowed":true,"limit":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":43200000,"index":2,"key":"\u003cc\u003e"}`,
		"/peek?key=a&key=x&limit=1/d":         `{"allowed":false,"limit":1,"remaining":0,`,
		"/peek?key=o&limit=1/d":               `{"allowed":true,"limit":7,"remaining":6,`,
		"/peek?key=a&limit=x":                 `{"error":"explained: `,
		"/usage?key=PGI-":                     `{"allowed":1,"denied":0,"cost":1,"first_ms":`,
	} {
		if got := get(h, path); !strings.HasPrefix(got.Body.String(), want) || got.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s, want %s", path, got.Body, want)
		}
	}
}

// A viewer gets the newest state, even if it reads slowly. The number of viewers is limited; when a
// viewer leaves, another can connect.
func TestViewers(t *testing.T) {
	d := New(Source{Name: "redis://a"})
	server := httptest.NewServer(d.Handler("", false))
	defer server.Close()
	states, leave, _ := d.view()
	for _, name := range []string{"redis://b", "redis://c"} {
		d.publish(func(s *state) { s.Servers = name })
	}
	if got := string(<-states); !strings.Contains(got, "redis://c") {
		t.Errorf("the newest state is %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+"/events", nil)
	reply := must[*http.Response](t)(server.Client().Do(r))
	head := make([]byte, len("retry: 2000\n\ndata: {\"servers\":\"redis://c\""))
	if _, err := io.ReadFull(reply.Body, head); err != nil || reply.Header.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(string(head), `"redis://c"`) {
		t.Errorf("%v: %q, %v", err, head, reply.Header)
	}
	cancel()
	_ = reply.Body.Close()
	server.Close() // returns when this viewer has left
	var leaves []func()
	for {
		_, leave, ok := d.view()
		if !ok {
			break
		}
		leaves = append(leaves, leave)
	}
	if got := get(d.Handler("", false), "/events"); got.Code != http.StatusServiceUnavailable || len(leaves) != viewers-1 {
		t.Errorf("%d viewers, and one more gets %d", len(leaves)+1, got.Code)
	}
	leave()
	if _, _, ok := d.view(); !ok {
		t.Error("a place that was freed is not used again")
	}
}

// A viewer that leaves makes room for another.
func TestViewersLeave(t *testing.T) {
	d := New(Source{})
	ctx, gone := context.WithCancel(t.Context())
	gone()
	for i := range viewers + 1 {
		got := get(d.Handler("", false), "/events", func(r *http.Request) { *r = *r.WithContext(ctx) })
		if got.Code != http.StatusOK || d.watched() {
			t.Fatalf("viewer %d gets %d; after it left, the dashboard has viewers: %v", i+1, got.Code, d.watched())
		}
	}
}
