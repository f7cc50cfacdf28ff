package cli

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/internal/usage"
)

// topLive shows pass after pass on the whole terminal until the user ends it, and leaves the last
// one on the screen.
func (a *app) topLive(ctx context.Context, rdb redis.UniversalClient, s servers, f topFlags) error {
	shown := &topScreen{look: a.look(), by: usage.Order(f.by), order: make(chan usage.Order, 1)}
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
	scans, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		show := func(p pass) {
			if scans.Err() == nil {
				program.Send(p)
			}
		}
		topPasses(scans, rdb, s, f, shown.order, show, show)
	}()
	_, err := program.Run()
	stop()
	<-over
	if err != nil {
		return err
	}
	a.printPass(shown.pass)
	return shown.pass.err
}

// topPasses scans repeatedly until ctx ends, and shows each pass when it is complete. If running is
// not nil, topPasses also shows the first pass while it runs. An order received from orders starts
// a new pass.
func topPasses(ctx context.Context, rdb redis.UniversalClient, s servers, f topFlags, orders <-chan usage.Order, running, show func(pass)) {
	by := usage.Order(f.by)
	var before *usage.Snapshot
	for ctx.Err() == nil {
		scan := usage.New(f.limit, f.match, by)
		looking, stop := context.WithCancel(ctx)
		over := make(chan error, 1)
		go func() { over <- scan.Run(looking, rdb) }()
		var err error
		for scanning := true; scanning; {
			select {
			case err = <-over:
				scanning = false
			case <-time.After(200 * time.Millisecond):
				if running == nil || before != nil { // the previous pass stays on the screen
					continue
				}
				if found := scan.Snapshot(); found.Tracked > 0 {
					running(pass{by: by, found: found})
				}
			case by = <-orders:
				stop()
			}
		}
		stopped := looking.Err() != nil && ctx.Err() == nil
		stop()
		if stopped {
			before = nil
			continue
		}
		found := scan.Snapshot()
		show(pass{by, found, before, s.scanError(err)})
		if err == nil {
			before = &found
		}
		select {
		case <-ctx.Done():
		case <-time.After(f.interval):
		case by = <-orders:
			before = nil
		}
	}
}

// topScreen is the content of the terminal.
type topScreen struct {
	look          look
	width, height int
	pass          pass
	any           bool // whether a pass has been received
	by            usage.Order
	order         chan usage.Order // sends the order of the next pass
}

func (t *topScreen) Init() tea.Cmd { return nil }

func (t *topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case pass:
		if msg.err != nil && msg.found.Tracked == 0 {
			msg.by, msg.found, msg.before = t.pass.by, t.pass.found, t.pass.before // the last result is better than nothing
		}
		t.pass, t.any = msg, true
	case tea.WindowSizeMsg:
		t.width, t.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c", "ctrl+\\":
			return t, tea.Quit
		case "ctrl+z":
			return t, tea.Suspend
		case "b":
			next := usage.Orders[(slices.Index(usage.Orders, t.by)+1)%len(usage.Orders)]
			select {
			case t.order <- next:
				t.by = next
			default: // the previous order has not been received yet
			}
		}
	}
	return t, nil
}

func (t *topScreen) View() tea.View {
	width := max(1, t.width)
	lines := []string{t.look.paint(bold, "ratelimit top") + " by " + string(t.by) + " · b: other order · q: end"}
	if t.pass.err != nil {
		lines = append(lines, t.look.paint(red, "ratelimit: "+oneLine(t.pass.err.Error())))
	}
	if t.any {
		lines = append(lines, topLines(t.pass, t.look, width)...)
	} else {
		lines = append(lines, "looking")
	}
	lines = lines[:min(len(lines), max(1, t.height))]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, width, "…")
	}
	view := tea.NewView(strings.Join(lines, "\n"))
	view.AltScreen = true
	return view
}
