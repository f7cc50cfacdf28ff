package keytext

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Key derives a key from a value of type C, such as a request; calls with the same key are counted
// together. Err is set if the Key is invalid. The zero value is not usable.
type Key[C any] struct {
	Of  func(C) (string, error)
	Err error
}

// Keys makes Key values for one package. Its fields appear in that package's errors.
type Keys[C any] struct {
	Such   string // an example of a key, for errors
	Makers string // the functions that make keys, for errors
}

// Func returns a Key that consists of name and the result of f.
func (k Keys[C]) Func(name string, f func(C) (string, error)) Key[C] {
	if name == "" || f == nil {
		return Key[C]{Err: errors.New("Func without a name or a function; give both, as in Func(\"tenant\", tenantOf)")}
	}
	name = Escape(name)
	return Key[C]{Of: func(c C) (string, error) {
		value, err := f(c)
		switch {
		case err != nil:
			return "", err
		case value == "":
			return "", fmt.Errorf("%w: no %s", ErrMissing, name)
		}
		return Value(name, value), nil
	}}
}

// ErrMissing is the error if a C lacks the value for the key.
var ErrMissing = errors.New("the request lacks what it is limited by")

// ErrDiffer is the error of a [Keys.Secret] for a C with several values. It is not ErrMissing, so
// FirstOf does not try the next key.
var ErrDiffer = errors.New("several different values")

// Secret returns a Key that contains a hash of the one value that values returns. Spellings of the
// same credential have the same hash. If the values differ, the Key returns [ErrDiffer]: only the
// application knows which of them it uses, so a client could count under one and be served under
// another. maker is the name of the exported function that calls Secret, such as "Header"; its
// lower-case form is part of the key. example is a sample argument for error messages.
func (k Keys[C]) Secret(maker, example, name string, values func(C) []string) Key[C] {
	if name == "" {
		return Key[C]{Err: fmt.Errorf("%s without a name; give one, as in %s(%q)", maker, maker, example)}
	}
	kind := strings.ToLower(maker)
	return Key[C]{Of: func(c C) (string, error) {
		v := ""
		for _, value := range values(c) {
			value = credential(name, value)
			if v != "" && value != "" && value != v {
				return "", fmt.Errorf("the request has %w for the %s %s; send one", ErrDiffer, kind, name)
			}
			v = cmp.Or(v, value)
		}
		if v == "" {
			return "", fmt.Errorf("%w: no %s %s", ErrMissing, kind, name)
		}
		return hashed(kind, name, v), nil
	}}
}

// Hashed returns the key that [Keys.Secret] makes for one value. kind is the maker in lower case.
func Hashed(kind, name, value string) string { return hashed(kind, name, credential(name, value)) }

func hashed(kind, name, credential string) string {
	return kind + ":" + Escape(name) + "~" + digest(credential)
}

// Cookie returns the value of a cookie in one spelling: without percent-encoding, as many applications
// read it, and with + for a space, because some read + as a space.
func Cookie(value string) string {
	if plain, err := url.PathUnescape(value); err == nil {
		value = plain
	}
	return strings.ReplaceAll(value, " ", "+")
}

// credential returns the value of the header name in one spelling: without spaces around it and, for
// Authorization, with a lower-case scheme and one space behind the scheme (RFC 9110, section 11). After
// the scheme basic, base64 has its usual alphabet and padding, because many servers accept others.
func credential(name, value string) string {
	const spaces = " \t"
	value = strings.Trim(value, spaces)
	end := strings.IndexAny(value, spaces)
	if end < 0 || !strings.EqualFold(name, "Authorization") && !strings.EqualFold(name, "Proxy-Authorization") {
		return value
	}
	scheme, rest := strings.ToLower(value[:end]), strings.TrimLeft(value[end:], spaces)
	if scheme == "basic" {
		usual := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(rest, "="))
		if plain, err := base64.RawStdEncoding.DecodeString(usual); err == nil {
			rest = base64.StdEncoding.EncodeToString(plain)
		}
	}
	return scheme + " " + rest
}

// Join returns a Key that joins the values of all keys. It returns the first error from these keys.
func (k Keys[C]) Join(keys []Key[C]) Key[C] {
	if err := k.Check("Join", keys...); err != nil {
		return Key[C]{Err: err}
	}
	return Key[C]{Of: func(c C) (string, error) {
		parts := make([]string, len(keys))
		for i, key := range keys {
			var err error
			if parts[i], err = key.Of(c); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, "|"), nil
	}}
}

// FirstOf returns a Key that uses the first of keys that does not return the error ErrMissing.
func (k Keys[C]) FirstOf(keys []Key[C]) Key[C] {
	if err := k.Check("FirstOf", keys...); err != nil {
		return Key[C]{Err: err}
	}
	return Key[C]{Of: func(c C) (text string, err error) {
		for _, key := range keys {
			if text, err = key.Of(c); !errors.Is(err, ErrMissing) {
				break
			}
		}
		return text, err
	}}
}

// Check returns an error if there are no keys, or if one of them is not usable. caller is
// the name of the calling function, for the error.
func (k Keys[C]) Check(caller string, keys ...Key[C]) error {
	if len(keys) == 0 {
		return fmt.Errorf("%s without keys; give at least one, such as %s", caller, k.Such)
	}
	for i, key := range keys {
		switch {
		case key.Err != nil:
			return key.Err
		case key.Of == nil:
			return fmt.Errorf("key %d of %s is the zero Key; make it with %s", i+1, caller, k.Makers)
		}
	}
	return nil
}
