package cli

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// --askpass reads a password that the terminal does not show. An interrupt restores the terminal.
func TestAskPassword(t *testing.T) {
	addr := startRedis(t)
	do(t, admin(t, addr), "ACL", "SETUSER", "ann", "on", ">sekret", "~*", "+@all")
	fine(t, nil, "deploy", "--redis", addr)
	for _, tt := range []struct{ typed, want string }{
		{"sekret\n", "allowed  "},
		{"guessed\n", "refuses the login"},
		{"\n", "the password is empty"},
		{"se\x03", ""},
	} {
		p := startOnTerminal(t, 200, "take", "--dry-run", "k", "1/h", "--askpass", "--redis", "redis://ann@"+addr)
		p.shows(t, "the question", "Password: ")
		eventually(t, "the terminal shows nothing that is typed", func() bool {
			mode, err := unix.IoctlGetTermios(int(p.terminal.Fd()), unix.TCGETS)
			return err == nil && mode.Lflag&unix.ECHO == 0
		})
		must[int](t)(p.person.WriteString(tt.typed))
		_ = p.cmd.Wait()
		said := p.leftNormal(t)
		if !strings.Contains(said, tt.want) || strings.Contains(said, "sekret") || strings.Contains(said, "guessed") {
			t.Errorf("%q: it says %q", tt.typed, said)
		}
	}
}
