package main

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/ratelimit-functions/ratelimit/gateway/internal/spelling"
)

// named reports whether there is anything to check: a flag that the command line or a variable has set.
func named(flags *pflag.FlagSet) (found bool) {
	flags.Visit(func(f *pflag.Flag) { found = found || f.Name != "check-config" && f.Name != "log" })
	return found
}

// suggest adds to an error about an unknown flag the flag that was perhaps meant.
func suggest(flags *pflag.FlagSet, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	name := unknown.GetSpecifiedName()
	if short := unknown.GetSpecifiedShortnames(); flags.Lookup(short) != nil { // -redis
		name = short
	} else if name = spelling.Nearest(name, names); name == "" {
		return fmt.Errorf("%w; --help lists all", err)
	}
	return fmt.Errorf("%w; was --%s meant?", err, name)
}
