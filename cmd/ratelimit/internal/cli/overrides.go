package cli

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/ratelimit-functions/ratelimit/cmd/ratelimit/internal/overrides"
)

const (
	mostOverrides  = 10_000 // maximum number of keys shown; limits memory use, because keys may be long
	overrideRights = "+scan +type +getrange +zrange +zscore +time +ping"
)

// listOverrides prints the keys that have an override or a block and match a pattern.
func (a *app) listOverrides(ctx context.Context, match string) error {
	rdb, s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	scan := overrides.New(mostOverrides, match)
	err = a.faults(s, scan.Run(ctx, rdb), overrideRights)
	found := scan.Snapshot()
	switch {
	case a.json:
		a.printJSON(newOverridesReport(found, err))
	case len(found.Overrides) > 0 || err == nil && ctx.Err() == nil:
		a.printOverrides(found)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %s", looked(found.Progress))
	}
	return err
}

func (a *app) printOverrides(found overrides.Snapshot) error {
	n := int64(len(found.Overrides)) + found.More
	text := "no key has an override or a block"
	if n > 0 {
		text = plural(n, "key") + " with an override or a block"
	}
	if found.More > 0 {
		text += fmt.Sprintf(" · %s not shown; choose fewer keys with --match", grouped(found.More))
	}
	if !found.Complete && found.Looked < found.Keys { // if a server failed, its error is printed instead
		text += " · of " + looked(found.Progress)
	}
	if found.Refused > 0 {
		text += fmt.Sprintf(" · %s may not be read by this user", plural(found.Refused, "key"))
	}
	a.printf("%s\n", text)
	if n == 0 {
		return nil
	}
	rows := [][]string{{"KEY", "LIMIT", "ENDS IN", "BLOCKED FOR"}}
	for _, o := range found.Overrides {
		ends, blocked := "", ""
		if !o.Ends.IsZero() {
			ends = human(o.Ends.Sub(o.Read))
		}
		if !o.Blocked.IsZero() {
			blocked = human(o.Blocked.Sub(o.Read))
		}
		rows = append(rows, []string{visible(o.Key), o.Limit, ends, blocked})
	}
	a.printf("\n")
	return a.write(table(rows))
}

// overridesReport is the list of overrides and blocks in JSON. Times are in ms since the epoch, by the
// server's clock.
type overridesReport struct {
	Complete  bool            `json:"complete"` // false if some keys were not examined
	More      int64           `json:"more"`     // number of keys that are not in Overrides
	Refused   int64           `json:"refused"`  // keys that the user may not read
	Overrides []overrideEntry `json:"overrides"`
	Error     string          `json:"error,omitempty"`
}

type overrideEntry struct {
	Key            string `json:"key"`
	KeyBase64      []byte `json:"key_base64,omitempty"` // if the key is not valid text
	Limit          string `json:"limit"`                // "": no override
	EndsMS         int64  `json:"ends_ms"`              // 0: no override
	BlockedUntilMS int64  `json:"blocked_until_ms"`     // 0: not blocked
}

func newOverridesReport(found overrides.Snapshot, err error) overridesReport {
	report := overridesReport{
		Complete: found.Complete && err == nil, More: found.More, Refused: found.Refused, Overrides: []overrideEntry{},
	}
	if err != nil {
		report.Error = err.Error()
	}
	for _, o := range found.Overrides {
		entry := overrideEntry{Key: o.Key, Limit: o.Limit}
		if !o.Ends.IsZero() {
			entry.EndsMS = o.Ends.UnixMilli()
		}
		if !o.Blocked.IsZero() {
			entry.BlockedUntilMS = o.Blocked.UnixMilli()
		}
		if !utf8.ValidString(o.Key) {
			entry.KeyBase64 = []byte(o.Key)
		}
		report.Overrides = append(report.Overrides, entry)
	}
	return report
}
