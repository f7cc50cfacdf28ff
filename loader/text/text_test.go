package text

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ratelimit-functions/ratelimit/functions"
)

// small is a library without functions, which is enough for a text.
const small = "#!lua name=ratelimit\nlocal VERSION = '0.1.0'\nlocal CONTRACT = 1\nlocal BUILD_ID = '000000000000'\nlocal POLICIES = {}\n"

func policy(name, limit string) functions.Policy {
	return functions.Policy{Name: name, Limits: []functions.PolicyLimit{{Limit: limit}}}
}

func rebuilt(t interface{ Fatal(...any) }, code string, policies ...functions.Policy) string {
	text, err := functions.Rebuild(code, policies)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// texts draws texts with the namespaces "", a and b, some of them without numbers or code.
func texts(t *rapid.T) Text {
	parts := map[string]Part{}
	for _, namespace := range []string{"", "a", "b"} {
		value := func(label string) string {
			n := rapid.IntRange(0, 3).Draw(t, label)
			switch {
			case n == 0:
				return ""
			case namespace == "":
				return rebuilt(t, strings.Replace(small, "0.1.0", fmt.Sprintf("0.%d.0", n), 1), policy("own", fmt.Sprintf("%d/m", n)))
			}
			return ValueOf([]functions.Policy{policy(namespace+"/x", fmt.Sprintf("%d/m", n))})
		}
		part := Part{Number: rapid.Int64Range(0, 3).Draw(t, "number"), Value: value("value"), Replaced: value("replaced")}
		if part.Number == 0 {
			part.Replaced = ""
			if part.Value == "" {
				continue
			}
		} else {
			part.Log = []Entry{{Number: part.Number, AtMS: 5, Who: "ann", Changed: []string{"x"}}}
		}
		parts[namespace] = part
	}
	return Text{}.With(parts)
}

func TestJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := texts(t), texts(t), texts(t)
		ab := Join(a, b)
		for name, same := range map[string]bool{
			"commutative": Equal(ab, Join(b, a)),
			"associative": Equal(Join(ab, c), Join(a, Join(b, c))),
			"idempotent":  Equal(Join(a, a), a) && Equal(Join(ab, b), ab),
			"above both":  Within(a, ab) && Within(b, ab),
			"empty":       Equal(Join(a, Text{}), a),
			"least":       Within(ab, c) == (Within(a, c) && Within(b, c)),
		} {
			if !same {
				t.Fatalf("not %s: %+v, %+v, %+v", name, a, b, c)
			}
		}
	})
}

// A text that is written and read is the same, and has the body.
func TestRenderAndParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := texts(t)
		source, err := want.Render("name", "ann 'the admin'")
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(source)
		if err != nil || !Equal(got, want) || got.Name != "name" {
			t.Fatalf("%v: %+v\nwant\n%+v\n%s", err, got, want, source)
		}
		for namespace, part := range want.Parts {
			if found := got.Parts[namespace]; found.Replaced != part.Replaced || part.Number > 0 && !reflect.DeepEqual(found.Log, part.Log) {
				t.Fatalf("%+v\nwant\n%+v", found, part)
			}
		}
		body, err := want.Body()
		if err != nil || Body(source) != body {
			t.Fatalf("%v: the body is %q\nwant %q", err, Body(source), body)
		}
		again, err := got.Render("name", "ann 'the admin'")
		if err != nil || again != source {
			t.Fatalf("%v: rendered again it is another text", err)
		}
	})
}

func TestDifference(t *testing.T) {
	lines := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", "", "=1,2", "+", "\xff\x00", "c\r"}))
	rapid.Check(t, func(t *rapid.T) {
		base, target := strings.Join(lines.Draw(t, "base"), "\n"), strings.Join(lines.Draw(t, "target"), "\n")
		if got, err := apply(base, difference(base, target)); err != nil || got != target {
			t.Fatalf("%q, %v", got, err)
		}
	})
	for _, bad := range []string{"x", "=", "=0,0", "=0,2", "=-1,1", "=1,1", "=0,9223372036854775807", "=9223372036854775807,1", "=0,1\nx", strings.Repeat("=0,1\n", 70000)} {
		if _, err := apply(strings.Repeat("x", 100), bad); err == nil {
			t.Errorf("%.80q is taken", bad)
		}
	}
}

