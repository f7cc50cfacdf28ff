package names_test

import (
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/names"
)

func TestOf(t *testing.T) {
	found, err := names.Of("testdata")
	if got, want := strings.Join(found, " "), "Eleven ErrFour Five Five.Six One Ten Three"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
