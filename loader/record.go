package loader

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// recordName is the library, and its only function, that a deployment leaves beside ours on each primary: which build
// was put there as the how manieth deployment, and the text that it replaced. So what there is to go back to is
// replicated and persisted as the library is, and found from any machine; reading it needs no key and no further right.
const recordName = functions.Name + "_previous"

// record is what that library says.
type record struct {
	deployment int64  // counts the deployments to these servers; 0: there is no record
	deployed   string // digest of the build that was put in place
	atMS       int64  // when, by the server's clock; ms since the epoch
	replaced   string // the text that was there before, "" if there was none
}

const textMark = "\nlocal TEXT = "

// text is the library that holds the record.
func (r record) text() string {
	return fmt.Sprintf(`#!lua name=%s
-- Written by a deployment of the library %s: which build it put here, and the text that it replaced, which
-- FCALL_RO %s 0 answers and "ratelimit rollback" puts back.
local DEPLOYMENT = %d
local DEPLOYED = '%s'
local AT_MS = %d%s%s
redis.register_function{
  function_name = '%s',
  description = 'Answers the library text that the last deployment replaced.',
  flags = { 'no-writes', 'allow-stale' },
  callback = function() return TEXT end,
}
`, recordName, functions.Name, recordName, r.deployment, r.deployed, r.atMS, textMark, luaString(r.replaced), recordName)
}

// readRecord reads the library that text wrote; a record of deployment 0 where it is another's.
func readRecord(code string) record {
	head, rest, ok := strings.Cut(code, textMark)
	if !ok {
		return record{}
	}
	replaced, ok := readLuaString(rest)
	if !ok {
		return record{}
	}
	r := record{replaced: replaced, deployed: value(head, "DEPLOYED"), atMS: number(head, "AT_MS"), deployment: number(head, "DEPLOYMENT")}
	if len(r.deployed) != 64 || r.deployment < 1 {
		return record{}
	}
	return r
}

// value is what a line "local NAME = '...'" or "local NAME = ..." of a Lua text gives; "" where there is none.
func value(head, name string) string {
	for line := range strings.Lines(head) {
		if v, ok := strings.CutPrefix(line, "local "+name+" = "); ok {
			v = strings.TrimSpace(v)
			if text, ok := readLuaString(v); ok {
				return text
			}
			return strings.Trim(v, "'")
		}
	}
	return ""
}

func number(head, name string) int64 {
	n, _ := strconv.ParseInt(value(head, name), 10, 64)
	return n
}
