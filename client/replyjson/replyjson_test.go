package replyjson_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/client/replyjson"
)

// A result without a decision, as TakeAll returns it, has no binding key.
func ExampleOf_withoutDecision() {
	text, err := json.Marshal(replyjson.Of(client.For("user:7", "10/s"), client.Result{}))
	fmt.Println(string(text), err)
	// Output: {"allowed":false,"limit":0,"remaining":0,"retry_after_ms":0,"reset_after_ms":0,"index":0,"key":""} <nil>
}

// A denied request. RetryAfter is negative if the limit can never allow the request.
func ExampleOf() {
	req := client.Request{Keys: []string{"user:7"}, Limits: []client.Limit{"10/s"}}
	res := client.Result{Limit: 10, RetryAfter: 300 * time.Millisecond, ResetAfter: time.Second, Index: 1}
	text, err := json.Marshal(replyjson.Of(req, res))
	fmt.Println(string(text), err)
	// Output: {"allowed":false,"limit":10,"remaining":0,"retry_after_ms":300,"reset_after_ms":1000,"index":1,"key":"user:7"} <nil>
}
