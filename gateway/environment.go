package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/environ"
)

// apply sets the flags that the variables of envoyproxy/ratelimit name. A flag on the command line may
// replace a default of envoyproxy/ratelimit, but must not contradict a variable. With --dev, there is
// no Redis. settings may be nil.
func apply(flags *pflag.FlagSet, settings *environ.Settings) error {
	if settings == nil {
		return nil
	}
	for _, f := range settings.Flags {
		flag := flags.Lookup(f.Name)
		switch {
		case flags.Changed("dev") && (f.Name == "redis" || f.Name == "deploy"):
		case !flag.Changed:
			if err := flags.Set(f.Name, f.Value); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(f.From, ", "), err)
			}
		case len(f.From) == 0 || flag.Value.String() == f.Value:
		case f.Secret:
			return fmt.Errorf("--%s and %s contradict each other; keep one", f.Name, strings.Join(f.From, ", "))
		default:
			return fmt.Errorf("--%s %s and %s, which say %s, contradict each other; keep one", f.Name, flag.Value, strings.Join(f.From, ", "), f.Value)
		}
	}
	return nil
}

// list logs what the variables do, and which ones have almost the name of one. settings may be nil.
func list(log *slog.Logger, settings *environ.Settings, misspelled []environ.Note) {
	for _, n := range misspelled {
		log.Warn("a variable has no effect", "variable", n.Name, "because", n.Why)
	}
	if settings == nil {
		return
	}
	for _, f := range settings.Flags {
		from := strings.Join(f.From, ", ")
		if from == "" {
			from = "a default of envoyproxy/ratelimit"
		}
		if f.Secret {
			f.Value = "(not shown)"
		}
		log.Info("set by the environment", "flag", "--"+f.Name, "value", f.Value, "from", from)
	}
	for _, n := range settings.Notes {
		log.Warn("a variable of envoyproxy/ratelimit has no effect", "variable", n.Name, "because", n.Why)
	}
}
