package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// A test in the module gateway runs TestGateway with this flag and -redis. Without it, the gateway is a handler
// of this test.
var gatewayURL = flag.String("gateway", "", "the `URL` of a ratelimit-gateway on the server of -redis")

// TestGateway checks what the proxy reserves and commits at a gateway, for each end of a response. A client that
// hangs up before the answer pays the estimate. Without a commit, the gateway would give it back.
func TestGateway(t *testing.T) {
	for name, tt := range map[string]struct {
		reserve string // the reply to Reserve
		answer  func(w http.ResponseWriter, hangUp func())
		lost    int // the number of commits that fail
		status  int // 0 if the client has hung up
		actual  string
		used    int64 // tokens at the real gateway
	}{
		"usage":                      {"", func(w http.ResponseWriter, _ func()) { flush(w, hello+usage40+done) }, 0, 200, "[40]", 40},
		"a lost commit":              {"", func(w http.ResponseWriter, _ func()) { flush(w, hello+usage40+done) }, 1, 200, "[40 40]", 40},
		"no usage":                   {"", func(w http.ResponseWriter, _ func()) { flush(w, hello+again+done) }, 0, 200, "[18]", 18},
		"an error of the upstream":   {"", func(w http.ResponseWriter, _ func()) { w.WriteHeader(500) }, 0, 500, "[0]", 0},
		"no events":                  {"", func(w http.ResponseWriter, _ func()) { flush(w, "") }, 0, 200, "[516]", 516},
		"hung up before the answer":  {"", func(_ http.ResponseWriter, hangUp func()) { hangUp() }, 0, 0, "[516]", 516},
		"denied":                     {`{"allowed":false,"limit":20000,"remaining":3,"retry_after_ms":30780,"reset_after_ms":1,"index":3,"key":"k"}`, nil, 0, 429, "[]", 19_997},
		"no decision of the gateway": {"down", nil, 0, 503, "[]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, hangUp := context.WithCancel(t.Context())
			defer hangUp()
			var c *trial
			c = start(t, func(w http.ResponseWriter, _ string) {
				if tt.answer == nil {
					t.Error("the upstream is asked")
					return
				}
				tt.answer(w, hangUp)
				if tt.status == 0 {
					<-(<-c.asked).Context().Done()
				}
			})
			if tt.status == http.StatusTooManyRequests {
				redistest.Must[client.Result](t)(c.limiter.Take(ctx, client.Request{Keys: c.who.keys(), Limits: []client.Limit{"@llm"}, Costs: []int64{tt.used}}))
			}
			var reserved string
			actual := []int64{}
			id := "r7"
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				status, reply := http.StatusOK, ""
				switch {
				case r.URL.Path == "/v1/reserve" && tt.reserve == "down":
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				case *gatewayURL != "":
					status, reply = forward(t, r.URL.Path, body)
					if found := regexp.MustCompile(`"reservation_id":"(\w+)"`).FindStringSubmatch(reply); found != nil {
						id = found[1]
					}
				case r.URL.Path == "/v1/reserve" && tt.reserve == "":
					reply = `{"allowed":true,"limit":20000,"remaining":19484,"retry_after_ms":0,"reset_after_ms":1,"index":3,"key":"k","reservation_id":"r7"}`
				case r.URL.Path == "/v1/reserve":
					status, reply = http.StatusTooManyRequests, tt.reserve
				}
				if r.URL.Path == "/v1/reserve" {
					reserved = string(body)
				} else {
					var commit struct {
						ID     string `json:"reservation_id"`
						Actual int64
					}
					if err := json.Unmarshal(body, &commit); err != nil || r.URL.Path != "/v1/commit" || commit.ID != id {
						t.Errorf("%s: %s", r.URL, body)
					}
					if actual = append(actual, commit.Actual); len(actual) <= tt.lost {
						status = http.StatusServiceUnavailable
					}
				}
				w.WriteHeader(status)
				fmt.Fprint(w, reply)
			}))
			defer server.Close()
			c.proxy.limiter, c.proxy.gateway = nil, &gateway{url: server.URL, timeout: time.Minute}
			response, err := c.try(ctx, streamed)
			if err == nil {
				wantStatus(t, response, tt.status)
				if tt.status == http.StatusTooManyRequests {
					wantStatus(t, response, tt.status, "Retry-After: 31")
				}
				read(response)
			} else if tt.status != 0 {
				t.Error(err)
			}
			if *gatewayURL != "" {
				c.wantUsed(tt.used)
			} else {
				<-c.served
			}
			if fmt.Sprint(actual) != tt.actual {
				t.Errorf("commits of %v, want %s", actual, tt.actual)
			}
			org := "llm:{" + c.who.Org + "}"
			if want := fmt.Sprintf(`{"amount":516,"keys":[%q,%q,%q],"limits":["@llm"],"ttl_ms":3600000}`, org, org+":team:search", org+":user:ann"); tt.reserve == "" && reserved != want {
				t.Errorf("reserved %s, want %s", reserved, want)
			}
		})
	}
}

// forward sends a request to the gateway of -gateway.
func forward(t *testing.T, path string, body []byte) (status int, reply string) {
	response, err := http.Post(*gatewayURL+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return http.StatusServiceUnavailable, ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(text)
}
