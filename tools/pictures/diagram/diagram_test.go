package diagram

import (
	"strings"
	"testing"
)

// TestSequence checks where the arrows of messages begin and end, and that the arrow of a lost message
// ends before it reaches the receiver.
func TestSequence(t *testing.T) {
	s := Sequence{"a < b", 200, []string{"c", "d"}, []Step{{Call, 0, 1, "`e & f`"}, {Reply, 1, 0, "g"}, {Lost, 0, 1, "h"}, {Note, 1, 0, "a longer note"}, {Later, 0, 0, "i"}}}
	svg, err := s.SVG()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<text class="code middle halo" x="100" y="66">e &amp; f</text>`,
		`class="arrow " d="M22.6 72L168.4 72"`, `class="arrow late" d="M177.4 104L31.6 104"`, `class="arrow late" d="M22.6 136H115.5"`,
		`<rect class="box" x="81" y="148" width="111"`, // at the right edge of the picture
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %s in\n%s", want, svg)
		}
	}
	for _, step := range []Step{{Call, 0, 1, strings.Repeat("x", 20)}, {Note, 0, 0, strings.Repeat("x", 30)}} {
		s.Steps = []Step{step}
		if _, err := s.SVG(); err == nil {
			t.Errorf("%+v has no room, and there is no error", step)
		}
	}
}

func TestABoxThatIsTooSmall(t *testing.T) {
	p := New("", 100)
	for _, err := range []error{p.Box(0, 0, 50, 30, "box", Label{"", "too wide"}), p.Box(0, 0, 50, 40, "box", Label{"", "a"}, Label{"", "b"})} {
		if err == nil {
			t.Error("no error")
		}
	}
	if err := p.Box(0, 0, 100, 50, "box", Label{"", "a"}, Label{"", "b"}); err != nil {
		t.Error(err)
	}
}
