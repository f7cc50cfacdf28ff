package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/holds"
	"github.com/ratelimit-functions/ratelimit/gateway/internal/metrics"
)

// reserved returns the id of a new reservation.
func reserved(t *testing.T, h http.Handler) string {
	t.Helper()
	answer := send(t, h, "POST", "reserve", `{"keys":["a"],"limits":["100/h"],"amount":10,"ttl_ms":60000}`)
	var got struct {
		ID string `json:"reservation_id"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Code != http.StatusOK || len(got.ID) != 27 {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return got.ID
}

func TestReservations(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	id := reserved(t, h)
	for _, tt := range []struct {
		name, body string
		status     int
		want       string // after the id is replaced by ID
	}{
		{"reserve", `{"keys":["a"],"limits":["100/h"],"amount":91,"ttl_ms":60000}`, 429, `{"allowed":false,"limit":100,"remaining":90,"retry_after_ms":36000,"reset_after_ms":360000,"index":1,"key":"a"}`},
		{"commit", `{"reservation_id":"ID","actual":4}`, 200, `{"actual":4,"late":false}`},
		{"commit", `{"reservation_id":"ID","actual":5}`, 200, `{"actual":4,"late":false}`},
		{"peek", `{"keys":["a"],"limits":["100/h"],"cost":0}`, 200, `{"allowed":true,"limit":100,"remaining":96,"retry_after_ms":0,"reset_after_ms":144000,"index":1,"key":"a"}`},
		{"reserve", `{"keys":["a"],"limits":["100/h"],"amount":96,"ttl_ms":1000}`, 200, `{"allowed":true,"limit":100,"remaining":0,"retry_after_ms":0,"reset_after_ms":3600000,"index":1,"key":"a","reservation_id":"ID"}`},
		{"reserve", `{"keys":["b"],"limits":["@api"],"amount":2,"ttl_ms":86400000}`, 200, `{"allowed":true,"limit":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000,"index":1,"key":"b","reservation_id":"ID"}`},
	} {
		answer := send(t, h, "POST", tt.name, strings.Replace(tt.body, "ID", id, 1))
		got := strings.TrimSpace(answer.Body.String())
		if _, after, found := strings.Cut(got, `"reservation_id":"`); found {
			got = strings.Replace(got, after[:27], "ID", 1)
		}
		if got != tt.want || answer.Code != tt.status {
			t.Errorf("%s %s\nis %d %s, want\n%d %s", tt.name, tt.body, answer.Code, got, tt.status, tt.want)
		}
	}
}

