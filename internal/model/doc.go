// Package model is a second, slow and plain implementation of the wire contract, written from functions/CONTRACT.md
// with exact arithmetic and from nothing else. Tests hold the library against it: what both say is what the contract
// says.
//
// A Model keeps what the limiters' keys would hold, and returns a Call as the library should. Its clock is set by the
// caller. It is not safe for concurrent use.
package model
