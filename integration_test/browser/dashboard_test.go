// Package browser tests `ratelimit dashboard` with Chromium, which must be installed. It is a
// separate module, because only these tests need the package that controls the browser.
package browser

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/client"
	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/redistest"
)

var screenshots = flag.String("screenshots", "", "write screenshots into this `folder`")

// longest is the maximum time to wait for a condition. It is long enough even for a busy machine.
const longest = 2 * time.Minute

const hostile = "<img src=x onerror=alert(1)>\x1b[31m\u202e"

// program builds the command once and returns its path.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ratelimit-browser-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "ratelimit")
	build := exec.Command("go", "build", "-o", path, "./cmd/ratelimit")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if ctx, err := browser(); err == nil {
		_ = chromedp.Cancel(ctx)
	}
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

type site struct {
	t    *testing.T
	srv  *embedded.Server
	addr string // URL of the page, including the token if there is one

	stays time.Duration // how long a test keeps a page open, besides its waits
}

// start starts an embedded server with some usage data, and a dashboard process that connects to
// the server.
func start(t *testing.T, flags ...string) *site {
	t.Helper()
	build := redistest.Must[functions.Build](t)(functions.New(functions.WithPolicies(
		functions.Policy{Name: "api", Limits: []functions.PolicyLimit{{Limit: "10/s burst=20, 5000/h"}}, Canary: &functions.Canary{Limits: []string{"5/s"}, Share: 5, Shadow: true}},
		functions.Policy{Name: "calc", Limits: []functions.PolicyLimit{{Key: "resource", Limit: "100/m"}, {Key: "consumer", Limit: "20/m burst=5"}}},
		functions.Policy{Name: "export", Limits: []functions.PolicyLimit{{Limit: "3/d"}}, Shadow: true},
	)))
	s := &site{t: t, srv: embedded.Run(t, embedded.WithLibrary(build.Text()))}
	for i := range 6 {
		s.take(fmt.Sprintf("tenant:%d", i), 4*i+1)
	}
	s.take(hostile, 3)
	s.take(strings.Repeat("long", 16_000), 2)
	s.shadowed(5)
	s.serve(s.srv.Addr(), flags...)
	return s
}

// serve starts a dashboard process that connects to the servers at url.
func (s *site) serve(url string, flags ...string) {
	t := s.t
	t.Helper()
	path := redistest.Must[string](t)(program())
	cmd := exec.Command(path, append([]string{"dashboard", "--redis", url, "--listen", "127.0.0.1:0"}, flags...)...)
	var said bytes.Buffer
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &said
	redistest.Require(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the dashboard ends with %v: %s", err, said.String())
		}
	})
	first := make([]byte, 4096)
	n, err := out.Read(first)
	if s.addr, _, _ = strings.Cut(string(first[:n]), "\n"); err != nil || !strings.HasPrefix(s.addr, "http://127.0.0.1:") {
		t.Fatalf("%v: the dashboard says %q", err, first[:n])
	}
}

// client returns a client for the server. It is closed after the test.
func (s *site) client() *client.Client {
	s.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.srv.Addr(), ContextTimeoutEnabled: true})
	s.t.Cleanup(func() { _ = rdb.Close() })
	c := redistest.Must[*client.Client](s.t)(client.New(rdb, client.WithTimeout(longest)))
	return c
}

// take makes calls with key as the usage key. The first ten calls are allowed.
func (s *site) take(key string, calls int) {
	s.t.Helper()
	c := s.client()
	for range calls {
		redistest.Must[client.Result](s.t)(c.Take(s.t.Context(), client.Request{Keys: []string{"of " + key[:min(20, len(key))]}, Limits: []client.Limit{"10/d"}, UsageKey: key}))
	}
}

// shadowed makes calls with a shadow policy whose limit is 3.
func (s *site) shadowed(calls int) {
	s.t.Helper()
	c := s.client()
	for range calls {
		redistest.Must[client.Result](s.t)(c.Allow(s.t.Context(), "exports", "@export"))
	}
}

