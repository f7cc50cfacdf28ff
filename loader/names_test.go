package loader_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/names"
)

// What a user of the package has to read stays small.
func TestNames(t *testing.T) { names.AtMost(t, ".", 60) }
