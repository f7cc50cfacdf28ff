package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestRefusals(t *testing.T) {
	limiter := newLimiter(t)
	h := newHandler(t, limiter)
	if answer := send(t, h, "POST", "take", `{"keys":["used"],"limits":["3/m"],"track":"usage"}`); answer.Code != http.StatusOK {
		t.Fatal(answer.Body)
	}
	for _, tt := range []struct {
		name, body     string
		status         int
		reason, detail string // detail is part of the message
	}{
		{"take", ``, 400, "BADARGS", `the body is empty; send a JSON object such as {"keys":["user:42"],"limits":["100/m"]}`},
		{"take", `{"keys":`, 400, "BADARGS", `the body is not JSON (unexpected EOF)`},
		{"take", `keys=a`, 400, "BADARGS", `the body is not JSON (invalid character 'k'`},
		{"take", `[]`, 400, "BADARGS", `the request is []; send a JSON object`},
		{"take", `{} {}`, 400, "BADARGS", `something follows the JSON object`},
		{"take", "{\"keys\":[\"\xff\"]}", 400, "BADARGS", `not UTF-8`},
		{"take", `{"keys":["a\\\ud800"],"limits":["3/m"]}`, 400, "BADARGS", `with half of a surrogate pair; write both halves`},
		{"take", `{"keys":["\udc00\ud800"],"limits":["3/m"]}`, 400, "BADARGS", `half of a surrogate pair`},
		{"take", `{"keys":["\ud83d\ude00","\\ud800"],"limits":["3/q","3/m"]}`, 400, "BADLIMIT", `take "😀" "\\ud800": BADLIMIT`},
		{"take", `{"keys":["a"],"limits":["3/m"],"costs":1}`, 400, "BADARGS", `the request has an unknown field costs; the fields are keys, limits, cost, upto, class, floor, borrow, force, once, track, each`},
		{"take", `{"Keys":["a"],"limits":["3/m"]}`, 400, "BADARGS", `an unknown field Keys`},
		{"take", `{"keys":["a"],"limits":["3/m"],"a\u001b` + strings.Repeat("x", 100) + `":1}`, 400, "BADARGS", `an unknown field "a\x1b` + strings.Repeat("x", 58) + `..."`},
		{"take", `{"keys":["a"],"keys":["b"],"limits":["3/m"]}`, 400, "BADARGS", `has the field keys twice; keep one`},
		{"take", `{"keys":["a"]}`, 400, "BADARGS", `the field limits is missing`},
		{"take", `{"keys":["a"],"limits":null}`, 400, "BADARGS", `limits is null; write a list`},
		{"take", `{"keys":"a","limits":["3/m"]}`, 400, "BADARGS", `keys is "a"; write a list, such as "keys":["user:42"]`},
		{"take", `{"keys":[1],"limits":["3/m"]}`, 400, "BADARGS", `keys[0] is 1; write a string`},
		{"take", `{"keys":["a",null],"limits":["3/m"]}`, 400, "BADARGS", `keys[1] is null; write a string`},
		{"take", `{"keys":["a",""],"limits":["3/m"]}`, 400, "BADARGS", `keys[1] is empty`},
		{"take", `{"keys":["a"],"limits":["3/m"],"track":""}`, 400, "BADARGS", `track is empty; give at least one character, or leave the field out`},
		{"take", `{"keys":["a"],"limits":["3/m"],"upto":1}`, 400, "BADARGS", `upto is 1; write true or false`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":1.0}`, 400, "BADCOST", `cost is 1.0; write a whole number of at most 2^53 in digits`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":1e3}`, 400, "BADCOST", `cost is 1e3;`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":"1"}`, 400, "BADCOST", `cost is "1";`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[]}`, 400, "BADARGS", `cost is an empty list`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[[1]]}`, 400, "BADCOST", `cost is [1];`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":99999999999999999999}`, 400, "BADCOST", `cost is 99999999999999999999;`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":-1}`, 400, "BADCOST", `"-1": a cost is a whole number from 0 to 9007199254740992`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":1}`, 400, "BADARGS", `once is 1; send a JSON object`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o"}}`, 400, "BADARGS", `the field once.ttl_ms is missing; the fields are key, ttl_ms`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":0}}`, 400, "BADARGS", `once.ttl_ms is 0; give 1 to 3153600000000`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":3153600000001}}`, 400, "BADARGS", `once.ttl_ms is 3153600000001`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":1.5}}`, 400, "BADARGS", `once.ttl_ms is 1.5; write a whole number`},
		{"take", `{"keys":["a"],"limits":["3/m"],"once":{"key":"o","ttl_ms":1,"x":1}}`, 400, "BADARGS", `once has an unknown field x`},
		{"take", `{"keys":[],"limits":["3/m"]}`, 400, "BADKEYS", `the number of keys is 0; give each limit one key`},
		{"take", `{"keys":["a","a"],"limits":["3/m","3/m"]}`, 400, "BADKEYS", `given twice`},
		{"take", `{"keys":["a"],"limits":["3/q"]}`, 400, "BADLIMIT", `take "a": BADLIMIT`},
		{"take", `{"keys":["a"],"limits":["3/m"],"cost":[1,2]}`, 400, "BADARGS", `the number of costs is 2 and the number of limits 1`},
		{"take", `{"keys":["a"],"limits":["3/m"],"upto":true,"force":true}`, 400, "BADARGS", `Force and UpTo are both set`},
		{"take", `{"keys":["a"],"limits":["@shared"],"class":"bulk"}`, 400, "BADARGS", `"bulk": no such class of @shared; its classes are batch, default`},
		{"take", `{"keys":["a"],"limits":["3/m"],"class":"batch"}`, 400, "BADARGS", `"batch": only policies have classes`},
		{"peek", `{"keys":["a"],"limits":["3/m"],"floor":101}`, 400, "BADARGS", `Floor is 101; give a percentage`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":-9223372036854775808}`, 400, "BADARGS", `Floor is -9223372036854775808`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":9223372036854775807}`, 400, "BADARGS", `give a percentage`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":1.5}`, 400, "BADARGS", `floor is 1.5; write a whole number`},
		{"take", `{"keys":["a"],"limits":["3/m"],"floor":20,"force":true}`, 400, "BADARGS", `Force is set and Floor is 20`},
		{"take", `{"keys":["a"],"limits":["3/m"],"borrow":true}`, 400, "BADARGS", `give a guarantee and a pool`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":3}`, 400, "BADARGS", `paid is 3; give the index in the reply to the take`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"],"paid":2,"cost":[0,1]}`, 400, "BADARGS", `cost is [0 1] beside paid; a guarantee and a pool are charged the same`},
		{"refund", `{"keys":["{p}t","{p}"],"limits":["@tenant"]}`, 400, "BADARGS", `PAID`},
		{"acquire", `{"key":"a","limit":"concurrency 2 lease=30s","class":"batch"}`, 400, "BADARGS", `"batch"`},
		{"renew", `{"key":"a","limit":"concurrency 2 lease=30s","lease_id":"x","floor":1}`, 400, "BADARGS", `unknown field floor`},
		{"take", `{"keys":["usage"],"limits":["3/m"]}`, 400, "BADSTATE", `usage`},
		{"take", `{"keys":["a"],"limits":["@none"]}`, 404, "NOPOLICY", `none`},
		{"take", `{"keys":["` + strings.Repeat("k", 9000) + `"],"limits":["@none"]}`, 404, "NOPOLICY", `take "` + strings.Repeat("k", 60) + `...": `},
		{"peek", `{"keys":["a"],"limits":["3/m"],"force":true}`, 400, "BADARGS", `unknown field force; the fields are keys, limits, cost, upto, class, floor, borrow, each`},
		{"refund", `{"keys":["a"],"limits":["3/m"],"upto":true}`, 400, "BADARGS", `unknown field upto`},
		{"acquire", `{"key":"a","limit":"3/m"}`, 400, "BADLIMIT", `acquire "a"`},
		{"acquire", `{"key":"a","limit":"concurrency 2 lease=30s","lease_id":""}`, 400, "BADARGS", `lease_id is empty`},
		{"renew", `{"key":"a","limit":"concurrency 2 lease=30s"}`, 400, "BADARGS", `the field lease_id is missing`},
		{"block", `{"keys":["a"],"ms":0}`, 400, "BADARGS", `ms is 0; give 1 to 3153600000000`},
		{"override", `{"keys":["a"],"limit":"9/m","ms":0}`, 400, "BADARGS", `ms is 0; give 1 to 3153600000000`},
		{"override", `{"keys":["a"],"limit":"@api","ms":1}`, 400, "BADLIMIT", `override "a"`},
		{"override", `{"keys":["a"],"ms":1}`, 400, "BADARGS", `the field limit is missing; the fields are keys, limit, ms`},
		{"override", `{"keys":[],"limit":"9/m","ms":1}`, 400, "BADKEYS", `0`},
		{"usage", `{"key":"used"}`, 400, "BADSTATE", `used`},
		{"info", `{"x":1}`, 400, "BADARGS", `unknown field x`},
		{"none", `{}`, 404, "", `/v1/none is not a path of the API; /v1/openapi.yaml lists the paths`},
		{"take", `{"keys":["` + strings.Repeat("a", mostBytes) + `"]}`, 413, "BADARGS", `the body has more than 65536 bytes; send fewer keys in a call`},
	} {
		answer := send(t, h, "POST", tt.name, tt.body)
		var got struct {
			Title, Detail, Reason string
			Status                int
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s %.100s: %v in %s", tt.name, tt.body, err, answer.Body)
		}
		if answer.Code != tt.status || got.Status != tt.status || got.Title != http.StatusText(tt.status) || got.Reason != tt.reason ||
			!strings.Contains(got.Detail, tt.detail) || answer.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.100s:\n%d %s, want\n%d %s %s", tt.name, tt.body, answer.Code, answer.Body, tt.status, tt.reason, tt.detail)
		}
	}
	if answer := send(t, h, "GET", "take", ""); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "POST" {
		t.Errorf("GET: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}
	if answer := send(t, h, "DELETE", "info", ""); answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, POST" {
		t.Errorf("DELETE: %d %v %s", answer.Code, answer.Header(), answer.Body)
	}
}
