package figures

import (
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestNamesDoNotOverlap(t *testing.T) {
	got := apart([]name{{y: 300, text: "c"}, {y: 100, text: "a"}, {y: 101, text: "b"}, {y: 299, text: "d"}}, 300)
	var ys []float64
	text := ""
	for _, n := range got {
		ys = append(ys, n.y)
		text += n.text
	}
	if want := []float64{100, 118, 282, 300}; !slices.Equal(ys, want) || text != "abdc" {
		t.Errorf("the names %s are at %v, want abdc at %v", text, ys, want)
	}
}

// TestLinesAreXML checks that the output is XML even if texts contain special characters, and that
// points are at the right positions between the marks.
func TestLinesAreXML(t *testing.T) {
	text := func(float64) string { return "1 < 2 & 3" }
	svg := Lines{Title: "a < b", Above: []string{"c & d"}, Across: Axis{"e > f", []float64{1, 10, 100}, text}, Up: Axis{"", []float64{1, 10000}, text},
		Lines: []Line{{"g < h", []float64{1, 10}, []float64{1, 100}}}, Bounds: []Bound{{"i & j\nm", 10}}, Marks: []Mark{{"k < l", 100}}}.SVG()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
	}
	for _, want := range []string{`cx="92" cy="310"`, `cx="216" cy="185"`, ">g &lt; h<", ">i &amp; j<", `y="270.5">m<`, ">k &lt; l<", `d="M340 56V310"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
}

func TestPercent(t *testing.T) {
	for want, of := range map[string][2]int64{"0%": {0, 5}, "<0.01%": {1, 1e6}, ">99.99%": {999_999, 1e6}, "100%": {5, 5}, "33.33%": {1, 3}} {
		if got := Percent(of[0], of[1]); got != want {
			t.Errorf("%v: %s, want %s", of, got, want)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 38231: "38,231", -1234567: "-1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestBrief(t *testing.T) {
	for f, want := range map[float64]string{1: "1", 100: "100", 1e3: "1k", 1e5: "100k", 1e6: "1M", 1e9: "1G", 1e13: "10,000G"} {
		if got := Brief(f); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
