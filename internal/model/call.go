package model

import "strconv"

// The verbs of the contract.
const (
	Take    = "take"
	Peek    = "peek"
	Refund  = "refund"
	Reset   = "reset"
	Block   = "block"
	Unblock = "unblock"
	Acquire = "acquire"
	Renew   = "renew"
	Release = "release"
	Usage   = "usage"
)

// A Call is one call of the library. Fields that its verb does not have are empty.
type Call struct {
	Verb    string
	Keys    []string // one for each limit; of other verbs all keys
	Limits  []Limit
	Costs   []int64 // none: 1 for each limit; one: for all; else one for each
	Upto    bool    // UPTO, with one cost at most
	OnceMS  int64   // above 0: ONCE, with OnceKey
	OnceKey string
	Usage   string // not empty: TRACK, with this key
	BlockMS int64
	Lease   string
}

// AllKeys are the call's keys in the order in which FCALL takes them: ONCE is written before TRACK.
func (c Call) AllKeys() []string {
	keys := append([]string(nil), c.Keys...)
	if c.OnceMS > 0 {
		keys = append(keys, c.OnceKey)
	}
	if c.Usage != "" {
		keys = append(keys, c.Usage)
	}
	return keys
}

// Words is the call as a command for the server.
func (c Call) Words() []string {
	command := "FCALL"
	if c.Verb == Peek || c.Verb == Usage {
		command = "FCALL_RO"
	}
	keys := c.AllKeys()
	words := append([]string{command, "ratelimit_" + c.Verb, strconv.Itoa(len(keys))}, keys...)
	for _, l := range c.Limits {
		words = append(words, l.String())
	}
	if len(c.Costs) > 0 {
		words = append(words, "COST")
		for _, cost := range c.Costs {
			words = append(words, strconv.FormatInt(cost, 10))
		}
	}
	if c.Upto {
		words = append(words, "UPTO")
	}
	if c.OnceMS > 0 {
		words = append(words, "ONCE", strconv.FormatInt(c.OnceMS, 10))
	}
	if c.Usage != "" {
		words = append(words, "TRACK")
	}
	if c.Verb == Block {
		words = append(words, strconv.FormatInt(c.BlockMS, 10))
	}
	if c.Lease != "" {
		words = append(words, c.Lease)
	}
	return words
}

func (c Call) cost(i int) int64 {
	switch len(c.Costs) {
	case 0:
		return 1
	case 1:
		return c.Costs[0]
	}
	return c.Costs[i]
}
