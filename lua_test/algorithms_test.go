package lua_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimit-functions/ratelimit/embedded"
	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/lua_test/model"
)

// probe is Lua code appended to the library's source code, so it can use the library's local
// tables. It registers a function that returns, for every algorithm, its name, the names of its
// options, and the fields of its table as "field: type". The function also parses two limits, one
// with one rate and one with two rates. It returns the fields of each limit and of its last rate,
// and the parse error, or "" if there is none.
const probe = `
redis.register_function{function_name = 'probe', flags = {'no-writes'}, callback = function()
  local list = {}
  local function fields(of, what)
    local seen = {}
    for name, value in pairs(type(of) == 'table' and of or {}) do
      seen[#seen + 1] = what .. name .. ': ' .. type(value)
    end
    return seen
  end
  for name, algorithm in pairs(algorithms) do
    local options, limit_fields, rate_fields, raised = {}, {}, {}, {'', ''}
    for option in pairs(algorithm.options or {}) do
      options[#options + 1] = option
    end
    for i, text in ipairs{' 5/10s', ' 5/10s, 7/m'} do
      local parsed, limit = pcall(limits.of, name .. text)
      if not parsed then raised[i] = tostring(limit) end
      if parsed and limit and not algorithm.refusal then
        limit_fields[i], rate_fields[i] = fields(limit, 'limit.'), fields(limit.rates[i], 'rate.')
      end
    end
    list[#list + 1] = {name, options, fields(algorithm, ''), limit_fields[1] or {}, limit_fields[2] or {}, rate_fields[1] or {},
      rate_fields[2] or {}, raised}
  end
  return list
end}
`

// Fields that the comments at the top of src/45_limits.lua and src/35_packed.lua require.
var (
	ofAlgorithm = []string{"name: string", "options: table", "charge: function", "refund: function",
		"reset: function", "wait: function"}
	ofPacked = []string{"prefix: string", "read: function", "save: function"}
	ofLimit  = []string{"limit.probe: function", "limit.form: table"}
	ofRate   = []string{"rate.capacity: number", "rate.algorithm: table"}
)

func read(t *testing.T, file string) string {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(file))
	return string(text)
}

// section returns the part of text from heading to the next heading.
func section(text, heading string) string {
	_, after, _ := strings.Cut(text, "\n"+heading+"\n")
	before, _, _ := strings.Cut(after, "\n## ")
	return before
}

