package spelling_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/spelling"
)

func TestNearest(t *testing.T) {
	known := []string{"redis", "REDIS_URL", "REDIS_TYPE", "PORT", "policies"}
	for word, want := range map[string]string{
		"REDIS_URLL": "REDIS_URL", "REDIS_URI": "REDIS_URL", "REDSI_URL": "REDIS_URL", "REDIS_TYP": "REDIS_TYPE", "rediss": "redis", "polices": "policies", "policie": "policies",
		"REDIS_URL": "", "REDIS_HOST": "", "PATH": "", "PORTS": "PORT", "PO": "", "": "", "redi": "redis",
	} {
		if got := spelling.Nearest(word, known); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
