package client_test

import (
	"testing"

	"github.com/ratelimit-functions/ratelimit/internal/names"
)

// The page of an application has at most 72 names.
func TestNames(t *testing.T) { names.AtMost(t, ".", 72) }
