package client

import (
	"fmt"
	"strconv"
	"strings"
)

// Request is one call in full, laid out as it goes over the wire: keys, a limit for each, costs.
//
//	client.Request{
//		Keys:   []string{"{user:42}:minute", "{user:42}:day"},
//		Limits: []client.Limit{"100/m", "5000/d"},
//		Costs:  []int64{1, 250},
//	}
//
// A policy that is deployed with the library takes as many keys as it has limits, in their order, and one for usage
// at the end if it says track:
//
//	client.Request{
//		Keys:   []string{"calc:{a}", "consumer9:{a}"},
//		Limits: []client.Limit{"@calc"},
//	}
//
// It is a plain value: copy it, reuse it, and share it between goroutines as long as nobody changes it.
type Request struct {
	// Keys names what is limited: at least one, none twice. In a cluster they share a hash tag, such as {user:42}.
	Keys []string

	// Limits holds one limit for each key, in the same order; or policies, each of which stands for one or several.
	Limits []Limit

	// Costs is how much to take. Empty means 1 for every key, a single number counts for all, else one for each key
	// that is limited. Each is from 0 to 2^53. A key with cost 0 neither denies nor is written.
	Costs []int64
}

// args are the arguments after the keys. Only what would change the meaning of other arguments is checked here: a limit
// that spells an option would turn what follows into that option's value. Everything else the server refuses itself.
func (r Request) args() ([]any, error) {
	args := make([]any, 0, len(r.Limits)+1+len(r.Costs))
	for _, limit := range r.Limits {
		switch strings.ToUpper(string(limit)) {
		case "COST", "ONCE", "TRACK":
			return nil, fmt.Errorf("BADLIMIT %q is the name of an option, not a limit; give one such as 100/m", string(limit))
		}
		args = append(args, string(limit))
	}
	if len(r.Costs) > 0 {
		args = append(args, "COST")
		for _, cost := range r.Costs {
			args = append(args, strconv.FormatInt(cost, 10))
		}
	}
	return args, nil
}
