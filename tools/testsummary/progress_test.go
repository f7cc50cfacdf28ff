package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	began := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := &progress{c: newCollector(), out: &b, began: began}
	tick := func(second int) { p.tick(began.Add(time.Duration(second) * time.Second)) }
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { tick(15) }, "     15 s: 0 tests have ended; building\n"},
		{func() { p.line(`{"Time":"2026-01-01T12:00:20Z","Action":"start","Package":"p"}`) }, ""},
		{func() { tick(30) }, "     30 s: 0 tests have ended; running p for 10 s\n"},
		{func() {
			p.line(`{"Time":"2026-01-01T12:00:31Z","Action":"run","Package":"p","Test":"TestA"}`)
			p.line(`{"Time":"2026-01-01T12:00:32Z","Action":"run","Package":"p","Test":"TestA/x"}`)
			p.line(`{"Time":"2026-01-01T12:00:32Z","Action":"pause","Package":"p","Test":"TestA/x"}`)
			p.line(`{"Time":"2026-01-01T12:00:33Z","Action":"run","Package":"p","Test":"TestA/y"}`)
		}, ""},
		{func() { tick(45) }, "     45 s: 0 tests have ended; running p TestA/y for 12 s\n"},
		{func() { p.line(`{"Time":"2026-01-01T12:00:46Z","Action":"cont","Package":"p","Test":"TestA/x"}`) }, ""},
		{func() { tick(60) }, "     60 s: 0 tests have ended; running p TestA/y for 27 s, and 1 more\n"},
		{func() { p.line(`{"Time":"2026-01-01T12:01:01Z","Action":"pass","Package":"p","Test":"TestA/y"}`) }, ""},
		{func() { tick(75) }, "     75 s: 1 tests have ended; running p TestA/x for 29 s\n"},
		{func() {
			p.line(`{"Time":"2026-01-01T12:01:17Z","Action":"fail","Package":"p","Test":"TestA/x"}`)
			p.line(`{"Time":"2026-01-01T12:01:17Z","Action":"fail","Package":"p","Test":"TestA"}`)
			p.line(`{"Time":"2026-01-01T12:01:18Z","Action":"fail","Package":"p"}`)
		}, "     FAIL p: 1 of 2 tests, after 78 s\n"},
		{func() { p.line(`{"Time":"2026-01-01T12:01:18Z","Action":"skip","Package":"q"}`) }, ""}, // it has no tests
		{func() { tick(90) }, ""}, // a line was printed since the last one
		{func() { tick(105) }, "     105 s: 2 tests have ended; building\n"},
	} {
		b.Reset()
		step.do()
		if b.String() != step.want {
			t.Errorf("printed %q, want %q", b.String(), step.want)
		}
	}
}

// waitingWriter releases the reader of the fifo once the text has been written.
type waitingWriter struct {
	bytes.Buffer
	text, fifo string
	came       bool
}

func (w *waitingWriter) Write(text []byte) (int, error) {
	if !w.came && strings.Contains(string(text), w.text) {
		w.came = true
		if err := os.WriteFile(w.fifo, []byte("go on\n"), 0); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(text)
}

func TestProgressIsShownWhileTheTestsRun(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := exec.Command("mkfifo", fifo).Run(); err != nil {
		t.Fatal(err)
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	out := &waitingWriter{text: "TestSlow", fifo: fifo}
	// The "go test" of this run does not end before its progress was printed.
	script := `echo '{"Action":"run","Package":"p","Test":"TestSlow"}'; read line <"$0"; echo '{"Action":"pass","Package":"p","Test":"TestSlow"}'`
	ok, err := runCommand([]string{"-label", "L", "-out", filepath.Join(dir, "out.json"), "--", "sh", "-c", script, fifo}, out, ticks.C)
	if err != nil || !ok {
		t.Errorf("ok is %v, the error %v; printed %q", ok, err, out.String())
	}
}
