package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimit-functions/ratelimit/functions"
)

func TestHelp(t *testing.T) {
	a, names, topics := testApp(nil, nil, nil), []string{""}, []string{""}
	a.root()
	for _, cmd := range a.commands {
		names = append(names, cmd.Name())
		if !cmd.Runnable() {
			topics = append(topics, cmd.Name())
		}
	}
	for _, name := range names {
		t.Run("help "+name, func(t *testing.T) {
			args := []string{"--help"}
			if name != "" {
				args = []string{name, "--help"}
			}
			got := run(t, nil, args...)
			if got.code != exitFine || got.stderr != "" {
				t.Errorf("exit code %d, stderr %q", got.code, got.stderr)
			}
			if !slices.Contains(topics, name) && !strings.Contains(got.stdout, "Examples:\n  ratelimit "+name) {
				t.Errorf("the help shows no example:\n%s", got.stdout)
			}
			for line := range strings.Lines(got.stdout) {
				if name == "" && len([]rune(line)) > 121 {
					t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
				}
			}
		})
	}
	t.Run("alone", func(t *testing.T) {
		if got, help := run(t, nil), run(t, nil, "--help"); got != help || !strings.HasPrefix(got.stdout, "Rate limiting as one Redis Functions library") {
			t.Errorf("without arguments: %+v", got)
		}
	})
	t.Run("help for a command", func(t *testing.T) {
		for _, words := range [][]string{{"take"}, {"completion"}, {"completion", "zsh"}, {"help"}} {
			if got, help := run(t, nil, append([]string{"help"}, words...)...), run(t, nil, append(words, "--help")...); got != help || got.code != exitFine || got.stdout == "" {
				t.Errorf("help %v: %+v", words, got)
			}
		}
	})
	t.Run("completion", func(t *testing.T) {
		got := run(t, nil, "__complete", "sta")
		if got.code != exitFine || !strings.HasPrefix(got.stdout, "status\tShow which build each server runs\n") {
			t.Errorf("%+v", got)
		}
	})
}

// The help of a command names each of its flags once. The everyday commands come first, and the help
// of deploy fits on a screen.
func TestHelpLayout(t *testing.T) {
	a := testApp(nil, nil, nil)
	a.root()
	for _, cmd := range a.commands {
		help := run(t, nil, "help", cmd.Name()).stdout
		_, help, _ = strings.Cut(help, "\nFlags:\n")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := len(regexp.MustCompile(`(?m)(^      |, |Also )--`+f.Name+`\b[^-]`).FindAllString(help, -1)); n != 1 {
				t.Errorf("%s --%s is listed %d times in:\n%s", cmd.Name(), f.Name, n, help)
			}
		})
	}
	var first []string
	_, list, _ := strings.Cut(run(t, nil, "help").stdout, "\nEvery day:\n")
	for line := range strings.Lines(list) {
		if strings.TrimSpace(line) == "" {
			break
		}
		first = append(first, strings.Fields(line)[0])
	}
	wantText(t, "everyday commands", strings.Join(first, " "), "deploy plan status rollback test take top policies")
	if lines := strings.Count(run(t, nil, "help", "deploy").stdout, "\n"); lines > 40 {
		t.Errorf("the help of deploy has %d lines", lines)
	}
}

// Every flag of every command refuses an empty value, and all durations are parsed in the same way.
func TestEveryFlag(t *testing.T) {
	values, durations := 0, 0
	for _, cmd := range testApp(nil, nil, nil).root().Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "bool" || f.Name == "prefix" { // testdata/messages.txt has the case of an empty --prefix
				return
			}
			if _, ok := f.Value.(*spanValue); ok {
				durations++
			} else if f.Value.Type() == "duration" {
				t.Errorf("%s --%s is a duration that knows no days", cmd.Name(), f.Name)
			}
			if got := run(t, nil, cmd.Name(), "--"+f.Name+"="); got.code != exitError || !strings.HasPrefix(got.stderr, "ratelimit: --"+f.Name+" ") {
				t.Errorf("%s --%s=: %+v", cmd.Name(), f.Name, got)
			}
			values++
		})
	}
	if values < 100 || durations < 20 {
		t.Errorf("%d flags with values, %d durations: are these all?", values, durations)
	}
	for _, tt := range []struct{ command, want string }{
		{"block", "--for duration      duration of the block, such as 90s, 1h30m or 2d\n"},
		{"connection", "--timeout duration       timeout of each step on a server, and of --auth-command (default 5s)\n"},
	} {
		var stdout strings.Builder
		Execute(t.Context(), []string{"help", tt.command}, nil, &stdout, nil)
		if !strings.Contains(stdout.String(), tt.want) {
			t.Errorf("no %q in:\n%s", tt.want, stdout.String())
		}
	}
}

