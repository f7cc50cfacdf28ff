package dashboard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

//go:embed page
var files embed.FS

// Handler serves the page, its data and the metrics, to GET and HEAD requests only. With a token it
// serves only clients that send the token: once as /?token=TOKEN, or always as
// "Authorization: Bearer TOKEN". Without a token it serves only requests to a local host name, to
// prevent DNS rebinding. It refuses requests that a browser sends on behalf of a page from another
// site or port, unless they follow a link to the dashboard page (/). behindTLS reports that a proxy
// with TLS is in front of it, so that browsers may send the cookie over TLS only.
func (d *Dashboard) Handler(token string, behindTLS bool) http.Handler {
	page, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the path is a constant
	}
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", http.FileServerFS(page))
	mux.Handle("GET /style.css", http.FileServerFS(page))
	mux.Handle("GET /app.js", http.FileServerFS(page))
	mux.HandleFunc("GET /events", d.events)
	mux.HandleFunc("GET /peek", d.peek)
	mux.HandleFunc("GET /usage", d.usage)
	mux.HandleFunc("GET /metrics", d.metrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case token == "" && !local(r.Host):
			http.Error(w, fmt.Sprintf("%.100q is not a local name of this machine; open the address that ratelimit dashboard printed", r.Host), http.StatusForbidden)
		case fromElsewhere(r):
			http.Error(w, "a page of another site asked for this; open the address that ratelimit dashboard printed", http.StatusForbidden)
		case token != "" && r.URL.Path == "/" && r.URL.Query().Has("token") && same(r.URL.Query().Get("token"), token):
			http.SetCookie(w, &http.Cookie{Name: cookie, Value: value(token), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: behindTLS})
			http.Redirect(w, r, "/", http.StatusSeeOther) // removes the token from the address bar
		case token != "" && !allowed(r, token):
			http.Error(w, "this dashboard asks for its token; open the address with ?token= that ratelimit dashboard printed", http.StatusUnauthorized)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

const cookie = "ratelimit_dashboard"

// value returns the value of the cookie for token. It is not the token itself, which may contain
// characters that are not allowed in a cookie.
func value(token string) string {
	sum := sha256.Sum256([]byte("ratelimit dashboard " + token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// same compares two strings in constant time.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

func allowed(r *http.Request, token string) bool {
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(bearer, token)
	}
	given, err := r.Cookie(cookie)
	return err == nil && same(given.Value, value(token))
}

// fromElsewhere reports whether a browser sends the request for a page of another origin, unless
// the request follows a link to the dashboard page (/). Browsers send Sec-Fetch-Site only to local
// addresses and over TLS. Without it, Origin may name the page's origin.
func fromElsewhere(r *http.Request) bool {
	switch h := r.Header; h.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "":
		origin, err := url.Parse(h.Get("Origin"))
		return h.Get("Origin") != "" && (err != nil || origin.Host != r.Host)
	default:
		return r.URL.Path != "/" || h.Get("Sec-Fetch-Mode") != "navigate" || h.Get("Sec-Fetch-Dest") != "document"
	}
}

// local reports whether a Host header names this machine by a loopback address or as localhost.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = strings.Trim(host, "[]")
	}
	return strings.EqualFold(name, "localhost") || net.ParseIP(name).IsLoopback()
}

func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	states, leave, ok := d.view()
	if !ok {
		http.Error(w, fmt.Sprintf("%d pages are open already; close one", viewers), http.StatusServiceUnavailable)
		return
	}
	defer leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(text string) bool {
		_ = out.SetWriteDeadline(time.Now().Add(10 * time.Second)) // disconnect a page that stops reading
		_, err := fmt.Fprint(w, text)
		return err == nil && out.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case text := <-states:
			if !send("data: " + string(text) + "\n\n") {
				return
			}
		case <-time.After(15 * time.Second): // some proxies close idle connections
			if !send(": \n\n") {
				return
			}
		}
	}
}

// peek serves the state of a limiter: ?key=...&key=...&limit=...
func (d *Dashboard) peek(w http.ResponseWriter, r *http.Request) {
	keys, limit := r.URL.Query()["key"], strings.TrimSpace(r.URL.Query().Get("limit"))
	if len(keys) == 0 || slices.Contains(keys, "") || limit == "" {
		refuse(w, "give a key and its limit, such as 100/m or @policy")
		return
	}
	d.answer(w, r, func(ctx context.Context, c *client.Client) (any, error) { return readLimiter(ctx, c, keys, limit) })
}

// usage serves the counts of a usage key: ?key=..., in base64url.
func (d *Dashboard) usage(w http.ResponseWriter, r *http.Request) {
	key, err := base64.RawURLEncoding.DecodeString(r.URL.Query().Get("key"))
	if err != nil || len(key) == 0 {
		refuse(w, "give a key, in base64url")
		return
	}
	d.answer(w, r, func(ctx context.Context, c *client.Client) (any, error) {
		u, err := c.Usage(ctx, string(key))
		return replyjson.OfUsage(u), err
	})
}

func (d *Dashboard) answer(w http.ResponseWriter, r *http.Request, read func(context.Context, *client.Client) (any, error)) {
	var content any
	rdb, err := d.connection(r.Context())
	if err == nil {
		var c *client.Client
		if c, err = client.New(rdb, client.WithTimeout(d.from.Timeout)); err == nil {
			content, err = read(r.Context(), c)
		}
	}
	if err != nil {
		refuse(w, d.from.Explain(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content)
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusUnprocessableEntity)
	_ = json.NewEncoder(w).Encode(struct {
		Error string `json:"error"`
	}{why})
}
