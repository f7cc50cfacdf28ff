package luasource

import "strings"

// absent lists names that Redis provides to functions but the embedded server does not. A value, if
// not "", says what to use instead. No limiter has needed any of these names so far.
var absent = map[string]string{
	"bit": "", "cjson": "", "cmsgpack": "", "struct.size": "",
	"collectgarbage": "leave it out", "gcinfo": "leave it out",
	"coroutine": "use a function that is called again", "load": "write the code into the library", "loadstring": "write the code into the library",
	"xpcall":      "use pcall",
	"string.dump": "", "string.gfind": "use string.gmatch", "math.mod": "use math.fmod",
	"table.foreach": "use pairs", "table.foreachi": "use ipairs", "table.setn": "leave it out",
}

// Absent reports whether name exists in Redis but not in the embedded server. name is a global
// variable, or a field of a global variable, such as "string.dump". Absent also returns an error
// message for name.
func Absent(name string) (string, bool) {
	instead, ok := absent[name]
	if !ok {
		return "", false
	}
	text := "the embedded server does not have " + name + ", which Redis has"
	if !strings.Contains(name, ".") && instead == "" {
		text += ", nor anything in it"
	}
	if instead != "" {
		text += ": " + instead
	}
	return text, true
}