// What is edited by hand counts as number 0, and what a header says of it is not believed.
func TestEdited(t *testing.T) {
	whole := Text{}.With(map[string]Part{"": {Number: 7, Value: rebuilt(t, small, policy("own", "1/m"))}, "a": {Number: 8, Value: ValueOf([]functions.Policy{policy("a/x", "1/m")})}})
	source, err := whole.Render("n", "ann")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, source string
		numbers      [2]int64
	}{
		{"as it was", source, [2]int64{7, 8}},
		{"the code", source + "-- more\n", [2]int64{0, 8}},
		{"a policy without a namespace", strings.Replace(source, "['own'] = { '1/m'", "['own'] = { '2/m'", 1), [2]int64{0, 8}},
		{"a policy of a namespace", strings.Replace(source, "{ '1/m'", "{ '2/m'", 1), [2]int64{7, 0}},
		{"the build id", strings.Replace(source, "local BUILD_ID = '", "local BUILD_ID = 'x", 1), [2]int64{7, 8}},
		{"without a header", Body(source), [2]int64{0, 0}},
	} {
		got, err := Parse(tt.source)
		if err != nil || [2]int64{got.Parts[""].Number, got.Parts["a"].Number} != tt.numbers {
			t.Errorf("%s: %v, %+v", tt.name, err, got)
		}
		if tt.name != "without a header" && got.Highest != 8 {
			t.Errorf("%s: the highest number is %d", tt.name, got.Highest)
		}
	}
}

// header returns a text whose header has the lines.
func header(lines ...string) string {
	all := strings.Join(lines, "\n")
	if all != "" {
		all += "\n"
	}
	return fmt.Sprintf("%s\n%s1, %d lines, %.16s\n%sredis.register_function{function_name='ratelimit_by_n',...}\n%s\n", shebang, begins, len(lines), functions.Digest(strings.TrimSuffix(all, "\n")), all, ends)
}

func TestHeadersThatCannotBe(t *testing.T) {
	raw := func(text string) string { return aPart + pack(text) }
	good := Text{}.With(map[string]Part{"": {Number: 7, Value: small, Replaced: small + "x"}, "a": {Number: 8}})
	source, err := good.Render("n", "ann")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(header()); err != nil {
		t.Errorf("an empty header: %v", err)
	}
	if _, err := Parse(header(raw(`{"namespace":"a","number":7,"digest":""}`))); err != nil {
		t.Errorf("a tombstone: %v", err)
	}
	for name, bad := range map[string]string{
		"cut in a part":     source[:len(shebang)+80],
		"cut at the end":    source[:strings.Index(source, ends)],
		"a changed byte":    strings.Replace(source, aPart, aPart+"A", 1),
		"a part less":       header(raw(`{"namespace":"a","number":7,"digest":""}`))[:len(shebang)+1] + strings.Replace(header(raw(`{"namespace":"a","number":7,"digest":""}`))[len(shebang)+1:], "1 lines", "2 lines", 1),
		"twice":             header(raw(`{"namespace":"a","number":7,"digest":""}`), raw(`{"namespace":"a","number":8,"digest":""}`)),
		"number 2^63":       header(raw(`{"namespace":"a","number":9223372036854775808,"digest":""}`)),
		"number 2^63-1":     header(raw(`{"namespace":"a","number":9223372036854775807,"digest":""}`)),
		"year 9999":         header(raw(`{"namespace":"a","number":253402300799000,"digest":""}`)),
		"log in year 9999":  header(raw(`{"namespace":"a","number":7,"digest":"","log":[{"number":7,"at":253402300799000,"who":"x"}]}`)),
		"number 0":          header(raw(`{"namespace":"a","number":0,"digest":""}`)),
		"a fraction":        header(raw(`{"namespace":"a","number":7.5,"digest":""}`)),
		"a negative number": header(raw(`{"namespace":"a","number":-7,"digest":""}`)),
		"a digest":          header(raw(`{"namespace":"a","number":7,"digest":"x"}`)),
		"a long log":        header(raw(`{"namespace":"a","number":7,"digest":"","log":[` + strings.Repeat(`{"number":7},`, MaxLog) + `{"number":7}]}`)),
		"another field":     header(raw(`{"namespace":"a","number":7,"digest":"","more":1}`)),
		"no JSON":           header(raw(`hello`)),
		"no deflate":        header(aPart + "aGVsbG8="),
		"no base64":         header(aPart + "%"),
		"a namespace":       header(raw(`{"namespace":"../a","number":7,"digest":""}`)),
		"a difference":      header(raw("{\"namespace\":\"a\",\"number\":7,\"digest\":\"\"}\n=5,5\n")),
		"another line":      header("--hello"),
		"a value twice":     header(aValue+pack("a\n"+ValueOf([]functions.Policy{policy("a/x", "1/m")})), aValue+pack("a\n"+ValueOf([]functions.Policy{policy("a/x", "1/m")}))),
		"a foreign value":   header(aValue + pack("a\n"+ValueOf([]functions.Policy{policy("b/x", "1/m")}))),
		"a value and code":  header(aValue+pack("a\n"+ValueOf([]functions.Policy{policy("a/x", "1/m")}))) + "x = 1\n",
		"too large":         header(strings.Split(strings.Repeat(raw(`{"namespace":"a"}`)+"\n", 60000), "\n")...),
		"a bomb":            header(raw(strings.Repeat(" ", mostInflated+1))),
		"no writer":         strings.Replace(source, By, "other_", 1),
		"unreadable":        small[:len(small)-2] + "\n  ['a/x'] = {'1/m'},\n}\n",
	} {
		if got, err := Parse(bad); err == nil || !reflect.DeepEqual(got, Text{}) || len(err.Error()) > 300 {
			t.Errorf("%s: %.300v, %+v", name, err, got)
		}
	}
	if _, err := Parse(strings.Replace(source, begins+"1", begins+"2 and more", 1)); err == nil {
		t.Error("another first line is taken")
	}
	if _, err := Parse(strings.Replace(source, begins+"1", begins+"2", 1)); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer format: %v", err)
	}
}

