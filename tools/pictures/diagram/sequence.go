package diagram

import (
	"fmt"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/figures"
)

// A Sequence is a diagram of messages between parties. Time goes from top to bottom.
type Sequence struct {
	Title   string // for screen readers
	Width   float64
	Parties []string // from left to right
	Steps   []Step
}

// A Step is a row of a Sequence, or several if its text has several lines. From and To are indexes
// of Parties; only messages have To. A line of text in backquotes is code.
type Step struct {
	Kind     StepKind
	From, To int
	Text     string
}

// StepKind is the kind of a Step.
type StepKind int

const (
	Call  StepKind = iota // a message from From to To
	Reply                 // the same, with a dashed line
	Lost                  // a message that does not arrive
	Note                  // what From does, or knows
	Later                 // time passes
)

const (
	partyHeight = 32
	stepGap     = 12 // space below a step
	laterGap    = 10 // space above and below the text of a Later step
)

// SVG draws the sequence. It returns an error if a text has no room.
func (s Sequence) SVG() (string, error) {
	widest := 0.0
	for _, name := range s.Parties {
		widest = max(widest, textWidth(Label{"bold", name})+20)
	}
	first, last := 8+widest/2, s.Width-8-widest/2
	x := func(party int) float64 { return first + (last-first)*float64(party)/float64(len(s.Parties)-1) }
	p := New(s.Title, s.Width)
	const top = 8
	bottom := top + partyHeight + float64(stepGap)
	for _, step := range s.Steps {
		bottom += step.height() + stepGap
	}
	for i, name := range s.Parties {
		p.Path(bottom, "grid", fmt.Sprintf("M%s %dV%s", figures.Short(x(i)), top+partyHeight, figures.Short(bottom)))
		if err := p.Box(x(i)-widest/2, top, widest, partyHeight, "box"); err != nil {
			return "", err
		}
		p.Text(x(i), top+22, "bold middle", name)
	}
	y := top + partyHeight + float64(stepGap)
	for _, step := range s.Steps {
		var err error
		switch step.Kind {
		case Note:
			err = p.note(x(step.From), y, step)
		case Later:
			p.Text(s.Width/2, y+laterGap+lineHeight-5, "small bold middle halo", step.Text)
		default:
			err = p.message(x(step.From), x(step.To), y, step)
		}
		if err != nil {
			return "", err
		}
		y += step.height() + stepGap
	}
	return p.String(), nil
}

func (s Step) height() float64 {
	height := lineHeight * float64(len(s.labels()))
	switch s.Kind {
	case Note:
		height += 10
	case Later:
		height += 2 * laterGap
	}
	return height
}

func (s Step) labels() (labels []Label) {
	for line := range strings.SplitSeq(s.Text, "\n") {
		if code, ok := strings.CutPrefix(line, "`"); ok {
			labels = append(labels, Label{"code", strings.TrimSuffix(code, "`")})
		} else {
			labels = append(labels, Label{"small", line})
		}
	}
	return labels
}

// note draws a box around the texts of a step, centered on x if the picture has room.
func (p Picture) note(x, y float64, step Step) error {
	width := 0.0
	for _, label := range step.labels() {
		width = max(width, textWidth(label)+20)
	}
	if width > p.Width-16 {
		return fmt.Errorf("the note %q is about %.0f wide, and the picture %.0f", step.Text, width, p.Width)
	}
	left := min(max(8, x-width/2), p.Width-8-width)
	return p.Box(left, y, width, step.height(), "box", step.labels()...)
}

// message draws an arrow between two lifelines, and the texts of a step above it.
func (p Picture) message(from, to, y float64, step Step) error {
	labels, end := step.labels(), to
	if step.Kind == Lost {
		end = from + (to-from)*0.6
	}
	for i, label := range labels {
		if room := max(from, end) - min(from, end) - 2*arrowLength; textWidth(label) > room {
			return fmt.Errorf("%q is about %.0f wide; its arrow has room for %.0f", label.Text, textWidth(label), room)
		}
		p.Text((from+end)/2, y+lineHeight*float64(i+1)-6, label.Class+" middle halo", label.Text)
	}
	bottom := y + step.height()
	switch step.Kind {
	case Call:
		p.Arrow(from, bottom, to, bottom, "")
	case Reply:
		p.Arrow(from, bottom, to, bottom, "late")
	case Lost:
		const size = 6
		p.Path(bottom, "arrow late", fmt.Sprintf("M%s %sH%s", figures.Short(from), figures.Short(bottom), figures.Short(end)))
		p.Path(bottom+size, "c1", fmt.Sprintf("M%s %sl%d %[3]dm0 -%[3]dl-%[3]d %[3]d", figures.Short(end-size), figures.Short(bottom-size), 2*size))
	}
	return nil
}
