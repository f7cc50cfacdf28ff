package grpccall_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ratelimit-functions/ratelimit/client/internal/limitertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = limitertest.Noon

func must[T any](t testing.TB) func(T, error) T { return limitertest.Must[T](t) }