// TestEveryAlgorithmIsComplete checks that every algorithm of the library has all required fields,
// vectors, a file in the reference model, a row in the tables of SEMANTICS.md, STATE.md and
// README.md, and a section about its decisions in SEMANTICS.md. It also checks that none of these
// exist for an unknown algorithm.
func TestEveryAlgorithmIsComplete(t *testing.T) {
	server := embedded.Run(t, embedded.WithLibrary(mutated(t, functions.Source())+probe))
	reply := must[any](t)(server.Do("FCALL_RO", "probe", 0))
	vectors := map[string]bool{}
	files := must[[]functions.VectorFile](t)(functions.LoadVectors())
	for _, file := range files {
		vectors[file.Name] = true
		if len(file.Vectors) == 0 || file.About == "" || file.StartUS == 0 {
			t.Errorf("functions/vectors/%s.json has no vectors, no about or no start_us", file.Name)
		}
	}
	semantics, kept, readme := read(t, "../functions/SEMANTICS.md"), read(t, "../functions/STATE.md"), read(t, "../README.md")
	limits, decides := section(semantics, "## A limit"), section(semantics, "## What each algorithm decides")
	var names []string
	for _, row := range reply.([]any) {
		fields := row.([]any)
		name, options := fields[0].(string), words(fields[1])
		names = append(names, name)
		t.Run(name, func(t *testing.T) {
			lacks := func(has any, what, head string, wanted []string) {
				t.Helper()
				for _, field := range wanted {
					if !slices.Contains(words(has), field) {
						t.Errorf("functions/src/algorithms/%s.lua: %s has no %s; see the top of src/%s.lua", name, what, field, head)
					}
				}
			}
			of := "algorithms." + name
			file := "algorithms/" + name
			if slices.Contains(words(fields[2]), "refusal: string") {
				file = "75_leases"
			} else {
				lacks(fields[2], of, "45_limits", ofAlgorithm)
				lacks(fields[2], of, "35_packed", ofPacked)
				for i, limit := range []string{name + " 5/10s", name + " 5/10s, 7/m"} {
					if raised := fields[7].([]any)[i].(string); raised != "" {
						t.Errorf("functions/src/algorithms/%s.lua: reading the limit %q fails: %s (a line of functions/ratelimit.lua); see the tops of src/45_limits.lua and src/35_packed.lua", name, limit, raised)
						break
					}
					lacks(fields[3+i], limit, "45_limits", ofLimit)
					lacks(fields[5+i], limit, "45_limits", ofRate)
				}
			}
			if !strings.Contains(functions.Source(), "\n--@ src/"+file+".lua\n") {
				t.Errorf("there is no functions/src/%s.lua", file)
			}
			if !vectors[name] {
				t.Errorf("there is no functions/vectors/%s.json: calls and their replies; functions/vectors/README.md describes the format", name)
			}
			if inModel, ok := model.Algorithms[name]; !ok {
				t.Errorf("there is no lua_test/model/%s.go that puts %q into model.Algorithms; TestAgreement compares the library with it", name, name)
			} else if got := slices.Sorted(maps.Keys(inModel.Options)); !slices.Equal(got, options) {
				t.Errorf("lua_test/model/%s.go: its options are %q, in the library %q", name, got, options)
			}
			if !strings.Contains(decides, "\n### "+name+"\n") {
				t.Errorf("SEMANTICS.md, What each algorithm decides: there is no section ### %s", name)
			}
			inLimits := tableRow(limits, name)
			if inLimits == "" {
				t.Errorf("SEMANTICS.md, A limit: the table has no row for `%s`", name)
			}
			for _, option := range options {
				if !strings.Contains(inLimits, "`"+option+"=") {
					t.Errorf("SEMANTICS.md, A limit: the row for %s does not name its option `%s=`", name, option)
				}
			}
			if !strings.Contains(kept, "`"+name+"`") {
				t.Errorf("functions/STATE.md: the table has no row for `%s`, which says what its keys hold", name)
			}
			if tableRow(section(readme, "## Limits"), name) == "" {
				t.Errorf("README.md, Limits: the table has no row for `%s`", name)
			}
		})
	}
	slices.Sort(names)
	if _, err := server.Do("FCALL", "ratelimit_take", 1, "k", "none 1/s"); err == nil ||
		!strings.HasSuffix(err.Error(), `unknown algorithm "none"; there are `+strings.Join(names, ", ")) {
		t.Errorf("the error for an unknown algorithm is %v, and does not end with the names of all", err)
	}
	for name := range model.Algorithms {
		if !slices.Contains(names, name) {
			t.Errorf("lua_test/model has %s, which the library does not have", name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)").FindAllStringSubmatch(limits+section(readme, "## Limits"), -1) {
		if !slices.Contains(names, row[1]) {
			t.Errorf("a table of SEMANTICS.md or README.md has a row for %s, which the library does not have", row[1])
		}
	}
}

// words returns the strings in a list, sorted.
func words(list any) []string {
	var all []string
	for _, word := range list.([]any) {
		all = append(all, word.(string))
	}
	slices.Sort(all)
	return all
}

// tableRow returns the table row whose first cell begins with a backquote and name, or "" if there
// is none.
func tableRow(text, name string) string {
	return regexp.MustCompile("(?m)^\\| `" + name + "\\b.*$").FindString(text)
}
