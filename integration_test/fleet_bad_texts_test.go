package integration_test

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/integration_test/backend"
	"github.com/ratelimit-functions/ratelimit/loader"
	"github.com/ratelimit-functions/ratelimit/loader/nodes"
	"github.com/ratelimit-functions/ratelimit/loader/text"
)

// packed returns the line of a header that has the record.
func packed(t *testing.T, record string) string {
	t.Helper()
	var b bytes.Buffer
	w := must[*flate.Writer](t)(flate.NewWriter(&b, flate.BestSpeed))
	_, err := w.Write([]byte(record))
	require(t, errors.Join(err, w.Close()))
	return "--part " + base64.StdEncoding.EncodeToString(b.Bytes())
}

// forged returns a text whose header has the lines.
func forged(lines ...string) string {
	header := strings.Join(lines, "\n")
	return fmt.Sprintf("#!lua name=ratelimit\n--ratelimit header 1, %d lines, %.16s\n%s\nredis.register_function{function_name='ratelimit_by_n',callback=function() return 1 end}\n--ratelimit body\n", len(lines), functions.Digest(header), header)
}

// librariesOf returns the source code of each library on each primary, by address and name.
func librariesOf(t *testing.T, primaries []*backend.Node) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, n := range primaries {
		for _, l := range must[[]redis.Library](t)(n.Client().FunctionList(testContext(t), redis.FunctionListQuery{WithCode: true}).Result()) {
			found[n.Addr+" "+l.Name] = l.Code
		}
	}
	return found
}

