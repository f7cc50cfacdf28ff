package httplimit

import (
	"errors"
	"net/http"

	"github.com/ratelimit-functions/ratelimit/client/internal/keytext"
)

// ErrNoKey is the error of a [Func] for a request that lacks what it is to be counted under. The client then gets 400 Bad
// Request with the text of the error, or [FirstOf] tries what comes next. Any other error is one of the server, and there is no decision.
var ErrNoKey = errors.New("the request lacks what it is limited by")

// Key says what a request is counted under. The functions of this package make one; the zero value is not usable. It may
// be shared.
type Key struct{ key keytext.Key[*http.Request] }

var keys = keytext.Keys[*http.Request]{Missing: ErrNoKey, Such: "Address()", Makers: "Address, Header, Cookie, Pattern or Func"}

// Func counts a request under what f returns: Func("tenant", tenant) uses "tenant=acme". An empty text is [ErrNoKey].
//
// Whatever f returns is safe to use: of a value above 128 bytes a hash is used, and control characters and % | { } are
// written as in a URL, so that no value passes for a part of another key or moves it in a cluster.
func Func(name string, f func(*http.Request) (string, error)) Key { return Key{keys.Func(name, f)} }

// Header counts a request under the value of a header, the first of several: Header("X-Api-Key"). Of the value the first 32
// hexadecimal digits of its SHA-256 are used: "header:X-Api-Key~" and these.
//
// Who sends another value each time is a new client each time. Put what verifies the header in front of the middleware, or
// an outer middleware by [Address] around it; so with [Cookie].
func Header(name string) Key {
	if name == "" {
		return unusable(errors.New("Header without a name; give one, as in Header(\"X-Api-Key\")"))
	}
	if name = http.CanonicalHeaderKey(name); name == "Host" {
		return unusable(errors.New("Header(\"Host\"), which net/http keeps apart; use Func(\"host\", f) with an f that returns Request.Host"))
	}
	return secret("header", name, func(r *http.Request) string { return r.Header.Get(name) })
}

// Cookie counts a request under the value of a cookie, the first of several, hashed as that of a [Header].
func Cookie(name string) Key {
	if name == "" {
		return unusable(errors.New("Cookie without a name; give one, as in Cookie(\"session\")"))
	}
	return secret("cookie", name, func(r *http.Request) string {
		cookie, err := r.Cookie(name)
		if err != nil {
			return ""
		}
		return cookie.Value
	})
}

func secret(kind, name string, value func(*http.Request) string) Key {
	return Key{keys.Secret(kind, name, value)}
}

// unusable is a Key that New returns an error for.
func unusable(err error) Key { return Key{keytext.Key[*http.Request]{Err: err}} }

// Pattern counts a request under the pattern of its route, as [http.ServeMux] and routers that follow it write it into
// [http.Request.Pattern]: "route=GET /items/%7Bid%7D". It is for middleware that the router calls, around single handlers.
// Around a ServeMux the pattern is not known yet: use [PatternOf].
func Pattern() Key {
	return Func("route", func(r *http.Request) (string, error) {
		if r.Pattern == "" {
			return "", errors.New("httplimit.Pattern: the request has no pattern; put the middleware around the handlers of the router, or use PatternOf")
		}
		return r.Pattern, nil
	})
}

// PatternOf counts a request under the pattern by which mux will serve it, for middleware around mux. All requests that
// mux has no pattern for share one key.
func PatternOf(mux *http.ServeMux) Key {
	if mux == nil {
		return unusable(errors.New("PatternOf(nil); give the ServeMux that serves the requests"))
	}
	return Func("route", func(r *http.Request) (string, error) {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern, nil
		}
		return "none", nil
	})
}

// Join counts a request under all of these keys together: with Join(Pattern(), Address()) each address has the limit on each
// route. A request that lacks one of them lacks all.
func Join(of ...Key) Key { return Key{keys.Join(parts(of))} }

// FirstOf counts a request under the first of these keys that it has: with FirstOf(Header("X-Api-Key"), Address()) requests
// without the header are limited by their address.
func FirstOf(of ...Key) Key { return Key{keys.FirstOf(parts(of))} }

func parts(of []Key) []keytext.Key[*http.Request] {
	found := make([]keytext.Key[*http.Request], len(of))
	for i, k := range of {
		found[i] = k.key
	}
	return found
}
