package browser

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

// tab is a page in Chromium. Any error that the page's script reports fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// browser starts Chromium once, and returns its context.
var browser = sync.OnceValues(func() (context.Context, error) {
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		return nil, errors.New("no Chromium here; install one (Debian: apt-get install chromium)")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(longest))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

// open opens the page in a new profile, which shares no cookies and no storage with other tabs.
func (s *site) open(width, height int64, scheme string) *tab {
	s.t.Helper()
	ctx, cancel := chromedp.NewContext(redistest.Must[context.Context](s.t)(browser()), chromedp.WithNewBrowserContext())
	s.t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 2*longest+s.stays)
	s.t.Cleanup(cancel)
	p := &tab{s.t, ctx}
	p.do(chromedp.EmulateViewport(width, height))
	redistest.Require(s.t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			s.t.Errorf("the page's script failed: %+v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			s.t.Errorf("the page complains: %+v", e.Args)
		}
	}))
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}); err != nil {
		s.t.Fatal(err)
	}
	p.do(chromedp.Navigate(s.addr))
	return p
}

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	redistest.Require(p.t, chromedp.Do(p.ctx, steps...))
}

// run runs an action that returns a result.
func run[T any](p *tab, action chromedp.Action[T]) T {
	p.t.Helper()
	result := redistest.Must[T](p.t)(chromedp.Run(p.ctx, action))
	return result
}

// until waits until a JavaScript expression is true.
func (p *tab) until(condition string) {
	p.t.Helper()
	for deadline := time.Now().Add(longest); ; time.Sleep(50 * time.Millisecond) {
		if run(p, chromedp.Evaluate[bool](condition)) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s does not come true; the page shows\n%s", condition, p.text("document.body.innerText"))
		}
	}
}

func (p *tab) text(script string) string {
	p.t.Helper()
	return run(p, chromedp.Evaluate[string](script))
}

func (p *tab) screenshot(name string) {
	p.t.Helper()
	if *screenshots == "" {
		return
	}
	redistest.Require(p.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), run(p, chromedp.FullScreenshot(100)), 0o666))
}
