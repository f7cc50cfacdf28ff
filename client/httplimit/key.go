package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client/internal/keytext"
)

// ErrNoKey is the error of a [Func] for a request that lacks what it is to be counted under. The client then gets 400 Bad
// Request with the text of the error, or [FirstOf] tries what comes next. Any other error is one of the server, and there is no decision.
var ErrNoKey = errors.New("the request lacks what it is limited by")

// Key says what a request is counted under. The functions of this package make one; the zero value is not usable. It may
// be shared.
type Key struct {
	of  func(*http.Request) (string, error)
	err error // what is wrong with the Key; New returns it
}

// Func counts a request under what f returns: Func("tenant", tenant) uses "tenant=acme". An empty text is [ErrNoKey].
//
// Whatever f returns is safe to use: of a value above 128 bytes a hash is used, and control characters and % | { } are
// written as in a URL, so that no value passes for a part of another key or moves it in a cluster.
func Func(name string, f func(*http.Request) (string, error)) Key {
	if name == "" || f == nil {
		return Key{err: errors.New("Func without a name or a function; give both, as in Func(\"tenant\", tenantOf)")}
	}
	name = keytext.Escape(name)
	return Key{of: func(r *http.Request) (string, error) {
		value, err := f(r)
		switch {
		case err != nil:
			return "", err
		case value == "":
			return "", fmt.Errorf("%w: no %s", ErrNoKey, name)
		}
		return keytext.Value(name, value), nil
	}}
}

// Header counts a request under the value of a header, the first of several: Header("X-Api-Key"). Of the value the first 32
// hexadecimal digits of its SHA-256 are used: "header:X-Api-Key~" and these.
//
// Who sends another value each time is a new client each time. Put what verifies the header in front of the middleware, or
// an outer middleware by [Address] around it; so with [Cookie].
func Header(name string) Key {
	if name == "" {
		return Key{err: errors.New("Header without a name; give one, as in Header(\"X-Api-Key\")")}
	}
	name = http.CanonicalHeaderKey(name)
	return secret("header", name, func(r *http.Request) string { return r.Header.Get(name) })
}

// Cookie counts a request under the value of a cookie, the first of several, hashed as that of a [Header].
func Cookie(name string) Key {
	if name == "" {
		return Key{err: errors.New("Cookie without a name; give one, as in Cookie(\"session\")")}
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
	return Key{of: func(r *http.Request) (string, error) {
		v := value(r)
		if v == "" {
			return "", fmt.Errorf("%w: no %s %s", ErrNoKey, kind, name)
		}
		return keytext.Secret(kind, name, v), nil
	}}
}

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
		return Key{err: errors.New("PatternOf(nil); give the ServeMux that serves the requests")}
	}
	return Func("route", func(r *http.Request) (string, error) {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern, nil
		}
		return "none", nil
	})
}

// Join counts a request under all of keys together: with Join(Pattern(), Address()) each address has the limit on each
// route. A request that lacks one of them lacks all.
func Join(keys ...Key) Key {
	if err := usable("Join", keys); err != nil {
		return Key{err: err}
	}
	return Key{of: func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			var err error
			if parts[i], err = key.of(r); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, "|"), nil
	}}
}

// FirstOf counts a request under the first of keys that it has: with FirstOf(Header("X-Api-Key"), Address()) requests
// without the header are limited by their address.
func FirstOf(keys ...Key) Key {
	if err := usable("FirstOf", keys); err != nil {
		return Key{err: err}
	}
	return Key{of: func(r *http.Request) (key string, err error) {
		for _, k := range keys {
			if key, err = k.of(r); !errors.Is(err, ErrNoKey) {
				break
			}
		}
		return key, err
	}}
}

func usable(what string, keys []Key) error {
	if len(keys) == 0 {
		return fmt.Errorf("%s without keys; give at least one, such as Address()", what)
	}
	for i, key := range keys {
		switch {
		case key.err != nil:
			return key.err
		case key.of == nil:
			return fmt.Errorf("key %d of %s is the zero Key; make it with Address, Header, Cookie, Pattern or Func", i+1, what)
		}
	}
	return nil
}
