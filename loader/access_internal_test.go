package loader

import (
	"crypto/tls"
	"testing"
)

// The command line that grants rights names the server where they are missing.
func TestGrant(t *testing.T) {
	for want, c := range map[string]*conn{
		"redis-cli -h 10.0.0.1 -p 7000 ACL SETUSER ann '+function|load' +time":      {addr: "10.0.0.1:7000", user: "ann"},
		"redis-cli -h ::1 -p 7000 --tls ACL SETUSER default '+function|load' +time": {addr: "[::1]:7000", tls: &tls.Config{}},
		"redis-cli -s '/run/my redis' ACL SETUSER 'a;b' '+function|load' +time":     {addr: "/run/my redis", user: "a;b"},
	} {
		if got := c.grant([]string{"+function|load", "+time"}); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}
