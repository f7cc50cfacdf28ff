//go:build !unix

package cli

// onStop does nothing: no key stops a program on this system.
func onStop(func(stop func())) (end func()) { return func() {} }
