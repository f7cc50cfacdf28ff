// Package functions contains the Redis Functions library: its Lua sources, the code built from
// them, and vectors that specify its replies.
//
// New builds the source code that Redis loads. Source returns that code without policies, which is
// the content of functions/ratelimit.lua. It can be loaded with redis-cli alone:
//
//	redis-cli -x FUNCTION LOAD REPLACE < functions/ratelimit.lua
//
// WithPolicies adds named limits to the code, and ReadPolicies reads them from a deployed library's
// code.
package functions

//go:generate go run ./internal/generate
