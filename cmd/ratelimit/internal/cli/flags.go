package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/span"
)

// This file contains the flags that several commands share.

func (a *app) jsonFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON, for scripts")
	return cmd
}

func spanVar(cmd *cobra.Command, d *time.Duration, name string, usual time.Duration, usage string) {
	*d = usual
	cmd.Flags().Var((*spanValue)(d), name, usage)
}

type spanValue time.Duration

func (v *spanValue) Set(text string) error {
	d, err := span.Parse(text)
	*v = spanValue(d)
	return err
}

func (v *spanValue) String() string {
	if *v == 0 {
		return "0" // pflag treats "0" as no default
	}
	return time.Duration(*v).String()
}

func (v *spanValue) Type() string { return "duration" }

// wholeVar defines a flag that is a whole number in decimal digits. pflag's own flags read 010 as 8.
func wholeVar[T int | int64](cmd *cobra.Command, n *T, name string, usual T, usage string) {
	*n = usual
	cmd.Flags().Var(wholeValue[T]{n}, name, usage)
}

type wholeValue[T int | int64] struct{ n *T }

func (v wholeValue[T]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && int64(T(n)) != n { // int may have 32 bits
		err = strconv.ErrRange
	}
	*v.n = T(n)
	return err
}

func (v wholeValue[T]) String() string {
	if v.n == nil { // pflag compares a zero value with the default
		return "0"
	}
	return strconv.FormatInt(int64(*v.n), 10)
}

func (v wholeValue[T]) Type() string { return "int" }

func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if _, ok := invalid.GetFlag().Value.(*spanValue); ok {
			return fmt.Errorf("--%s %w", invalid.GetFlag().Name, errors.Unwrap(invalid))
		}
		if invalid.GetValue() == "" {
			return isEmpty(invalid.GetFlag().Name)
		}
		if kind := map[string]string{"int": "a whole number", "float64": "a number", "bool": "true or false"}[invalid.GetFlag().Value.Type()]; kind != "" {
			if errors.Is(err, strconv.ErrRange) {
				return fmt.Errorf("--%s %q is out of range", invalid.GetFlag().Name, invalid.GetValue())
			}
			return fmt.Errorf("--%s %q is not %s", invalid.GetFlag().Name, invalid.GetValue(), kind)
		}
	}
	hint := ""
	if strings.Contains(err.Error(), "unknown shorthand") {
		hint = ", and -- goes before an argument that begins with a dash"
	}
	return fmt.Errorf("%w; %s --help lists the flags%s", err, cmd.CommandPath(), hint)
}

// flagGroup matches cobra's errors about flags that exclude each other or that need each other.
var flagGroup = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set (?:none of the others can be; \[(.*)\] were all set|they must all be set; missing \[(.*)\])$`)

// groupError rewords cobra's error about a group of flags. It returns other errors unchanged.
func groupError(err error) error {
	if err == nil {
		return nil
	}
	m := flagGroup.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	list := func(names string) string { return "--" + strings.ReplaceAll(names, " ", " and --") }
	if m[2] != "" {
		return fmt.Errorf("%s exclude each other; leave one out", list(m[2]))
	}
	return fmt.Errorf("%s need each other; add %s", list(m[1]), list(m[3]))
}

// notEmpty refuses invalid namespaces, --interval without --watch or of 0, and empty flag values, which
// would look like missing flags. It then calls next, if it is not nil, to check the arguments.
func notEmpty(next cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) (err error) {
		cmd.Flags().Visit(func(f *pflag.Flag) {
			list, isList := f.Value.(pflag.SliceValue)
			if (f.Value.String() == "" || isList && (len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), ""))) && err == nil {
				err = isEmpty(f.Name)
			} else if f.Name == "namespace" && err == nil {
				if err = functions.CheckNamespace(f.Value.String()); err != nil {
					err = fmt.Errorf("--namespace: %w", err)
				}
			} else if f.Name == "interval" && err == nil && cmd.Flags().Lookup("watch").Value.String() != "true" {
				err = errors.New("--interval needs --watch; add it, or leave --interval out")
			} else if f.Name == "interval" && err == nil && f.Value.String() == "0" {
				err = errors.New("--interval 0s is not above 0; give one such as 2s") // without a pause, a watch would load the servers
			}
		})
		if err != nil || next == nil {
			return err
		}
		return next(cmd, args)
	}
}

func isEmpty(flag string) error {
	return fmt.Errorf("--%s is empty; is a shell variable not set? give it a value, or leave it out", flag)
}
