package api

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestBadBodies checks the whole text of errors for JSON that other readers accept, or that is too deep.
func TestBadBodies(t *testing.T) {
	h := newHandler(t, newLimiter(t))
	const take = `{"keys":["a"],"limits":["3/m"],`
	for _, tt := range []struct{ body, want string }{
		{take + `"cost":NaN}`, `the body is not JSON (invalid character 'N' looking for beginning of value); send a JSON object`},
		{take + `"cost":9223372036854775808}`, `cost is 9223372036854775808; write a whole number of at most 2^53 in digits, such as "cost":5`},
		{take + `"cost":1,"cost":2}`, `the request has the field cost twice; keep one`},
		{take + `"once":{"key":"x","key":"y","ttl_ms":1000}}`, `once has the field key twice; keep one, such as "once":{"key":"request-17","ttl_ms":60000}`},
		{`{"keys":` + strings.Repeat("[", 12000), `the body is not JSON (invalid character '[' exceeded max depth); send a JSON object`},
		{`{"keys":[[[["a"]]]],"limits":["3/m"]}`, `keys[0] is [[["a"]]]; write a string, such as "keys":["user:42"]`},
	} {
		answer := send(t, h, "POST", "take", tt.body)
		var problem struct{ Detail string }
		if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || answer.Code != 400 || problem.Detail != tt.want {
			t.Errorf("%.80s: %d %s\nwant %s", tt.body, answer.Code, answer.Body, tt.want)
		}
	}
}