// The header adds less than 100 KB to a library with 10,000 policies of which each was changed, and
// to one with 61 namespaces that were each deployed ten times.
func TestSizeOfAHeader(t *testing.T) {
	all := func(namespace, limit string, n int) (list []functions.Policy) {
		for i := range n {
			list = append(list, policy(fmt.Sprintf("%sconsumer-%d", namespace, i*7919%n), limit))
		}
		return list
	}
	log := make([]Entry, MaxLog)
	for i := range log {
		log[i] = Entry{Number: 1_700_000_000_000 + int64(i)*86_400_123, AtMS: 1_700_000_000_000 + int64(i)*86_400_123, Who: fmt.Sprintf("deployer@ci-runner-%d (process %d)", i*31, i*4711),
			Digest: functions.Digest(fmt.Sprint(i))[:12], Changed: []string{"consumer-1", "consumer-2", "consumer-3", "consumer-4", "consumer-5"}, More: i}
	}
	many := map[string]Part{"": {Number: 1_700_000_000_000, Value: rebuilt(t, functions.Source(), all("", "200/m burst=50", 10000)...), Replaced: rebuilt(t, functions.Source(), all("", "100/m burst=20", 10000)...), Log: log}}
	teams := map[string]Part{"": {Number: 1_700_000_000_000, Value: functions.Source(), Replaced: strings.ReplaceAll(functions.Source(), "limit", "bound"), Log: log}}
	for i := range 61 {
		namespace := fmt.Sprintf("team-%d", i)
		teams[namespace] = Part{Number: 1_700_000_000_000, Value: ValueOf(all(namespace+"/", "200/m", 10)), Replaced: ValueOf(all(namespace+"/", "100/m", 10)), Log: log}
	}
	for name, parts := range map[string]map[string]Part{"10,000 policies": many, "61 namespaces": teams} {
		text := Text{}.With(parts)
		source, err := text.Render("n", "ann")
		if err != nil {
			t.Fatal(err)
		}
		added := len(source) - len(Body(source))
		t.Logf("%s: %d bytes, of which the header has %d", name, len(source), added)
		if added > 100_000 {
			t.Errorf("%s: the header has %d bytes", name, added)
		}
		if got, err := Parse(source); err != nil || !Equal(got, text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	good := Text{}.With(map[string]Part{"": {Number: 7, Value: small, Replaced: small + "x"}, "a": {Number: 8, Value: ValueOf([]functions.Policy{policy("a/x", "1/m")})}})
	source, err := good.Render("n", "ann")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(source)
	f.Add(small)
	f.Add(header(aPart + pack(`{"namespace":"a","number":7,"digest":""}`)))
	f.Fuzz(func(t *testing.T, source string) {
		got, err := Parse(source)
		if err != nil {
			return
		}
		for namespace, part := range got.Parts {
			if part.Number < 0 || part.Number > MaxNumber || got.Highest < part.Number {
				t.Errorf("the part %q has number %d", namespace, part.Number)
			}
		}
		again, err := got.Render("n", "ann")
		if err != nil {
			return
		}
		if back, err := Parse(again); err != nil || !Equal(back, got) {
			t.Errorf("%v: %+v\nwas %+v", err, back, got)
		}
	})
}
