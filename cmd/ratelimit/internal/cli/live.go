package cli

import (
	"context"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// view is a full-screen view.
type view interface {
	lines(look) []string // what it shows, on a screen of the look's size
	press(key byte)      // a key that does not end or suspend the command
}

// live shows a view until the user quits or ctx is done. feed changes the view until the context
// that it receives is done; change calls its argument while nothing else uses the view.
func (a *app) live(ctx context.Context, shown view, feed func(ctx context.Context, change func(func()))) error {
	full := newFullScreen(a.stdin, a.stdout)
	over := make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		<-over
	}()
	defer full.leave()
	if err := full.enter(); err != nil {
		close(over)
		return err
	}
	changes := make(chan func())
	go func() {
		defer close(over)
		defer full.restoreOnPanic()
		feed(ctx, func(change func()) {
			select {
			case changes <- change:
			case <-ctx.Done():
			}
		})
	}()
	keys := full.keys()
	size := time.NewTicker(100 * time.Millisecond) // not all systems have a signal for a new size
	defer size.Stop()
	var escape <-chan time.Time // fires if an escape character was a key, and did not begin a sequence
	for {
		if err := full.draw(shown.lines(a.look())); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case change := <-changes:
			change()
		case <-size.C:
		case <-escape:
			return nil
		case typed := <-keys:
			if escape != nil { // the rest of a sequence
				escape = nil
				break
			}
			for _, key := range sequence.ReplaceAll(typed, nil) {
				switch key {
				case 'q', ctrl('c'), ctrl('\\'):
					return nil
				case '\x1b':
					escape = time.After(50 * time.Millisecond)
				case ctrl('z'):
					full.leave()
					suspend()
					if err := full.enter(); err != nil {
						return err
					}
				default:
					shown.press(key)
				}
			}
		}
	}
}

// sequence matches what a terminal sends for a key such as an arrow, and for Alt with a key.
var sequence = regexp.MustCompile(`\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\[O])`)

func ctrl(key byte) byte { return key & 0x1f }

// fullScreen is a terminal that shows lines of its own instead of what was printed before.
type fullScreen struct {
	out   io.Writer
	in    *os.File // nil if the input is no terminal
	frame string   // what it shows

	mu     sync.Mutex // guards before and active
	before *term.State
	active bool
}

func newFullScreen(in io.Reader, out io.Writer) *fullScreen {
	s := &fullScreen{out: out}
	if file, ok := in.(*os.File); ok && isTerminal(file) {
		s.in = file
	}
	return s
}

func (s *fullScreen) enter() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil {
		if s.before, err = term.MakeRaw(int(s.in.Fd())); err != nil {
			return err
		}
	}
	enableEscapes(s.out)
	s.frame, s.active = "", true
	_, err = io.WriteString(s.out, "\x1b[?1049h\x1b[?25l") // another screen, without the cursor
	return err
}

// leave restores the terminal, unless it is restored.
func (s *fullScreen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.active {
		return
	}
	s.active = false
	_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l")
	if s.in != nil {
		_ = term.Restore(int(s.in.Fd()), s.before)
	}
}

// restoreOnPanic is for goroutines other than that of leave: deferred, it makes a panic readable.
func (s *fullScreen) restoreOnPanic() {
	if cause := recover(); cause != nil {
		s.leave()
		panic(cause)
	}
}

// draw shows lines, which must fit on the screen.
func (s *fullScreen) draw(lines []string) error {
	const home, clearAll = "\x1b[H", "\x1b[J"
	frame := home + clearAll + strings.Join(lines, "\r\n")
	if frame == s.frame {
		return nil
	}
	s.frame = frame
	_, err := io.WriteString(s.out, frame)
	return err
}

// keys returns what the user types, as it arrives.
func (s *fullScreen) keys() <-chan []byte {
	if s.in == nil {
		return nil
	}
	typed := make(chan []byte)
	go func() { // ends with the program, because a read from a terminal cannot be canceled
		for {
			buffer := make([]byte, 64)
			n, err := s.in.Read(buffer)
			if err != nil {
				return
			}
			if n > 0 {
				typed <- buffer[:n]
			}
		}
	}()
	return typed
}

// screen returns a title, the fault unless it is empty, and as many of the lines as fit. body is nil
// until there is something to show.
func (l look) screen(title, about, fault string, body []string) []string {
	lines := []string{l.paint(bold, title) + about + " · q: end"}
	if fault != "" {
		lines = append(lines, l.paint(red, "ratelimit: "+oneLine(fault)))
	}
	if body == nil {
		body = []string{"looking"}
	}
	lines = append(lines, body...)
	lines = lines[:min(len(lines), max(1, l.height))]
	for i, line := range lines {
		lines[i] = truncate(line, max(1, l.width))
	}
	return lines
}
