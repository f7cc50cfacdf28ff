package cli

import (
	"context"
	"os"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// live shows a full-screen view until the user quits or ctx is done. feed sends updates for the
// view until the context that it receives is done.
func (a *app) live(ctx context.Context, shown tea.Model, feed func(ctx context.Context, send func(tea.Msg))) error {
	var environment []string
	for _, name := range []string{"TERM", "COLORTERM", "NO_COLOR"} {
		if value := a.env(name); value != "" {
			environment = append(environment, name+"="+value)
		}
	}
	options := []tea.ProgramOption{tea.WithOutput(a.stdout), tea.WithEnvironment(environment), tea.WithoutSignalHandler(), tea.WithInput(a.stdin)}
	if file, ok := a.stdin.(*os.File); !ok || !isTerminal(file) {
		options = append(options, tea.WithInput(nil))
	}
	program := tea.NewProgram(shown, options...)
	ended := context.AfterFunc(ctx, program.Quit)
	defer ended()
	feeding, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		feed(feeding, func(msg tea.Msg) {
			if feeding.Err() == nil {
				program.Send(msg)
			}
		})
	}()
	_, err := program.Run()
	stop()
	<-over
	return err
}

// screen is the common part of all screens that live shows.
type screen struct {
	look          look
	width, height int
}

func (s *screen) Init() tea.Cmd { return nil }

// update handles changes of the terminal's size, and the keys that end or suspend the command.
func (s *screen) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c", "ctrl+\\":
			return tea.Quit
		case "ctrl+z":
			return tea.Suspend
		}
	}
	return nil
}

// view returns a screen with the title, the fault unless it is empty, and as many lines as fit.
// lines is nil until there is something to show.
func (s *screen) view(title, about, fault string, lines []string) tea.View {
	shown := []string{s.look.paint(bold, title) + about + " · q: end"}
	if fault != "" {
		shown = append(shown, s.look.paint(red, "ratelimit: "+oneLine(fault)))
	}
	if lines == nil {
		lines = []string{"looking"}
	}
	shown = append(shown, lines...)
	shown = shown[:min(len(shown), max(1, s.height))]
	for i, line := range shown {
		shown[i] = ansi.Truncate(line, max(1, s.width), "…")
	}
	view := tea.NewView(strings.Join(shown, "\n"))
	view.AltScreen = true
	return view
}
