// Package layer looks through the layers of a client.Limiter. It does not know the type, so that
// package client can use it.
package layer

import (
	"fmt"
	"reflect"
)

// deepest is how many layers are looked through. A layer that wraps itself has no end.
const deepest = 100

// Beneath returns the first of limiter and the L that it wraps that is a T. A layer wraps the L that its
// method Unwrap returns.
func Beneath[T, L any](limiter L) (found T, ok bool) {
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

// Given returns an error if limiter, or one that it wraps, is nil or a nil pointer.
func Given[L any](limiter L) error {
	which := "the limiter"
	for range deepest {
		const remedy = "make one with client.Open or client.New"
		switch v := reflect.ValueOf(limiter); v.Kind() {
		case reflect.Invalid:
			return fmt.Errorf("%s is nil; %s", which, remedy)
		case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
			if v.IsNil() {
				return fmt.Errorf("%s is a nil %T; %s", which, limiter, remedy)
			}
		}
		wraps, ok := any(limiter).(interface{ Unwrap() L })
		if !ok {
			break
		}
		which = fmt.Sprintf("the limiter beneath %T", limiter)
		limiter = wraps.Unwrap()
	}
	return nil
}
