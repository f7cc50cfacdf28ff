package lua_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestExamplesOfCalls checks the replies in the blocks of CALLS.md. The calls of a block are made one
// after the other at one time, on an empty server.
func TestExamplesOfCalls(t *testing.T) {
	blocks := 0
	for _, block := range regexp.MustCompile("(?s)\n```text\n(.+?)\n```\n").FindAllStringSubmatch(read(t, "../functions/CALLS.md"), -1) {
		if strings.HasPrefix(block[1], "FCALL ") {
			examplesOfCalls(t, block[1])
			blocks++
		}
	}
	if blocks != 2 {
		t.Errorf("CALLS.md has %d blocks of calls, want 2", blocks)
	}
}

func examplesOfCalls(t *testing.T, block string) {
	server := start(t)
	examples := regexp.MustCompile(`(?m)^FCALL (.+?)\s+-> (.+)$`).FindAllStringSubmatch(block, -1)
	if want := strings.Count(block, "FCALL "); want < 10 || len(examples) != want {
		t.Fatalf("%d of %d examples have a reply", len(examples), want)
	}
	for _, example := range examples {
		call := []any{"FCALL"}
		for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(example[1], -1) {
			call = append(call, strings.Trim(word, `"`))
		}
		reply, err := server.Do(call...)
		got := fmt.Sprint(reply)
		if list, ok := reply.([]any); ok {
			got = strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(list), "["), "]")
		}
		if err != nil || got != example[2] {
			t.Errorf("%s: %s, %v; CALLS.md has %s", example[1], got, err, example[2])
		}
	}
}

// TestTablesOfCalls compares the functions and the reasons of errors in CALLS.md with the library.
func TestTablesOfCalls(t *testing.T) {
	calls := read(t, "../functions/CALLS.md")
	var inTable, inLibrary []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(ratelimit_\\w+)` \\| (yes|no)(?:, ([a-z-]+))? \\|").FindAllStringSubmatch(calls, -1) {
		flags := []string{}
		if row[2] == "no" {
			flags = append(flags, "no-writes")
		}
		if row[3] != "" {
			flags = append(flags, row[3])
		}
		slices.Sort(flags)
		inTable = append(inTable, fmt.Sprint(row[1], flags))
	}
	for _, library := range must[any](t)(start(t).Do("FUNCTION", "LIST")).([]any) {
		for _, function := range field(library, "functions").([]any) {
			inLibrary = append(inLibrary, fmt.Sprint(field(function, "name"), words(field(function, "flags"))))
		}
	}
	slices.Sort(inTable)
	slices.Sort(inLibrary)
	if !slices.Equal(inTable, inLibrary) {
		t.Errorf("CALLS.md has the functions\n%q, and the library\n%q", inTable, inLibrary)
	}
	var inErrors []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+) \|`).FindAllStringSubmatch(calls, -1) {
		inErrors = append(inErrors, row[1])
	}
	if !slices.Equal(inErrors, reasons) {
		t.Errorf("CALLS.md has the reasons %q, and the library %q", inErrors, reasons)
	}
}

// field returns the value after a name in a flat list of names and values.
func field(list any, name string) any {
	all := list.([]any)
	for i := 0; i+1 < len(all); i += 2 {
		if all[i] == name {
			return all[i+1]
		}
	}
	return nil
}
