//go:build unix

// Package docs runs every block in sh, go and python of every document as a new user would: in a
// clone, by pasting it into a shell, against any server. The blocks in sh call the same programs with
// the same arguments in bash, zsh and sh.
//
// HTML comments right before a block are invisible to readers. They describe the block:
//
//	<!-- prints: 1 3 2 0 20000 1 -->      its output, with spaces collapsed; * matches any one word
//	<!-- status: 2 0 0 -->                the exit statuses of its commands, if they are not all 0; * matches any
//	<!-- until: listening -->             text in its output after which the test sends Ctrl-C
//	<!-- in: examples -->                 the directory of the clone in which it runs
//	<!-- with: --addr 127.0.0.1:0 -->     arguments to append: to prevent conflicts with other programs, or to save time
//	<!-- needs: docker -->                a requirement; tests that do not meet it skip the block
//	<!-- server: none -->                 it needs no server, so tests on real servers skip it
//	<!-- not run: it takes an hour -->    why no test runs it
//
// In the blocks, localhost:6379 and redis-cli without an address mean the test's server, whose clock
// is stopped. Commands and clients that call a server have long timeouts, for busy machines.
package docs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Document is a file whose blocks build on one another. The first block runs on an empty server, or
// on the server of the documents that come before it in docs/README.md.
type Document struct {
	Name     string // "docs/policies.md"
	Examples []Example
	NotRun   []string // blocks that no test runs, with the reasons
}

// Example is one block.
type Example struct {
	Name     string // "README.md:31"
	Language string // "sh", "go" or "python"
	Needs    string // "docker", or ""
	Server   string // "none", or ""

	code, prints, until, in, with string
	statuses                      []string
}

var (
	mark    = regexp.MustCompile(`^<!-- (prints|status|until|in|with|needs|server|not run): (.+) -->$`)
	comment = regexp.MustCompile(`(?m)(^|\s)#.*$`)

	calls = regexp.MustCompile(`\bratelimit (demo|deploy|load|override|plan|rollback|status|take|top|usage)\b`)

	// run lists the languages of the blocks that tests of this package run; shown lists the
	// languages of all other blocks. The tests of package embedded, and the tests on real servers,
	// run the Lua blocks in docs/offline.md.
	run   = []string{"sh", "go", "python"}
	shown = []string{"text", "yaml", "json", "lua", "nginx", "caddyfile", "haproxy", "apache"}
)

// All returns the documents of the checkout at root that contain examples. It returns an error if a
// block is in an unknown language or cannot be pasted into every shell.
func All(root string) ([]Document, error) {
	var all []Document
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			document, err := parse(filepath.ToSlash(name), string(text))
			if err != nil {
				return nil, err
			}
			if len(document.Examples)+len(document.NotRun) > 0 {
				all = append(all, document)
			}
		}
	}
	return all, nil
}

func parse(name, text string) (Document, error) {
	document := Document{Name: name}
	marks := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if match := mark.FindStringSubmatch(lines[i]); match != nil {
			marks[match[1]] = match[2]
			continue
		}
		language, isBlock := strings.CutPrefix(strings.TrimSpace(lines[i]), "```")
		where := fmt.Sprintf("%s:%d", name, i+1)
		if !isBlock {
			if len(marks) > 0 {
				return document, fmt.Errorf("%s: a mark stands before this line, which begins no block", where)
			}
			continue
		}
		size := slices.IndexFunc(lines[i+1:], func(line string) bool { return strings.TrimSpace(line) == "```" })
		if size < 0 {
			return document, fmt.Errorf("%s: this block does not end", where)
		}
		code := strings.Join(lines[i+1:i+1+size], "\n") + "\n"
		i += 1 + size
		if slices.Contains(shown, language) {
			continue
		}
		if !slices.Contains(run, language) {
			return document, fmt.Errorf("%s: a block in %q; write one of %q, which are run, or of %q", where, language, run, shown)
		}
		if found := comment.FindString(code); found != "" && language == "sh" {
			return document, fmt.Errorf("%s: zsh takes %q for words of the command, or for a command; say it outside of the block", where, strings.TrimSpace(found))
		}
		if reason := marks["not run"]; reason != "" {
			document.NotRun = append(document.NotRun, where+": "+reason)
		} else {
			document.Examples = append(document.Examples, Example{
				Name: where, Language: language, Needs: marks["needs"], Server: marks["server"],
				code: code, prints: marks["prints"], until: marks["until"], in: marks["in"], with: marks["with"], statuses: strings.Fields(marks["status"]),
			})
		}
		marks = map[string]string{}
	}
	return document, nil
}

// Run runs the example in the clone against a server. If the example is in the language sh, Run
// pastes it into shell. The returned error says how the result differs from the document.
func (e Example) Run(ctx context.Context, clone *Clone, shell, redisURL string) error {
	address := strings.TrimPrefix(redisURL, "redis://")
	code := strings.ReplaceAll(e.code, "localhost:6379", address)
	if e.with != "" {
		code = strings.TrimSuffix(code, "\n") + " " + e.with + "\n"
	}
	if strings.Contains(strings.ReplaceAll(code, address, ""), ":6379") {
		return fmt.Errorf("%s: it names a server that may be somebody's; write localhost:6379", e.Name)
	}
	code = patient(code)
	var output, failure string
	var err error
	switch e.Language {
	case "sh":
		output, failure, err = clone.paste(ctx, shell, code, e, redisURL)
	case "go":
		output, failure, err = clone.goProgram(ctx, code, redisURL)
	case "python":
		output, failure, err = clone.command(ctx, redisURL, "python3", "-c", code)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\nstdout:\n%s\nstderr:\n%s", e.Name, err, output, failure)
	}
	if e.prints != "" && !matches(output, e.prints) {
		return fmt.Errorf("%s printed %q, want %q", e.Name, strings.Join(strings.Fields(output), " "), e.prints)
	}
	return nil
}

// patient replaces the default timeouts, 5 s in the command and 500 ms in the client, because a
// busy machine may need more time.
func patient(code string) string {
	code = calls.ReplaceAllString(code, "$0 --timeout 5m")
	const open = `client.Open(os.Getenv("REDIS_URL"`
	return strings.ReplaceAll(code, open+"))", open+"), client.WithTimeout(300e9))")
}

// matches compares text with pattern word by word. A * in pattern matches any word.
func matches(text, pattern string) bool {
	return slices.EqualFunc(strings.Fields(text), strings.Fields(pattern), func(got, want string) bool {
		return want == "*" || got == want
	})
}
