package client_test

import (
	"errors"
	"slices"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// typeOf returns the kind of a [client.Error] in err, or "".
func typeOf(err error) string {
	if e, ok := errors.AsType[*client.Error](err); ok {
		return client.Kind(e)
	}
	return ""
}

// typed stands for an error of this kind in the tables of tests.
type typed string

func (t typed) Error() string { return string(t) }

// is is [errors.Is], and also matches an error against a typed.
func is(err, class error) bool {
	t, ok := class.(typed)
	if !ok {
		return errors.Is(err, class)
	}
	if e, ok := err.(*client.Error); ok && client.Kind(e) == string(t) {
		return true
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return is(e.Unwrap(), class)
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return is(err, class) })
	}
	return false
}

// upTo returns a request for as many units as fit, n at most.
func upTo(key string, limit client.Limit, n int64) client.Request {
	req := client.For(key, limit, n)
	req.UpTo = true
	return req
}

// asLimited is errors.As for an [client.ErrLimited].
func asLimited(err error, e **client.Error) bool {
	return errors.Is(err, client.ErrLimited) && errors.As(err, e)
}

// until returns req with a latest time for Wait.
func until(req client.Request, at time.Time) client.Request {
	req.WaitUntil = at
	return req
}

// minute is an element of client.Usage.Series.
type minute = struct {
	Start           time.Time
	Allowed, Denied int64
}
