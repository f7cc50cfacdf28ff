package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// After a shell runs its line from docs/install.md, Tab completes commands, flags and files.
func TestCompletion(t *testing.T) {
	page := must[[]byte](t)(os.ReadFile("../../../../docs/install.md"))
	policies := must[[]byte](t)(os.ReadFile("../../../../examples/policies.yaml"))
	program := binary(t)
	for _, tt := range []struct{ shell, before, line string }{
		{"bash --norc -i", ". /usr/share/bash-completion/bash_completion", "source <(ratelimit completion bash)"},
		{"zsh -f -i", "autoload -Uz compinit; compinit -u", "source <(ratelimit completion zsh)"},
		{"fish --no-config -i", "", "ratelimit completion fish | source"},
	} {
		t.Run(strings.Fields(tt.shell)[0], func(t *testing.T) {
			if !strings.Contains(string(page), "`"+tt.line+"`") {
				t.Errorf("docs/install.md does not tell users to add %s", tt.line)
			}
			home := t.TempDir()
			require(t, os.WriteFile(filepath.Join(home, "policies.yaml"), policies, 0o600))
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "script", "-qec", tt.shell, "/dev/null") // script runs the shell in a terminal
			cmd.Dir = home
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"), "HOME="+home, "ZDOTDIR="+home,
				"XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home, "TERM=xterm", "HISTFILE=")
			cmd.Stdin = strings.NewReader(tt.before + "\n" + tt.line + "\nratelimit vers\t\nratelimit verify --poli\t pol\t\nexit\n")
			screen, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s (Debian, Ubuntu: apt-get install bash-completion zsh fish): %v\n%s", tt.shell, err, screen)
			}
			for _, want := range []string{"library ratelimit ", "policies.yaml: 8 policies"} {
				if !strings.Contains(string(screen), want) {
					t.Errorf("the terminal does not show %q, but\n%s", want, screen)
				}
			}
		})
	}
}