// TestRefusedReservations checks that each bad request names its value, and changes nothing.
func TestRefusedReservations(t *testing.T) {
	limiter := newLimiter(t)
	h := newHandler(t, limiter)
	for _, tt := range []struct {
		name, body     string
		status         int
		reason, detail string
	}{
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":0,"ttl_ms":60000}`, 400, "BADARGS", `amount is 0; give 1 to 9007199254740992`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":-1,"ttl_ms":60000}`, 400, "BADARGS", `amount is -1; give 1`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":9007199254740993,"ttl_ms":60000}`, 400, "BADARGS", `amount is 9007199254740993; give 1`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":18446744073709551615,"ttl_ms":60000}`, 400, "BADARGS", `amount is 18446744073709551615; write a whole number of at most 2^53`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":1.5,"ttl_ms":60000}`, 400, "BADARGS", `amount is 1.5;`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"ttl_ms":60000}`, 400, "BADARGS", `the field amount is missing; the fields are keys, limits, amount, ttl_ms`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":1,"ttl_ms":0}`, 400, "BADARGS", `ttl_ms is 0; give 1000 to 86400000`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":1,"ttl_ms":3153600000000}`, 400, "BADARGS", `ttl_ms is 3153600000000; give 1000`},
		{"reserve", `{"keys":[],"limits":["3/m"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `the number of keys is 0`},
		{"reserve", `{"keys":["a","a"],"limits":["3/m","3/m"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `"a" is given twice`},
		{"reserve", `{"keys":["a"],"limits":["3/m","5/h"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `1 keys and 2 limits; give one limit for each key`},
		{"reserve", `{"keys":["a","{a}b"],"limits":["3/m"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `2 keys and 1 limits; give one limit for each key`},
		{"reserve", `{"keys":["{p}t","{p}"],"limits":["@api"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `the number of keys is 2; give each limit one key, in order`},
		{"reserve", `{"keys":["{}a"],"limits":["3/m"],"amount":1,"ttl_ms":60000}`, 400, "BADKEYS", `because of its braces; give it a hash tag`},
		{"reserve", `{"keys":["a"],"limits":["3/q"],"amount":1,"ttl_ms":60000}`, 400, "BADLIMIT", `3/q`},
		{"reserve", `{"keys":["a"],"limits":["@none"],"amount":1,"ttl_ms":60000}`, 404, "NOPOLICY", `none`},
		{"reserve", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"amount":1,"ttl_ms":60000}`, 400, "BADARGS", `a policy with a guarantee and a pool takes no reservation`},
		{"reserve", `{"keys":["a"],"limits":["3/m"],"amount":1,"ttl_ms":60000,"force":true}`, 400, "BADARGS", `unknown field force`},
		{"commit", `{"reservation_id":"ID","actual":-1}`, 400, "BADARGS", `actual is -1; give 0 to 9007199254740992`},
		{"commit", `{"reservation_id":"ID","actual":18446744073709551615}`, 400, "BADARGS", `actual is 18446744073709551615;`},
		{"commit", `{"reservation_id":"ID"}`, 400, "BADARGS", `the field actual is missing`},
		{"commit", `{"reservation_id":"","actual":1}`, 400, "BADARGS", `reservation_id is empty`},
		{"commit", `{"reservation_id":"IDA","actual":1}`, 404, "NORESERVATION", `there is no reservation IDA; if its id is right`},
		{"commit", `{"reservation_id":"aAAAAAAAAAAAAAAAAAAAAAAAAAA","actual":1}`, 404, "NORESERVATION", `there is no reservation aAAAAAAAAAAAAAAAAAAAAAAAAAA;`},
		{"commit", `{"reservation_id":"\u001b` + strings.Repeat("x", 100) + `","actual":1}`, 404, "NORESERVATION", `there is no reservation "\x1bxxx`},
	} {
		id := ""
		if tt.name == "commit" {
			id = reserved(t, h)
		}
		answer := send(t, h, "POST", tt.name, strings.Replace(tt.body, "ID", id, 1))
		var got struct {
			Detail, Reason string
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %s: %v in %s", tt.name, tt.body, err, answer.Body)
		}
		if answer.Code != tt.status || got.Reason != tt.reason || !strings.Contains(got.Detail, strings.Replace(tt.detail, "ID", id, 1)) {
			t.Errorf("%s %s:\n%d %s, want\n%d %s %s", tt.name, tt.body, answer.Code, answer.Body, tt.status, tt.reason, tt.detail)
		}
		if id != "" { // it is still open
			if answer := send(t, h, "POST", "commit", `{"reservation_id":"`+id+`","actual":0}`); answer.Body.String() != "{\"actual\":0,\"late\":false}\n" {
				t.Errorf("after %s: %s", tt.body, answer.Body)
			}
		}
	}
	if got := send(t, h, "POST", "peek", `{"keys":["a"],"limits":["100/h"],"cost":0}`).Body.String(); !strings.Contains(got, `"remaining":100`) {
		t.Errorf("the key has changed: %s", got)
	}
}

// TestReservationsOfADomain checks that the API does not commit what was reserved over gRPC.
func TestReservationsOfADomain(t *testing.T) {
	limiter := newLimiter(t)
	h := newHandler(t, limiter)
	other := holds.New(holds.Options{Limiter: limiter, Store: stores[limiter], Metrics: metrics.New(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler), Timeout: time.Minute})
	made, err := other.Reserve(t.Context(), "web", []holds.Part{{Keys: []string{"k"}, Limits: []client.Limit{"100/h"}}}, 10, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if answer := send(t, h, "POST", "commit", `{"reservation_id":"`+made.ID+`","actual":0}`); answer.Code != http.StatusNotFound {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if got := send(t, h, "POST", "peek", `{"keys":["k"],"limits":["100/h"],"cost":0}`).Body.String(); !strings.Contains(got, `"remaining":90`) {
		t.Errorf("%s", got)
	}
}

// TestNoReservationWithoutRedis checks that both calls say so in time, and what is known.
func TestNoReservationWithoutRedis(t *testing.T) {
	h := newHandler(t, stopped(t))
	for name, body := range map[string]string{
		"reserve": `{"keys":["a"],"limits":["100/h"],"amount":1,"ttl_ms":60000}`,
		"commit":  `{"reservation_id":"aAAAAAAAAAAAAAAAAAAAAAAAAAA","actual":1}`,
	} {
		answer := send(t, h, "POST", name, body)
		if answer.Code != http.StatusServiceUnavailable || !bytes.Contains(answer.Body.Bytes(), []byte("nothing")) {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
}