func TestBuild(t *testing.T) {
	t.Run("to stdout", func(t *testing.T) {
		run(t, nil, "build").want(t, exitFine, functions.Source(), "")
	})
	t.Run("to a file", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "r.lua")
		run(t, nil, "build", "-o", file).want(t, exitFine,
			"wrote "+file+": ratelimit "+functions.Version()+", build "+functions.BuildID()+", "+grouped(int64(len(functions.Source())))+" bytes\n", "")
		content, err := os.ReadFile(file)
		if err != nil || string(content) != functions.Source() {
			t.Errorf("the file holds %d bytes (%v), want the library", len(content), err)
		}
	})
	t.Run("json", func(t *testing.T) {
		got := run(t, nil, "build", "--json")
		var report buildReport
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitFine {
			t.Fatalf("%v: %+v", err, got)
		}
		want := buildReport{"ratelimit", functions.Version(), 1, functions.BuildID(), functions.Digest(functions.Source()), len(functions.Source()), 0}
		if report != want {
			t.Errorf("got %+v, want %+v", report, want)
		}
	})
	t.Run("nobody reads", func(t *testing.T) {
		for _, args := range [][]string{{"build"}, {"acl", "--prefix", "rl:"}, {"version", "--json"}} {
			var stderr bytes.Buffer
			a := newApp(func(string) string { return "" }, broken{}, &stderr)
			if code := a.execute(t.Context(), args); code != exitError {
				t.Errorf("%v: exit code %d", args, code)
			}
			wantText(t, "stderr", stderr.String(), "ratelimit: cannot write the output (no reader); check that its reader runs and that the disk is not full\n")
		}
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no reader") }

func TestProgramName(t *testing.T) {
	info := func(version string, ok bool) func() (*debug.BuildInfo, bool) {
		return func() (*debug.BuildInfo, bool) {
			return &debug.BuildInfo{Path: "example.com/m/cmd/ratelimit", Main: debug.Module{Version: version}}, ok
		}
	}
	for _, tt := range []struct {
		arg0, version string
		ok            bool
		want          string
	}{
		{"/usr/local/bin/ratelimit", "v1.2.3", true, "ratelimit"},
		{"/somewhere/go-build1/b001/exe/ratelimit", "(devel)", true, "go run ./cmd/ratelimit"},
		{"/somewhere/go-build1/b001/exe/ratelimit", "", false, "go run ./cmd/ratelimit"},
		{"/somewhere/go-build1/b001/exe/ratelimit", "v1.2.3", true, "go run example.com/m/cmd/ratelimit@v1.2.3"},
	} {
		if got := programName(tt.arg0, info(tt.version, tt.ok)); got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.arg0, tt.version, got, tt.want)
		}
	}
}

func TestHuman(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0 ms"}, {1, "1 ms"}, {850 * time.Millisecond, "850 ms"}, {999*time.Millisecond + 1, "1 s"}, {1250 * time.Millisecond, "1.25 s"},
		{1251 * time.Millisecond, "1.26 s"}, {59*time.Second + 995*time.Millisecond, "1 min"}, {200 * time.Second, "3 min 20 s"},
		{59*time.Minute + 59*time.Second + 1, "1 h"}, {125 * time.Minute, "2 h 5 min"}, {24*time.Hour - 1, "1 d"}, {365*24*time.Hour - time.Hour, "364 d 23 h"}, {1<<63 - 1, "106751 d"},
	} {
		if got := human(tt.d); got != tt.want {
			t.Errorf("human(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}

func TestWords(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{grouped(0), "0"}, {grouped(999), "999"}, {grouped(1000), "1,000"}, {grouped(9007199254740992), "9,007,199,254,740,992"}, {grouped(-1234), "-1,234"},
		{plural(1, "key"), "1 key"}, {plural(1200, "key"), "1,200 keys"},
		{visible("{a}:b"), "{a}:b"}, {visible(""), `""`}, {visible("a b\n"), `"a b\n"`},
		{oneLine("ratelimit: a\r\nb\x1b[1m"), `a b\x1b[1m`},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
