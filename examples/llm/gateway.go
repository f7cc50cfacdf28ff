package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
)

// hold is an estimate that is charged and must be settled. [client.Estimate] is one.
type hold interface {
	Settle(ctx context.Context, used ...int64) (client.Result, error)
}

// gateway reserves tokens at a ratelimit-gateway, with Reserve and Commit. If the proxy dies, the gateway gives
// what is not committed back after ttl. docs/reservations.md describes the calls.
type gateway struct {
	url     string
	timeout time.Duration
}

// ttl is longer than any answer takes.
const ttl = time.Hour

type reservation struct {
	*gateway
	id string
}

// reserve charges an estimate. It returns no hold if the Result is not allowed.
func (g *gateway) reserve(ctx context.Context, who account, estimate int64) (hold, client.Result, error) {
	var reply struct {
		Allowed       bool
		Limit         int64
		Remaining     int64
		Index         int
		RetryAfterMS  int64  `json:"retry_after_ms"`
		ReservationID string `json:"reservation_id"`
	}
	err := g.call(ctx, "reserve", map[string]any{"keys": who.keys(), "limits": []string{"@llm"}, "amount": estimate, "ttl_ms": ttl.Milliseconds()}, &reply)
	if err != nil {
		return nil, client.Result{}, err
	}
	res := client.Result{Allowed: reply.Allowed, Limit: reply.Limit, Remaining: reply.Remaining, Index: reply.Index, RetryAfter: client.Never}
	if reply.RetryAfterMS >= 0 {
		res.RetryAfter = time.Duration(reply.RetryAfterMS) * time.Millisecond
	}
	return reservation{g, reply.ReservationID}, res, nil
}

// Settle commits the reservation. It can be repeated, because only the first commit counts, so it is, once.
func (r reservation) Settle(ctx context.Context, used ...int64) (client.Result, error) {
	body := map[string]any{"reservation_id": r.id, "actual": used[0]}
	err := r.call(ctx, "commit", body, nil)
	if err != nil {
		err = r.call(ctx, "commit", body, nil)
	}
	return client.Result{Allowed: err == nil}, err
}

// call calls the JSON API. A denial, which has the status 429, is a reply and no error.
func (g *gateway) call(ctx context.Context, name string, body, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/v1/"+name, bytes.NewReader(text))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s: %s: %s", name, response.Status, why)
	}
	if reply == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(reply)
}
