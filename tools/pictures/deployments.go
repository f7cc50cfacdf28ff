package main

import (
	"slices"

	"github.com/ratelimit-functions/ratelimit/loader/protocol"
	"github.com/ratelimit-functions/ratelimit/tools/pictures/diagram"
)

// The parties of a deployment.
const (
	deployer = iota
	primaryA
	primaryB
	primaryC
	watch
)

var primaries = []int{primaryA, primaryB, primaryC}

// texts has the text of each step of the protocol that a picture shows as an arrow. A takeover has a
// step more than its picture: it deletes the old lease before it takes its own.
var texts = map[protocol.Op]string{
	protocol.Lease:   "takes the lease",
	protocol.Read:    "its text",
	protocol.Write:   "writes the new text",
	protocol.Wrote:   "has the new text",
	protocol.Release: "releases the lease",
	protocol.Fence:   "fences late writes",
	protocol.Refused: "refuses the write",
}

// on returns the arrows of a step that the party who takes on each of the primaries.
func on(who int, op protocol.Op, primaries ...int) (steps []diagram.Step) {
	for _, primary := range primaries {
		if op == protocol.Read || op == protocol.Wrote || op == protocol.Refused {
			steps = append(steps, reply(primary, who, texts[op]))
		} else {
			steps = append(steps, call(who, primary, texts[op]))
		}
	}
	return steps
}

// deploySteps returns a deployment on three primaries.
func deploySteps() []diagram.Step {
	return slices.Concat(
		[]diagram.Step{does(deployer, "inspects every primary: each can take the build")},
		on(deployer, protocol.Lease, primaries...),
		on(deployer, protocol.Read, primaries...),
		[]diagram.Step{does(deployer, "joins the texts, and adds its part to them. The number of the part\nis above all others, and at least the clock of one primary.")},
		on(deployer, protocol.Write, primaryA),
		on(deployer, protocol.Wrote, primaryA),
		[]diagram.Step{does(primaryB, "Calls are answered by the new build on A, and by the old build on B and C.")},
		on(deployer, protocol.Write, primaryB, primaryC),
		on(deployer, protocol.Wrote, primaryB, primaryC),
		on(deployer, protocol.Read, primaries...),
		[]diagram.Step{does(deployer, "All primaries have the part: the deployment has succeeded.")},
		on(deployer, protocol.Release, primaries...))
}

func deploy() (string, error) {
	return diagram.Sequence{
		Title:   "A deployment takes the leases of all primaries, reads them, writes one primary and then the others, reads all again, and releases the leases. It checks the lease before each write.",
		Width:   760,
		Parties: []string{"deployer", "primary A", "primary B", "primary C"},
		Steps:   deploySteps(),
	}.SVG()
}

// deathSteps returns a deployment that ends after its second write, and the watch that completes it.
func deathSteps() []diagram.Step {
	return slices.Concat(
		[]diagram.Step{does(deployer, "has the leases, and has read and joined the texts")},
		on(deployer, protocol.Write, primaryA),
		on(deployer, protocol.Wrote, primaryA),
		on(deployer, protocol.Write, primaryB),
		[]diagram.Step{lost(deployer, primaryC, texts[protocol.Write])},
		on(deployer, protocol.Wrote, primaryB),
		[]diagram.Step{does(deployer, "dies. Its write to C may still arrive.")},
		on(watch, protocol.Read, primaries...),
		[]diagram.Step{
			does(watch, "A lease is held: the watch changes nothing, and tries again."),
			later("The leases expire: 30 s by the clock of each primary. A deployment can then take over, too."),
		},
		on(watch, protocol.Read, primaries...),
		on(watch, protocol.Fence, primaryA),
		on(watch, protocol.Lease, primaryA),
		on(watch, protocol.Fence, primaryB),
		on(watch, protocol.Lease, primaryB),
		on(watch, protocol.Fence, primaryC),
		on(watch, protocol.Lease, primaryC),
		on(watch, protocol.Read, primaries...),
		[]diagram.Step{does(watch, "joins the texts: the new part has the highest number, and C lacks it.")},
		on(watch, protocol.Write, primaryC),
		on(watch, protocol.Wrote, primaryC),
		on(watch, protocol.Read, primaryC),
		[]diagram.Step{does(watch, "All primaries have the new part: the deployment is completed.")},
		on(watch, protocol.Release, primaries...),
		[]diagram.Step{later("If the late write arrives now, the fence stops it.")},
		on(deployer, protocol.Write, primaryC),
		on(deployer, protocol.Refused, primaryC))
}

func deployDies() (string, error) {
	return diagram.Sequence{
		Title:   "If a deployer dies after its second write, a watch waits until the leases expire. It then loads fences against late writes, takes the leases, joins the texts, and writes the new text on the third primary.",
		Width:   760,
		Parties: []string{"deployer", "primary A", "primary B", "primary C", "watch"},
		Steps:   deathSteps(),
	}.SVG()
}
