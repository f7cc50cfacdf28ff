package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/policies"
)

// If you copy the proxy, leave out this file.

//go:embed policies.yaml
var policiesFile []byte

// startOffline starts the offline engine with the policies, and a simulated API.
func startOffline() (redisURL, upstream string) {
	file, err := policies.Parse("policies.yaml", policiesFile)
	check(err)
	build, err := file.Build()
	check(err)
	server, err := embedded.Start(embedded.WithLibrary(build.Text()))
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	go func() { check(http.Serve(listener, http.HandlerFunc(pretend))) }()
	return "redis://" + server.Addr(), "http://" + listener.Addr().String()
}

// pretend simulates a language model that always gives the same answer. It reports that it used all
// of max_tokens, like a model that thinks for a long time.
func pretend(w http.ResponseWriter, r *http.Request) {
	request := struct {
		Stream    bool
		MaxTokens int `json:"max_tokens"`
	}{MaxTokens: 10}
	_ = json.NewDecoder(r.Body).Decode(&request) // cannot fail, because the proxy has checked the body
	words := strings.SplitAfter("A budget is a plan for what has not been spent.", " ")
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}`, request.MaxTokens, 5+request.MaxTokens)
	if !request.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":%q}}],%s}`+"\n", strings.Join(words, ""), usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range words {
		fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":%q}}]}`+"\n\n", word)
		_ = http.NewResponseController(w).Flush()
		time.Sleep(100 * time.Millisecond)
	}
	fmt.Fprintf(w, `data: {"choices":[],%s}`+"\n\ndata: [DONE]\n\n", usage)
}
