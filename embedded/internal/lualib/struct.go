package lualib

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// structItem is one item in a format of struct.pack or struct.unpack.
type structItem struct {
	kind byte // 'I' unsigned, 'i' signed, 'c' text
	size int
	big  bool // big-endian
}

// structFormat parses a format: < and >, b B h H l L, i and I with 1 to 8 bytes, and c with a
// length. These need no alignment and no C types. Other options are rejected.
func structFormat(L *lua.LState) []structItem {
	text := Text(L, 1)
	var items []structItem
	big := false
	for i := 0; i < len(text); {
		if len(items) == maxResults {
			L.ArgError(1, "too many items")
		}
		c := text[i]
		i++
		size := 0
		for (c|32 == 'i' || c == 'c') && i < len(text) && isDigit(text[i]) && size <= MaxString {
			size = size*10 + int(text[i]-'0')
			i++
		}
		at := strings.IndexByte("bBhHlLiIc", c)
		switch {
		case c == ' ':
		case c == '<' || c == '>':
			big = c == '>'
		case c == 'c' && size > 0:
			items = append(items, structItem{'c', size, big})
		case at >= 0 && at < 8:
			kind := byte('i')
			if isUpper(c) {
				kind = 'I'
			}
			if n := []int{1, 2, 8, 4}[at/2]; size == 0 {
				size = n
			}
			if size <= 8 {
				items = append(items, structItem{kind, size, big})
				continue
			}
			fallthrough
		default:
			L.ArgError(1, "the embedded server does not have the format option '"+text[i-1:i]+"' of struct (in "+text+
				"): it has < > b B h H l L, i and I of up to 8 bytes, and c with a length")
		}
	}
	return items
}

func structPack(L *lua.LState) int {
	var b []byte
	for i, item := range structFormat(L) {
		checkLength(L, len(b)+item.size)
		arg := i + 2
		if item.kind == 'c' {
			s := Text(L, arg)
			if len(s) < item.size {
				L.ArgError(arg, "string too short")
			}
			b = append(b, s[:item.size]...)
			continue
		}
		v := number(L, arg)
		u := uint64(ToInt64(v))
		if v >= 1<<63 && v < 1<<64 {
			u = uint64(v)
		}
		for k := range item.size {
			if item.big {
				k = item.size - 1 - k
			}
			b = append(b, byte(u>>(8*k)))
		}
	}
	L.Push(lua.LString(b))
	return 1
}

func structUnpack(L *lua.LState) int {
	items, data := structFormat(L), Text(L, 2)
	at := optInteger(L, 3, 1) - 1
	if at < 0 {
		L.ArgError(3, "offset must be 1 or greater")
	}
	for _, item := range items {
		if at > len(data) || item.size > len(data)-at {
			L.ArgError(2, "data string too short")
		}
		piece := data[at : at+item.size]
		at += item.size
		if item.kind == 'c' {
			L.Push(lua.LString(piece))
			continue
		}
		var u uint64
		for k := range item.size {
			c := piece[k]
			if !item.big {
				c = piece[item.size-1-k]
			}
			u = u<<8 | uint64(c)
		}
		if item.kind == 'i' {
			unused := 64 - 8*item.size
			L.Push(lua.LNumber(int64(u<<unused) >> unused))
		} else {
			L.Push(lua.LNumber(u))
		}
	}
	L.Push(lua.LNumber(at + 1))
	return len(items) + 1
}
