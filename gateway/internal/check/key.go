package check

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/httplimit"
	"github.com/ratelimit-functions/ratelimit/client/key"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/remedy"
	"github.com/ratelimit-functions/ratelimit/internal/keytext"
)

// uriField is the header in which a proxy sends the path and query of the client's request.
// Alternatively, a proxy can append the client's path, after /-, to the path of its own request.
const uriField = "X-Forwarded-Uri"

// cutPath cuts a path at /-. It returns the keys, which come before /-, and the path of the client's
// own request, which comes after it. own is empty if there is no /-.
func cutPath(path string) (keys, own string) {
	keys, own, found := strings.Cut(path+"/", "/-/")
	if !found {
		return path, ""
	}
	return keys, "/" + own
}

// share says who gets what is left of the limit: the class of the request, and the pool beside its
// guarantee. Both are words in the path, such as class:batch. No header has them, because a client
// could send it: the proxy alone decides who is important.
type share struct{ class, pool string }

// take takes a word for s from a path. It returns false if the word is for something else.
func (s *share) take(word string) (bool, error) {
	kind, name, _ := strings.Cut(word, ":")
	into := map[string]*string{"class": &s.class, "pool": &s.pool}[kind]
	switch {
	case into == nil || name == "":
		return false, nil
	case *into != "":
		return true, fmt.Errorf("the path has %s:%s and %s; give it once", kind, *into, word)
	}
	*into = name
	if s.class != "" && s.pool != "" {
		return true, fmt.Errorf("the path has class:%s and pool:%s; a guarantee and a pool have no classes, so leave one out", s.class, s.pool)
	}
	return true, nil
}

// change is the option of httplimit that applies s to a request.
func (s share) change(_ *http.Request, req *client.Request) error {
	if req.Class = s.class; s.pool != "" {
		guarantee, pool := keytext.Pooled(req.Keys[0], s.pool)
		req.Keys, req.Borrow = []string{guarantee, pool}, true
	}
	return nil
}

// key parses the keys in a path, such as /address or /header:X-Api-Key,address/path/1, and the words of
// its share. If there are no keys, it returns the key for the address.
func (h *Handler) key(path string) (key httplimit.Key, share share, err error) {
	var list []httplimit.Key
	words := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	for i := 0; i < len(words); i++ {
		word, _ := url.PathUnescape(words[i]) // cannot fail, because the server has already refused such paths
		if word == "path" && i+1 < len(words) {
			i++
			n, err := strconv.Atoi(words[i])
			if err != nil || n < 1 {
				return key, share, fmt.Errorf("the key path/%s has no number; write path/1 for the first segment of the client's path", words[i])
			}
			list = append(list, segment(n))
			continue
		}
		if taken, err := share.take(word); err != nil {
			return key, share, err
		} else if taken {
			continue
		}
		var alternatives []httplimit.Key
		for name := range strings.SplitSeq(word, ",") {
			key, ok := h.single(name)
			if !ok {
				return key, share, fmt.Errorf("%q is not a key; write address, header:NAME, cookie:NAME or path/N, class:NAME or pool:NAME, and /- before a path that is the client's", name)
			}
			alternatives = append(alternatives, key)
		}
		list = append(list, httplimit.FirstOf(alternatives...))
	}
	switch len(list) {
	case 0:
		return h.address, share, nil
	case 1:
		return list[0], share, nil
	}
	return httplimit.Join(list...), share, nil
}

func (h *Handler) single(word string) (key httplimit.Key, ok bool) {
	kind, name, _ := strings.Cut(word, ":")
	switch {
	case word == "address":
		return h.address, true
	case kind == "header" && name != "":
		return httplimit.Header(name), true
	case kind == "cookie" && name != "":
		return httplimit.Cookie(name), true
	}
	return key, false
}

// segment counts requests by segment n of the client's path, from 1. Paths without this segment
// count as "-".
func segment(n int) httplimit.Key {
	return httplimit.Func(fmt.Sprintf("path/%d", n), func(r *http.Request) (string, error) {
		_, uri := cutPath(r.URL.EscapedPath())
		uri = cmp.Or(uri, r.Header.Get(uriField))
		if uri == "" {
			return "", fmt.Errorf("%w: the path has no /- with the client's path behind it, and there is no header %s", key.ErrMissing, uriField)
		}
		words := segments(uri)
		if n > len(words) {
			return "-", nil
		}
		return words[n-1], nil
	})
}

// segments returns the segments of the path that an application sees: without percent-encoding, and
// with dots resolved. So all spellings of a path share one count.
func segments(uri string) []string {
	text, _, _ := strings.Cut(uri, "?")
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain
	}
	return strings.FieldsFunc(path.Clean("/"+text), func(r rune) bool { return r == '/' })
}

// failed records an error in the request's outcome, and logs errors at most once a second.
func (h *Handler) failed(r *http.Request, err error) {
	if got, ok := r.Context().Value(outcomeKey{}).(*outcome); ok {
		got.err = err
	}
	h.logs.Do(func() {
		h.Log.Error("no decision", "source", "check", "path", remedy.Cut(r.URL.Path), "error", remedy.For(err))
	})
}