const filled = `document.querySelectorAll('#rows tr').length === 8 && document.querySelectorAll('#nodes tr').length === 1`

// cut lists the elements that extend beyond the window, or beyond a box that clips them. Elements
// may extend beyond a box that scrolls, if the keyboard can scroll it too.
const cut = `(() => {
  const found = []
  for (const e of document.querySelectorAll('body *:not(.skip)')) {
    const box = e.parentElement.closest('.scroll[tabindex="0"]')
    if (!box && e.getClientRects().length && e.getBoundingClientRect().right > innerWidth + 1) found.push('beyond the window: ' + (e.id || e.tagName) + ' ' + e.textContent.slice(0, 40))
    const style = getComputedStyle(e)
    if (style.overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1 && !(e.matches('.scroll[tabindex="0"]') && style.overflowX === 'auto') && !e.matches('svg, input, select, textarea')) found.push('cut: ' + (e.id || e.tagName))
  }
  return found.join(', ')
})()`

// TestPage checks that the page shows all data and does not scroll sideways, at every width and in
// both color schemes. It also checks that no text from a server is interpreted as HTML.
func TestPage(t *testing.T) {
	s := start(t)
	for _, width := range []int64{1280, 400, 320} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprintf("%d %s", width, scheme), func(t *testing.T) {
				page := *s
				page.t = t
				p := page.open(width, 900, scheme)
				p.until(filled)
				all := p.text(`document.body.innerText`)
				for _, want := range []string{"tenant:5", "@calc", "resource: 100/m · consumer: 20/m burst=5", "canary 0.5%, shadow", "loaded", `<img src=x onerror=alert(1)>\x1b[31m\u202e`, "(64000 bytes)"} {
					if !strings.Contains(all, want) {
						t.Errorf("no %q in\n%s", want, all)
					}
				}
				if got := p.text(`document.querySelector('#policies').innerText.split('\n')[0]`); !regexp.MustCompile(`^@export\s+3/d\s+shadow\s+3\s+would 2\s+would 40.0\s`).MatchString(got) {
					t.Errorf("the shadow's row is %q", got)
				}
				if got := p.text(`document.querySelectorAll('img').length + ' ' + (document.documentElement.scrollWidth - innerWidth)`); got != "0 0" {
					t.Errorf("images, and how much wider the page is than its window: %s", got)
				}
				ground := p.text(`getComputedStyle(document.body).backgroundColor`)
				if dark := ground == "rgb(21, 24, 28)"; dark != (scheme == "dark") {
					t.Errorf("the ground is %s", ground)
				}
				p.do(chromedp.Click(chromedp.CSS(`#rows button`)))
				p.until(`document.querySelectorAll('#minutes tr').length > 0`)
				for _, chart := range []string{"chart", "series"} {
					p.until(`document.querySelectorAll('#` + chart + `-axis span').length > 0`)
					if got := p.text(`[...document.querySelectorAll('#` + chart + `-axis span')].map(e => e.textContent).join(' ')`); !regexp.MustCompile(`^(\d?\d:\d\d:\d\d( [AP]M)?\s?)+$`).MatchString(got) {
						t.Errorf("the times of the %s are %q", chart, got)
					}
				}
				if got := p.text(cut); got != "" {
					t.Errorf("cut, with no way to scroll: %s", got)
				}
				p.screenshot(fmt.Sprintf("dashboard-%d-%s", width, scheme))
			})
		}
	}
}

