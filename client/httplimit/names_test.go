package httplimit_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/names"
)

func TestNames(t *testing.T) { names.AtMost(t, ".", 25) }
