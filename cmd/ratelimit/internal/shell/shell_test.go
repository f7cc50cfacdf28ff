package shell

import (
	"os/exec"
	"strings"
	"testing"
)

// TestLine checks that a shell parses the line as exactly the given words, for any words.
func TestLine(t *testing.T) {
	words := []string{"", " ", "a", "rl:*", "~rl:*", "%R~a", "&x", "+function|load", ">PASSWORD", "<in", "#no", "a#b", "=ls", "a=b", "~", "~root", "!x", "a!b",
		"$HOME", "`id`", "$(id)", "{a,b}", "{a}", "[ab]", "?", "a;b", "(a)", "it's", "''", `"`, `\`, `a\nb`, "^a", "%1", "-n", "a\nb", "ü", "redis://h:1/2,i:3"}
	want := ""
	for _, word := range words {
		want += "<" + word + ">"
	}
	for _, name := range []string{"bash", "zsh", "sh"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatalf("this test needs %s (Debian, Ubuntu: apt-get install %s)", name, name)
		}
		for _, args := range [][]string{{}, {"-i"}} { // an interactive shell also expands ! with its history
			cmd := exec.Command(path, args...)
			cmd.Stdin = strings.NewReader(Line(append([]string{"printf", "<%s>"}, words...)...) + "\n")
			cmd.Env = []string{"HOME=/nonexistent", "ZDOTDIR=/nonexistent", "TERM=dumb"}
			if got, err := cmd.Output(); err != nil || string(got) != want {
				t.Errorf("%s %v: %v\n%s\nwant\n%s", name, args, err, got, want)
			}
		}
	}
	if got := Line("ratelimit", "take", "user:42", "10/s,5/m", "--timeout", "5s"); got != "ratelimit take user:42 10/s,5/m --timeout 5s" {
		t.Errorf("needless quotes: %s", got)
	}
}