// TestFleetBadTexts loads a library that no deployment wrote on one primary. A deployment then changes
// nothing on any primary, and the error says what to do.
func TestFleetBadTexts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *backend.Backend) {
		ctx := testContext(t)
		primaries := primariesOf(ctx, t, b)
		victim := primaries[len(primaries)-1]
		l := newLoader(t, newClient(t, b))
		deploy(ctx, t, l, policyBuild(t, "good"))
		good := librariesOf(t, primaries)[victim.Addr+" ratelimit"]
		header, body, _ := strings.Cut(good, "\n--ratelimit body\n")
		const remove, year9999 = "delete it there with FUNCTION DELETE ratelimit, and deploy again", 253402300799000
		part := func(number uint64) string {
			return packed(t, fmt.Sprintf(`{"namespace":"a","number":%d,"digest":""}`+"\n", number))
		}
		logged := packed(t, fmt.Sprintf(`{"namespace":"a","number":7,"digest":"","log":[{"number":7,"at":%d,"who":"ann"}]}`+"\n", uint64(year9999)))
		inPart := strings.Index(good, "\n--part ") + 100
		endOfPart := inPart + strings.Index(good[inPart:], "\n")
		code := "#!lua name=ratelimit\n" + body
		latest := must[string](t)(text.Text{}.With(map[string]text.Part{"": {Number: text.MaxNumber, Value: code}}).Render("n", "ann"))
		for name, tt := range map[string]struct {
			text   string
			class  error
			reason string // what makes the text a bad one
			remedy string
		}{
			"a header without its end":      {header + "\n", loader.ErrUnreadable, "its end is missing", remove},
			"a header cut inside a part":    {good[:inPart] + good[endOfPart:], loader.ErrUnreadable, "its lines are not those that were written", remove},
			"a part cut in the middle":      {forged(logged[:len(logged)/8*4+3]), loader.ErrUnreadable, `a part of the namespace "": unexpected EOF`, remove},
			"an edited header":              {strings.Replace(good, "--part ", "--part A", 1), loader.ErrUnreadable, "its lines are not those that were written", remove},
			"a newer format":                {strings.Replace(good, "--ratelimit header 1", "--ratelimit header 2", 1), loader.ErrUnreadable, "the header has a newer format (2)", "deploy with that version"},
			"a header of 2 MiB":             {strings.Replace(good, "--part ", "--part "+strings.Repeat("A", 2<<20), 1), loader.ErrUnreadable, "bytes, and a header has at most 1048576", remove},
			"a number of 2^63":              {forged(part(1 << 63)), loader.ErrUnreadable, "cannot unmarshal number 9223372036854775808", remove},
			"a number of 2^63-1":            {forged(part(1<<63 - 1)), loader.ErrUnreadable, "the number 9223372036854775807 is not from 1 to 32503679999999", remove},
			"a number of the year 9999":     {forged(part(year9999)), loader.ErrUnreadable, "the number 253402300799000 is not from 1 to 32503679999999", remove},
			"a deployment in the year 9999": {forged(logged), loader.ErrUnreadable, `a part of the namespace "a": its log has values that no deployment writes`, remove},
			"a namespace twice":             {forged(part(7), part(8)), loader.ErrUnreadable, `a part of the namespace "a": it is there twice`, remove},
			"the highest number":            {latest, nodes.ErrBadReply, victim.Addr + " has a library of the year 2999, which cannot be right", remove},
			"a newer version":               {strings.Replace(code, "local VERSION = '", "local VERSION = '9", 1), loader.ErrDowngrade, "version 9", "Options.AllowDowngrade"},
			"a higher contract":             {strings.Replace(code, "local CONTRACT = 1", "local CONTRACT = 2", 1), loader.ErrDowngrade, "contract 2", "Options.AllowDowngrade"},
			"another project's library":     {"#!lua name=ratelimit\nredis.register_function('mine', function() return 1 end)", nodes.ErrForeign, "its text contains no build ID", "Options.ReplaceForeign"},
		} {
			require(t, victim.Client().FunctionLoadReplace(ctx, tt.text).Err())
			before := librariesOf(t, primaries)
			if before[victim.Addr+" ratelimit"] != tt.text {
				t.Errorf("%s: the server has another text", name)
			}
			report, err := l.Deploy(ctx, policyBuild(t, "next"), loader.Options{RemovePolicies: true})
			if !errors.Is(err, tt.class) || !strings.Contains(err.Error(), tt.reason) || !strings.Contains(err.Error(), tt.remedy) || len(err.Error()) > 600 || report.Changed() != 0 {
				t.Errorf("%s: %.600v, want %q and %q", name, err, tt.reason, tt.remedy)
			}
			if !maps.Equal(librariesOf(t, primaries), before) {
				t.Errorf("%s: a deployment has changed something", name)
			}
		}
		// The remedy works.
		require(t, victim.Client().FunctionDelete(ctx, functions.Name).Err())
		deploy(ctx, t, l, policyBuild(t, "good"))

		if b.Clock != nil && !b.Cluster { // in a cluster, this clock would end the connections between the nodes
			before := librariesOf(t, primaries)
			require(t, b.SetTime(32_600_000_000_000_000)) // in the year 3003
			_, err := l.Deploy(ctx, policyBuild(t, "next"), loader.Options{})
			b.RealTime()
			if !errors.Is(err, nodes.ErrBadReply) || !strings.Contains(err.Error(), "has a clock of the year 3003, which cannot be right; set the clock of the server, then try again") || !maps.Equal(librariesOf(t, primaries), before) {
				t.Errorf("a clock in the year 3003: %v", err)
			}
		}

		// A library with a name of this project's own does no harm.
		const stranger = "#!lua name=ratelimit_by_ann\nredis.register_function('ratelimit_by_ann', function() return 1 end)"
		require(t, victim.Client().FunctionLoadReplace(ctx, stranger).Err())
		deploy(ctx, t, l, policyBuild(t, "next"))
		if librariesOf(t, primaries)[victim.Addr+" ratelimit_by_ann"] != stranger {
			t.Error("the stranger's library has changed")
		}

		// A deployment of one namespace keeps 60 others.
		many := must[text.Text](t)(text.Parse(librariesOf(t, primaries)[victim.Addr+" ratelimit"]))
		parts := map[string]text.Part{}
		for i := range 60 {
			namespace := fmt.Sprintf("team-%d", i)
			parts[namespace] = text.Part{Number: many.Highest, Value: text.ValueOf(policiesOf(namespace, "1/m"))}
		}
		require(t, victim.Client().FunctionLoadReplace(ctx, must[string](t)(many.With(parts).Render("many", "ann"))).Err())
		deploy(ctx, t, newLoader(t, newClient(t, b), loader.Config{Namespace: "last"}), newBuild(t, policiesOf("last", "1/m")...))
		for name, code := range librariesOf(t, primaries) {
			if strings.HasSuffix(name, " ratelimit") {
				if found := must[text.Text](t)(text.Parse(code)); len(found.Parts) != 62 {
					t.Errorf("%s has %d namespaces", name, len(found.Parts))
				}
			}
		}
	})
}
