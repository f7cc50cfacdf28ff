package main

import (
	"slices"
	"testing"
)

// Every kind of change, over one line and over several, and which of equal lines it is.
func TestFind(t *testing.T) {
	const text = `-- 1 < 2
local a = 10
if a < 2 and
  b == '3 < 4' then return nil end
f(a)
f(a)
return nil
`
	var got []string
	for _, m := range find("src/x.lua", text) {
		got = append(got, m.String()+" | "+flat(m.New))
	}
	want := []string{
		"functions/src/x.lua:2: 10 -> 11 in: local a = 10 | local a = 11",
		"functions/src/x.lua:2: 10 -> 9 in: local a = 10 | local a = 9",
		"functions/src/x.lua:3: < -> <= in: if a < 2 and | if a <= 2 and",
		"functions/src/x.lua:3: 2 -> 3 in: if a < 2 and | if a < 3 and",
		"functions/src/x.lua:3: 2 -> 1 in: if a < 2 and | if a < 1 and",
		"functions/src/x.lua:3: and -> or in: if a < 2 and | if a < 2 or",
		"functions/src/x.lua:4: == -> ~= in: b == '3 < 4' then return nil end | b ~= '3 < 4' then return nil end",
		"functions/src/x.lua:3: condition -> not in: if a < 2 and b == '3 < 4' then return nil end | if not (a < 2 and b == '3 < 4') then return nil end",
		"functions/src/x.lua:3: statement -> nothing in: if a < 2 and b == '3 < 4' then return nil end | ",
		"functions/src/x.lua:5: statement -> nothing in: f(a) | ",
		"functions/src/x.lua:6: statement -> nothing in: f(a) | ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	all := find("src/x.lua", text)
	if first, second := all[len(all)-2], all[len(all)-1]; first.Nth != 0 || second.Nth != 1 {
		t.Errorf("of two equal lines the first is number %d, the second %d", first.Nth, second.Nth)
	}
}
