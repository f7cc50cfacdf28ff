package httplimit

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// A Key selects the key under which a request is counted. The functions of this package make keys;
// the zero value is not usable. A Key may be shared.
type Key struct{ key keytext.Key[*http.Request] }

var keys = keytext.Keys[*http.Request]{Such: "Address()", Makers: "Address, Header, Cookie, Pattern or Func"}

// Func counts requests by the result of f: Func("tenant", tenant) uses keys such as "tenant=acme".
// An empty result is treated as [key.ErrMissing].
//
// f may return any text. A value longer than 128 bytes is replaced by a hash, and control
// characters and % | { } are percent-encoded. So no value can imitate another key or change its
// hash slot in a cluster.
func Func(name string, f func(*http.Request) (string, error)) Key { return Key{keys.Func(name, f)} }

// Header counts requests by the value of a header, such as Header("X-Api-Key"). A request with
// several different values gets 400 Bad Request, because the application may use another one than
// the limit. The key contains the first 32 hexadecimal digits of the value's SHA-256:
// "header:X-Api-Key~" and the digits. Spaces around the value are removed. In Authorization, the
// scheme is put in lower case, with one space behind it, so that "Bearer T" and "bearer  T" count
// under one key. The spellings of the base64 of Basic count under one key, too.
//
// A client that sends a new value each time counts as a new client each time. Put middleware that
// verifies the header, or middleware with [Address], around this one. The same applies to [Cookie].
func Header(name string) Key {
	if name = http.CanonicalHeaderKey(name); name == "Host" {
		return unusable(errors.New("Header(\"Host\"), which net/http keeps apart; use Func(\"host\", f) with an f that returns Request.Host"))
	}
	return Key{keys.Secret("Header", "X-Api-Key", name, func(r *http.Request) []string { return r.Header[name] })}
}

// Cookie counts each request by the value of a cookie, without quotes and percent-encoding. A space
// and + count as the same. A request with several different values gets 400 Bad Request. The value is
// hashed as with [Header].
func Cookie(name string) Key {
	return Key{keys.Secret("Cookie", "session", name, func(r *http.Request) []string {
		var values []string
		for _, cookie := range r.CookiesNamed(name) {
			values = append(values, keytext.Cookie(cookie.Value))
		}
		return values
	})}
}

// unusable returns a Key for which New returns err.
func unusable(err error) Key { return Key{keytext.Key[*http.Request]{Err: err}} }

// Pattern counts each request by the pattern of its route, which [http.ServeMux] and compatible
// routers store in [http.Request.Pattern]: "route=GET /items/%7Bid%7D". It is for middleware around
// single handlers of the router. Around a ServeMux the pattern is not known yet: give the mux, as in
// Pattern(mux). All requests without a pattern in mux share one key.
func Pattern(mux ...*http.ServeMux) Key {
	switch {
	case len(mux) == 0:
		return Func("route", func(r *http.Request) (string, error) {
			if r.Pattern == "" {
				return "", errors.New("httplimit.Pattern: the request has no pattern; put the middleware around the handlers of the router, or give the ServeMux, as in Pattern(mux)")
			}
			return r.Pattern, nil
		})
	case len(mux) > 1 || mux[0] == nil:
		return unusable(fmt.Errorf("Pattern(%v); give the one ServeMux that the middleware is around", mux))
	}
	return Func("route", func(r *http.Request) (string, error) {
		_, pattern := mux[0].Handler(r)
		return cmp.Or(pattern, "none"), nil
	})
}

// Join counts each request by all of the given keys together: with Join(Pattern(), Address()), each
// address has its own limit on each route. If a request lacks one of the keys, it has no key.
func Join(of ...Key) Key { return Key{keys.Join(parts(of))} }

// FirstOf counts each request by the first of the given keys that it has: with
// FirstOf(Header("X-Api-Key"), Address()), requests without the header are limited by their
// address.
func FirstOf(of ...Key) Key { return Key{keys.FirstOf(parts(of))} }

func parts(of []Key) []keytext.Key[*http.Request] {
	found := make([]keytext.Key[*http.Request], len(of))
	for i, k := range of {
		found[i] = k.key
	}
	return found
}
