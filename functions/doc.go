// Package functions contains the Redis Functions library: its Lua sources, the text built from
// them, and vectors that specify its replies.
//
// New builds the text that Redis loads. Source returns that text without policies, which is the
// content of functions/ratelimit.lua. It can be loaded with redis-cli alone:
//
//	redis-cli -x FUNCTION LOAD REPLACE < functions/ratelimit.lua
//
// WithPolicies adds named limits to the text, and ReadPolicies reads them from the text of a
// deployed library.
package functions

//go:generate go run ./internal/generate
