package model

func init() {
	Algorithms["leaky_bucket"] = &Algorithm{Options: bursts, Open: openGCRA, Refuses: tooFine, Keeps: "gcra", Delays: true}
}
