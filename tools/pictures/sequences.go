package main

import "github.com/ratelimit-functions/ratelimit/tools/pictures/diagram"

// The parties of a call.
const (
	inProgram = iota
	inClient
	inRedis
)

func ofCall(title string, steps ...diagram.Step) (string, error) {
	return diagram.Sequence{Title: title, Width: 760, Parties: []string{"your program", "Go client", "Redis"}, Steps: steps}.SVG()
}

func call(from, to int, text string) diagram.Step {
	return diagram.Step{Kind: diagram.Call, From: from, To: to, Text: text}
}
func reply(from, to int, text string) diagram.Step {
	return diagram.Step{Kind: diagram.Reply, From: from, To: to, Text: text}
}
func lost(from, to int, text string) diagram.Step {
	return diagram.Step{Kind: diagram.Lost, From: from, To: to, Text: text}
}
func does(who int, text string) diagram.Step {
	return diagram.Step{Kind: diagram.Note, From: who, Text: text}
}
func later(text string) diagram.Step { return diagram.Step{Kind: diagram.Later, Text: text} }

// once draws a take whose reply is lost, and which the client repeats.
func once() (string, error) {
	return ofCall("With an OnceKey, the client repeats a call whose reply was lost, and the server charges it once.",
		call(inProgram, inClient, "Take with an OnceKey\nand an OnceTTL of 1 min"),
		call(inClient, inRedis, "`FCALL ratelimit_take ... ONCE 60000`"),
		does(inRedis, "charges 1 unit of 10, and stores\nthe reply in the request key"),
		lost(inRedis, inClient, "allowed, 9 left"),
		does(inClient, "The connection broke. The call may have been charged.\nThe client waits for 5 to 10 ms, and repeats it."),
		call(inClient, inRedis, "`FCALL ratelimit_take ... ONCE 60000`"),
		does(inRedis, "finds the stored reply,\nand charges nothing"),
		reply(inRedis, inClient, "allowed, 9 left"),
		reply(inClient, inProgram, "allowed, 9 left"))
}

// breaker draws what a client does while a server hangs, and when it is back.
func breaker() (string, error) {
	return ofCall("While a server does not reply, the client stops calling it, and the Fallback decides. Probes find out when the server is back. A connection that is refused fails at once.",
		does(inRedis, "hangs"),
		call(inProgram, inClient, "Allow"),
		lost(inClient, inRedis, "`FCALL`"),
		does(inClient, "waits for the timeout of 500 ms"),
		reply(inClient, inProgram, "what the Fallback decides"),
		does(inClient, "A refused connection needs no wait:\nthe call fails at once."),
		later("After 5 calls in a row without a reply, the breaker is open."),
		call(inProgram, inClient, "Allow"),
		does(inClient, "sends nothing"),
		reply(inClient, inProgram, "what the Fallback decides, at once"),
		later("After 250 ms, one call is a probe. Other calls are still not sent."),
		call(inProgram, inClient, "Allow"),
		lost(inClient, inRedis, "`FCALL`"),
		does(inClient, "waits for the timeout of 500 ms"),
		reply(inClient, inProgram, "what the Fallback decides"),
		does(inRedis, "continues"),
		later("After another 250 ms, a call is the next probe."),
		call(inProgram, inClient, "Allow"),
		call(inClient, inRedis, "`FCALL`"),
		reply(inRedis, inClient, "allowed"),
		does(inClient, "closes the breaker: all calls are sent again"),
		reply(inClient, inProgram, "allowed"))
}

// batch draws how a client with WithBatches(100, 100*time.Millisecond) takes the units of a busy
// key.
func batch() (string, error) {
	return ofCall("With WithBatches, the client takes more and more units of a busy key in one request, and spends them without a request for each.",
		call(inProgram, inClient, "Allow"),
		call(inClient, inRedis, "`FCALL ratelimit_take ...`"),
		reply(inRedis, inClient, "1 unit charged"),
		reply(inClient, inProgram, "allowed"),
		call(inProgram, inClient, "Allow, soon after"),
		call(inClient, inRedis, "`FCALL ratelimit_take ... COST 2 UPTO`"),
		reply(inRedis, inClient, "2 units charged"),
		reply(inClient, inProgram, "allowed"),
		call(inProgram, inClient, "Allow"),
		does(inClient, "spends the second unit, and sends nothing"),
		reply(inClient, inProgram, "allowed"),
		call(inProgram, inClient, "Allow, in 3 goroutines at once"),
		call(inClient, inRedis, "`FCALL ratelimit_take ... COST 4 UPTO`"),
		does(inClient, "One goroutine sends the request. The others wait for its reply."),
		reply(inRedis, inClient, "4 units charged"),
		reply(inClient, inProgram, "allowed, 3 times"),
		later("100 ms after the request was sent"),
		does(inClient, "The fourth unit expires. It is not given back."))
}