// TestLive checks that the page updates its numbers as calls are made. If the server stops, the
// page must say so and keep the last numbers.
func TestLive(t *testing.T) {
	s := start(t)
	p := s.open(800, 800, "light")
	p.until(filled)
	s.take("tenant:9", 40)
	s.shadowed(7)
	p.until(`document.querySelector('#rows').innerText.includes('tenant:9') && document.querySelector('#rows button').textContent === 'tenant:9'`)
	p.until(`document.querySelector('#chart').querySelectorAll('.allowed').length > 0 && document.querySelector('#policies').innerText.includes('\twould 9\t')`)
	p.do(chromedp.SetValue(chromedp.CSS(`#order`), "oldest"))
	p.text(`document.querySelector('#order').dispatchEvent(new Event('change')); ''`)
	p.until(`document.querySelector('#rows tr:last-child button').textContent === 'tenant:9'`)
	p.text(`[...document.querySelectorAll('#rows button')].find(b => b.textContent === 'tenant:9').click(); ''`)
	p.until(`document.querySelector('#usage-sum').textContent.startsWith('10 allowed, 30 denied')`)
	p.do(chromedp.SetValue(chromedp.CSS(`#limiter`), "live"), chromedp.SetValue(chromedp.CSS(`#limit`), "10/d"), chromedp.Click(chromedp.CSS(`#ask button`)))
	p.until(`document.querySelector('#answer').textContent.includes('9 of 10 left after it')`)
	p.do(chromedp.Focus(chromedp.CSS(`#order`)))
	s.take("tenant:9", 2)
	redistest.Must[client.Result](t)(s.client().AllowN(t.Context(), "live", "10/d", 4))
	p.until(`document.querySelector('#usage-sum').textContent.startsWith('10 allowed, 32 denied') && document.querySelector('#minutes').textContent.includes('32')`)
	p.until(`document.querySelector('#answer').textContent.includes('5 of 10 left after it')`)
	if got := p.text(`document.activeElement.id`); got != "order" {
		t.Errorf("the focus moved to %q when the key's numbers changed", got)
	}
	_ = s.srv.Close()
	p.until(`document.querySelector('#faults').innerText.includes('connection refused')`)
	if text := p.text(`document.querySelector('#rows').innerText`); !strings.Contains(text, "tenant:9") {
		t.Errorf("what was seen last is gone: %s", text)
	}
}

// TestBeforeTheServer checks that a dashboard may start before its server, and before the library
// is loaded.
func TestBeforeTheServer(t *testing.T) {
	s := start(t)
	_ = s.srv.Close()
	p := s.open(800, 800, "light")
	p.until(`document.querySelector('#faults').innerText.includes('cannot reach')`)
	srv := redistest.Must[*embedded.Server](t)(embedded.Start(embedded.WithAddr(s.srv.Addr())))
	defer srv.Close()
	p.until(`document.querySelector('#nodes').innerText.includes('not deployed')`)
	redistest.Require(t, srv.Load(functions.Source()))
	p.until(`document.querySelector('#nodes').innerText.includes('in step') && document.querySelector('#faults').innerText === ''`)
}

