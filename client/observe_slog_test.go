package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

func TestLogTo(t *testing.T) { synctest.Test(t, testLogTo) }

func testLogTo(t *testing.T) {
	var text bytes.Buffer
	o := client.LogTo(slog.New(slog.NewJSONHandler(&text, nil)))
	lines := func() (found []map[string]any) {
		t.Helper()
		for line := range bytes.Lines(text.Bytes()) {
			var fields map[string]any
			require(t, json.Unmarshal(line, &fields))
			found = append(found, fields)
		}
		text.Reset()
		return found
	}
	o.Call(t.Context(), client.Observation{Op: "take", Outcome: "allowed"})
	o.Call(t.Context(), client.Observation{Op: "take", Outcome: "error", Err: context.Canceled, ErrorType: "canceled"})
	if got := lines(); got != nil {
		t.Errorf("%v, want nothing at the level Info", got)
	}
	// The client itself logs the decisions of a fallback, once a minute.
	for _, outcome := range []string{"allowed", "denied"} {
		o.Call(t.Context(), client.Observation{Op: "take", Outcome: outcome, Source: "fallback", Err: io.EOF})
	}
	if got := lines(); got != nil {
		t.Errorf("%v, want nothing about a fallback", got)
	}
	failed := client.Observation{Op: "take", Outcome: "error", Err: io.EOF}
	for range 3 {
		o.Call(t.Context(), failed)
	}
	got := lines()
	if len(got) != 1 || got[0]["level"] != "WARN" || got[0]["error"] != "EOF" || got[0]["outcome"] != "error" || got[0]["operation"] != "take" {
		t.Errorf("%v, want one warning in a second", got)
	}
	time.Sleep(time.Second)
	o.Call(t.Context(), failed)
	if got := lines(); len(got) != 1 || got[0]["more"] != 2.0 {
		t.Errorf("%v, want a warning that tells of 2 more", got)
	}
	// An ErrMisconfigured is logged separately, whatever else was logged.
	wrong := client.Observation{Op: "take", Outcome: "misconfigured", Err: client.ErrMisconfigured}
	for range 2 {
		o.Call(t.Context(), wrong)
	}
	if got := lines(); len(got) != 1 || got[0]["level"] != "ERROR" || got[0]["outcome"] != "misconfigured" || !strings.Contains(fmt.Sprint(got[0]["fix"]), "correct the limit") {
		t.Errorf("%v, want one error with the fix", got)
	}
	for _, change := range []breakerChange{{Node: "n:1", From: "closed", To: "open"}, {Node: "n:1", From: "open", To: "half-open"}, {Node: "n:1", From: "half-open", To: "closed"}} {
		o.Breaker(change.Node, change.From, change.To)
	}
	got = lines()
	if len(got) != 2 || got[0]["level"] != "WARN" || got[0]["node"] != "n:1" || got[0]["to"] != "open" || got[1]["level"] != "INFO" || got[1]["to"] != "closed" {
		t.Errorf("%v, want that it opened and that it closed", got)
	}

	o = client.LogTo(slog.New(slog.NewJSONHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	o.Call(t.Context(), client.Observation{Op: "take", Outcome: "denied", Duration: time.Second, Policy: "api", Class: "batch"})
	if got := lines(); len(got) != 1 || got[0]["level"] != "DEBUG" || got[0]["outcome"] != "denied" || got[0]["duration"] != float64(time.Second) || got[0]["policy"] != "api" || got[0]["class"] != "batch" {
		t.Errorf("%v, want the denial at the level Debug", got)
	}
}
