package main

import "github.com/ratelimit-functions/ratelimit/internal/figures"

// The parties of the sequences.
const (
	inProgram = iota
	inClient
	inRedis
)

func sequence(title string, steps ...figures.Step) (string, error) {
	return figures.Sequence{
		Title: title, Width: 760, Parties: []string{"your program", "Go client", "Redis"}, Steps: steps,
	}.SVG()
}

// once draws a take whose reply is lost, and which the client repeats.
func once() (string, error) {
	return sequence("With an OnceKey, the client repeats a call whose reply was lost, and the server charges it once.",
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Take with an OnceKey\nand an OnceTTL of 1 min"},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL ratelimit_take ... ONCE 60000`"},
		figures.Step{Kind: figures.Note, From: inRedis, Text: "charges 1 unit of 10, and stores\nthe reply in the request key"},
		figures.Step{Kind: figures.Lost, From: inRedis, To: inClient, Text: "allowed, 9 left"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "The connection broke. The call may have been charged.\nThe client waits for 5 to 10 ms, and repeats it."},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL ratelimit_take ... ONCE 60000`"},
		figures.Step{Kind: figures.Note, From: inRedis, Text: "finds the stored reply,\nand charges nothing"},
		figures.Step{Kind: figures.Reply, From: inRedis, To: inClient, Text: "allowed, 9 left"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed, 9 left"})
}

// breaker draws what a client does while a server hangs, and when it is back.
func breaker() (string, error) {
	return sequence("While a server does not reply, the client stops calling it, and the Fallback decides. Probes find out when the server is back.",
		figures.Step{Kind: figures.Note, From: inRedis, Text: "hangs"},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Lost, From: inClient, To: inRedis, Text: "`FCALL`"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "waits for the timeout of 500 ms"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "what the Fallback decides"},
		figures.Step{Kind: figures.Later, Text: "After 5 calls in a row without a reply, the breaker is open."},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "sends nothing"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "what the Fallback decides, at once"},
		figures.Step{Kind: figures.Later, Text: "After 250 ms, one call is a probe. Other calls are still not sent."},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Lost, From: inClient, To: inRedis, Text: "`FCALL`"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "waits for the timeout of 500 ms"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "what the Fallback decides"},
		figures.Step{Kind: figures.Note, From: inRedis, Text: "continues"},
		figures.Step{Kind: figures.Later, Text: "After another 250 ms, a call is the next probe."},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL`"},
		figures.Step{Kind: figures.Reply, From: inRedis, To: inClient, Text: "allowed"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "closes the breaker: all calls are sent again"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed"})
}

// batch draws how a client with WithBatches(100, 100*time.Millisecond) takes the units of a busy
// key.
func batch() (string, error) {
	return sequence("With WithBatches, the client takes more and more units of a busy key in one request, and spends them without a request for each.",
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL ratelimit_take ...`"},
		figures.Step{Kind: figures.Reply, From: inRedis, To: inClient, Text: "1 unit charged"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed"},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow, soon after"},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL ratelimit_take ... COST 2 UPTO`"},
		figures.Step{Kind: figures.Reply, From: inRedis, To: inClient, Text: "2 units charged"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed"},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "spends the second unit, and sends nothing"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed"},
		figures.Step{Kind: figures.Call, From: inProgram, To: inClient, Text: "Allow, in 3 goroutines at once"},
		figures.Step{Kind: figures.Call, From: inClient, To: inRedis, Text: "`FCALL ratelimit_take ... COST 4 UPTO`"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "One goroutine sends the request. The others wait for its reply."},
		figures.Step{Kind: figures.Reply, From: inRedis, To: inClient, Text: "4 units charged"},
		figures.Step{Kind: figures.Reply, From: inClient, To: inProgram, Text: "allowed, 3 times"},
		figures.Step{Kind: figures.Later, Text: "100 ms after the request was sent"},
		figures.Step{Kind: figures.Note, From: inClient, Text: "The fourth unit expires. It is not given back."})
}