// TestKeyboard checks that a user can do the following with the keyboard alone: skip to the
// numbers, sort the keys, open a key, and look up a limiter without taking units.
func TestKeyboard(t *testing.T) {
	s := start(t)
	p := s.open(1000, 900, "light")
	p.until(filled)
	focus := func() string {
		return p.text(`(e => e.id || e.getAttribute('aria-label') || e.textContent.trim())(document.activeElement)`)
	}
	press := func(key, want string) {
		t.Helper()
		p.do(chromedp.KeyEvent(key))
		if got := focus(); got != want {
			t.Fatalf("the focus is on %q, want %q", got, want)
		}
	}
	press(kb.Tab, "Skip to the numbers")
	press(kb.Enter, "main")
	press(kb.Tab, "order")
	p.do(chromedp.KeyEvent("n")) // newest
	press(kb.Tab, "Top keys, table")
	press(kb.Tab, p.text(`document.querySelector('#rows button:enabled').textContent`))
	if got := p.text(`getComputedStyle(document.activeElement).outlineStyle`); got != "solid" {
		t.Errorf("the focus is shown as %s", got)
	}
	chosen := focus()
	s.take("newer", 1) // must not change the rows while a row has the focus
	p.until(`document.querySelector('#keys').textContent.startsWith('9 keys, ')`)
	if got := focus(); got != chosen {
		t.Errorf("the focus moved from %q to %q", chosen, got)
	}
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.activeElement.id === 'usage' && document.querySelector('#usage-title').textContent === ` + "`" + strings.ReplaceAll(chosen, `\`, `\\`) + "`")
	p.do(chromedp.Focus(chromedp.CSS(`#limiter`)), chromedp.KeyEvent("exports"))
	press(kb.Tab, "limit")
	p.do(chromedp.KeyEvent("@export" + kb.Enter))
	p.until(`document.querySelector('#answer').textContent.startsWith('The next call is allowed: 0 of 3 left after it') && document.querySelector('#answer').textContent.includes('without its shadow it would be denied')`)
	p.do(chromedp.SetValue(chromedp.CSS(`#limit`), "nonsense"), chromedp.Focus(chromedp.CSS(`#limit`)), chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector('#answer').textContent.includes('BADLIMIT')`)
	peeked, err := s.client().Peek(t.Context(), client.For("exports", "@export"))
	if err != nil || peeked.Remaining != 0 {
		t.Errorf("%v: %+v", err, peeked)
	}
}

// TestAccessibilityTree checks that a screen reader gets landmarks, headings in order, and a name
// for every control and every chart.
func TestAccessibilityTree(t *testing.T) {
	s := start(t)
	p := s.open(1000, 900, "light")
	p.until(filled)
	p.do(chromedp.Click(chromedp.CSS(`#rows button`)))
	p.until(`document.querySelectorAll('#minutes tr').length > 0`)
	p.do(chromedp.SetValue(chromedp.CSS(`#limiter`), "k"), chromedp.SetValue(chromedp.CSS(`#limit`), "5/m"), chromedp.Click(chromedp.CSS(`#ask button`)))
	p.until(`document.querySelector('#answer meter') !== null`)
	tree := redistest.Must[accessibility.GetFullAXTreeResult](t)(chromedp.Call(p.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}))
	found := map[string][]string{}
	for _, node := range tree.Nodes {
		if node.Ignored || node.Role == nil {
			continue
		}
		role, name := strings.Trim(string(node.Role.Value), `"`), ""
		if node.Name != nil {
			name = strings.Trim(string(node.Name.Value), `"`)
		}
		found[role] = append(found[role], name)
		switch role {
		case "button", "link", "textbox", "combobox", "image", "img", "region", "meter", "columnheader", "rowheader", "DisclosureTriangle":
			if name == "" {
				t.Errorf("a %s without a name", role)
			}
		}
	}
	for role, least := range map[string]int{
		"RootWebArea": 1, "banner": 1, "main": 1, "heading": 7, "region": 8, "table": 3, "columnheader": 18, "rowheader": 12, "combobox": 1, "textbox": 2, "link": 1, "alert": 1, "status": 1, "meter": 1,
	} {
		if len(found[role]) < least {
			t.Errorf("%d of %s, want %d: %q", len(found[role]), role, least, found[role])
		}
	}
	if got := len(found["image"]) + len(found["img"]); got != 2 {
		t.Errorf("%d charts: %q", got, found)
	}
}

// TestToken checks that a dashboard with a token serves the page only to clients that send the
// token, and that the page removes the token from its address.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	redistest.Require(t, os.WriteFile(file, []byte("a token of some length\n"), 0o600))
	s := start(t, "--token-file", file)
	p := s.open(800, 800, "light")
	p.until(filled)
	if at := p.text(`location.href`); strings.Contains(at, "token") {
		t.Errorf("the address is %s", at)
	}
	s.addr, _, _ = strings.Cut(s.addr, "?")
	stranger := s.open(800, 800, "light")
	if text := stranger.text(`document.body.innerText`); !strings.Contains(text, "asks for its token") {
		t.Errorf("without the token the page shows %s", text)
	}
}
