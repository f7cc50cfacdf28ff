package lualib

import lua "github.com/yuin/gopher-lua"

// structItem is one item in a format of struct.pack or struct.unpack.
type structItem struct {
	kind byte // c for text; otherwise a letter of structSizes, in upper case if the integer is unsigned
	size int
	big  bool // whether the integer is big-endian
}

// structSizes holds the sizes of integers in bytes. A number after i or I changes the size.
var structSizes = map[byte]int{'b': 1, 'h': 2, 'l': 8, 'i': 4}

// structFormat parses a format. It supports the options that need no alignment and no C types, and
// rejects others. The options are < and >, b B h H l L, i and I with 1 to 8 bytes, and c with a
// length.
func structFormat(L *lua.LState) []structItem {
	text := Text(L, 1)
	var items []structItem
	big := false
	for rest := text; rest != ""; {
		item := structItem{kind: rest[0], big: big}
		rest = rest[1:]
		sized := item.kind == 'c' || lower(item.kind) == 'i'
		for sized && rest != "" && isDigit(rest[0]) && item.size <= MaxString {
			item.size = item.size*10 + int(rest[0]-'0')
			rest = rest[1:]
		}
		if item.size == 0 {
			item.size = structSizes[lower(item.kind)]
		}
		switch {
		case item.kind == ' ':
		case item.kind == '<' || item.kind == '>':
			big = item.kind == '>'
		case item.size == 0 || item.size > 8 && item.kind != 'c':
			L.ArgError(1, "the embedded server does not have the format option '"+string([]byte{item.kind})+"' of struct (in "+text+
				"): it has < > b B h H l L, i and I of up to 8 bytes, and c with a length")
		case len(items) == maxResults:
			L.ArgError(1, "too many items")
		default:
			items = append(items, item)
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
		if isUpper(item.kind) {
			L.Push(lua.LNumber(u))
		} else {
			unused := 64 - 8*item.size
			L.Push(lua.LNumber(int64(u<<unused) >> unused))
		}
	}
	L.Push(lua.LNumber(at + 1))
	return len(items) + 1
}
