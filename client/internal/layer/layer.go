// Package layer looks through the layers of a client.Limiter. It does not know the type, so that
// package client can use it.
package layer

import (
	"errors"
	"fmt"
	"reflect"
)

// Beneath returns the first of limiter and the L that it wraps that is a T. A layer wraps the L that its
// method Unwrap returns.
func Beneath[T, L any](limiter L) (found T, ok bool) {
	const deepest = 100 // a layer that wraps itself has no end
	for range deepest {
		if found, ok = any(limiter).(T); ok {
			return found, true
		}
		wraps, ok := any(limiter).(interface{ Unwrap() L })
		if !ok {
			break
		}
		limiter = wraps.Unwrap()
	}
	return found, false
}

// Given returns an error if limiter is nil, or a nil pointer.
func Given(limiter any) error {
	const remedy = "make one with client.Open or client.New"
	switch v := reflect.ValueOf(limiter); v.Kind() {
	case reflect.Invalid:
		return errors.New("the limiter is nil; " + remedy)
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		if v.IsNil() {
			return fmt.Errorf("the limiter is a nil %T; %s", limiter, remedy)
		}
	}
	return nil
}
