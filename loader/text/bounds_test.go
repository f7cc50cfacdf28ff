package text

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// TestCompareWithoutNumbers checks the order of two parts that no deployment put there.
func TestCompareWithoutNumbers(t *testing.T) {
	code := func(contract, version, rest string) Part {
		return Part{Value: strings.NewReplacer("CONTRACT = 1", "CONTRACT = "+contract, "0.1.0", version).Replace(small) + rest}
	}
	ascending := []Part{{}, code("1", "0.1.0-rc1", "z"), code("1", "0.1.0", ""), code("1", "0.1.0", "a"), code("1", "0.10.0", ""), code("2", "0.2.0", ""), {Number: 1}}
	for i, a := range ascending {
		for j, b := range ascending {
			if got := Compare(a, b); got != cmp.Compare(i, j) {
				t.Errorf("parts %d and %d: %d", i, j, got)
			}
		}
	}
	other := strings.Replace(small, "000000000000", "111111111111", 1)
	if Compare(Part{Value: small}, Part{Value: other}) != 0 || (Part{Value: small}).ID() != (Part{Value: other}).ID() || Digest(small) != Digest(other) {
		t.Error("the build ID counts")
	}
	if a, b := (Part{Value: small}), (Part{Value: small + "a"}); a.ID() == b.ID() || Digest(a.Value) == Digest(b.Value) || Digest("") != "" {
		t.Error("an ID or a digest is not that of the value")
	}
}

// TestPartsThatAreNotThere checks that a part without number and value is like none.
func TestPartsThatAreNotThere(t *testing.T) {
	nothing := Text{Parts: map[string]Part{"a": {}}}
	if joined := Join(Text{}, nothing); len(joined.Parts) > 0 || !Equal(nothing, Text{}) {
		t.Errorf("%+v", joined)
	}
	// A text that is above another one is not equal to it, in either order.
	if above := (Text{Parts: map[string]Part{"a": {Number: 1}}}); Equal(nothing, above) || Equal(above, nothing) {
		t.Error("a text equals one that is above it")
	}
	// A body without namespaces is the value byte for byte, even if its build ID is not that of Rebuild.
	if got, err := Parse(small); err != nil || got.Parts[""].Value != small || len(got.Parts) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestLinesOfADifference checks that a difference names each run of equal lines once.
func TestLinesOfADifference(t *testing.T) {
	if got, want := difference("a\nb\nc\nd", "x\na\nb\ny\nc\nd\nd"), "+x\n=0,2\n+y\n=2,2\n=3,1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, bad := range []string{"=x,1", "0,1", "=0,x", "=0"} {
		if got, err := apply("a", bad+"\n"); err == nil {
			t.Errorf("%q is taken: %q", bad, got)
		}
	}
	line := strings.Repeat("x", mostReplaced)
	for _, how := range []string{"=0,1\n", "+" + line + "\n"} {
		if got, err := apply(line, how); err != nil || got != line {
			t.Errorf("a value of %d bytes: %v", mostReplaced, err)
		}
		if _, err := apply(line, how+"+\n"); err == nil {
			t.Errorf("a value of %d bytes is taken", mostReplaced+1)
		}
	}
}

// TestBoundsOfAHeader checks the greatest numbers, headers and values that are taken.
func TestBoundsOfAHeader(t *testing.T) {
	record := func(number, logged, at int64) string {
		return header(aPart + pack(fmt.Sprintf(`{"namespace":"a","number":%d,"digest":"","log":[{"number":%d,"at":%d,"who":"x"}]}`, number, logged, at)))
	}
	for _, numbers := range [][3]int64{{1, 1, 0}, {MaxNumber, MaxNumber, MaxNumber}} {
		if got, err := Parse(record(numbers[0], numbers[1], numbers[2])); err != nil || got.Highest != numbers[0] {
			t.Errorf("%v: %v, %+v", numbers, err, got)
		}
	}
	for _, numbers := range [][3]int64{{0, 1, 1}, {1, 0, 1}, {1, 1, -1}, {MaxNumber + 1, 1, 1}, {1, MaxNumber + 1, 1}, {1, 1, MaxNumber + 1}} {
		if _, err := Parse(record(numbers[0], numbers[1], numbers[2])); err == nil {
			t.Errorf("%v: taken", numbers)
		}
	}

	long := func(bytes int) Text {
		return Text{Parts: map[string]Part{"a": {Number: 1, line: strings.Repeat("x", bytes-len(aPart))}}}
	}
	if _, err := long(mostHeader).Render("n", "ann"); err != nil {
		t.Errorf("a header of %d bytes: %v", mostHeader, err)
	}
	if _, err := long(mostHeader+1).Render("n", "ann"); err == nil {
		t.Errorf("a header of %d bytes is written", mostHeader+1)
	}
	// The line with the writer has up to 1024 bytes beside.
	read := func(bytes int) string {
		_, err := Parse(fmt.Sprintf("%s\n%s1, 1 lines, %016d\n%s\n%s\n", shebang, begins, 0, strings.Repeat("x", bytes), ends))
		return fmt.Sprint(err)
	}
	if got := read(mostHeader + 1024); strings.Contains(got, "at most") {
		t.Error(got)
	}
	if got := read(mostHeader + 1025); !strings.Contains(got, "at most") {
		t.Error(got)
	}

	left := 5
	if got, err := unpack(pack("hello"), &left); err != nil || got != "hello" || left != 0 {
		t.Errorf("%q, %v, %d bytes are left", got, err, left)
	}
	left = 4
	if _, err := unpack(pack("hello"), &left); err == nil {
		t.Error("more than what is left is taken")
	}
}

// TestValuesThatCannotBe checks which values of namespaces, writers and bodies are refused.
func TestValuesThatCannotBe(t *testing.T) {
	one, two := policy("a/x", "1/m"), policy("a/y", "1/m")
	value := ValueOf([]functions.Policy{one, two})
	lines := slices.Collect(strings.Lines(value))
	if got, err := Parse(header(aValue + pack("a\n"+value))); err != nil || !maps.EqualFunc(got.Parts, map[string]Part{"a": {Value: value}}, func(a, b Part) bool { return a.Value == b.Value }) {
		t.Errorf("%v: %+v", err, got)
	}
	for name, bad := range map[string]string{
		"empty":         header(aValue + pack("a\n")),
		"unsorted":      header(aValue + pack("a\n"+lines[1]+lines[0])),
		"no JSON":       header(aValue + pack("a\nhello\n")),
		"no namespace":  header(aValue + pack("\n"+value)),
		"another":       header(aValue + pack("b\n"+value)),
		"a bad writer":  strings.Replace(header(), By+"n'", By+"N!'", 1),
		"an empty name": strings.Replace(header(), By+"n'", By+"'", 1),
	} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%s: taken: %+v", name, got)
		}
	}
	for name, code := range map[string]string{"one line": "#!lua name=ratelimit", "a header": header()} {
		if got, err := (Text{Parts: map[string]Part{"": {Value: code}}}).Render("n", "ann"); err == nil {
			t.Errorf("%s: written: %q", name, got)
		}
	}
	broken := map[string]Part{"a": {Value: "hello\n"}}
	if _, err := (Text{Parts: broken}).Render("n", "ann"); err == nil {
		t.Error("a value that has no policies is written")
	}
	broken = map[string]Part{"": {Value: "#!lua name=ratelimit\nx = 1\n"}, "a": {Value: value}}
	if _, err := (Text{Parts: broken}).Render("n", "ann"); err == nil {
		t.Error("policies are lost: the code cannot hold them")
	}
}
