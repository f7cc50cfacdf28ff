package text

import (
	"bytes"
	"cmp"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ratelimit-functions/ratelimit/functions"
	"github.com/ratelimit-functions/ratelimit/internal/luastring"
)

// A header looks like this, after the shebang:
//
//	--ratelimit header 1, 2 lines, 0123456789abcdef
//	--part <base64 of a deflated record>
//	--value <base64 of a deflated value>
//	redis.register_function{function_name='ratelimit_by_<name>', description='number <n>, text <digest>', ...}
//	--ratelimit body
//
// The first line has the format, the number of lines with parts and values, and the beginning of
// the SHA-256 of these lines. The values of namespaces are there only if there is no code that
// could hold their policies.
const (
	shebang = "#!lua name=" + functions.Name
	begins  = "--ratelimit header "
	ends    = "--ratelimit body"
	aPart   = "--part "
	aValue  = "--value "
	format  = 1

	// By is the beginning of the name of the function that a text registers for its writer.
	By = functions.Name + "_by_"

	mostHeader   = 1 << 20 // bytes
	mostInflated = 8 << 20 // bytes of all records and values of a header
)

// ErrNewer is the error of Parse for a header of a later version of this package.
var ErrNewer = errors.New("the header has a newer format")

// record is a part without its value: a line of JSON, and then the difference to the value that was
// replaced, which may have any bytes.
type record struct {
	Namespace string  `json:"namespace"`
	Number    int64   `json:"number"`
	Digest    string  `json:"digest"` // of the value, "" for a tombstone
	Log       []Entry `json:"log,omitempty"`

	replaced string
}

// Render is rule 1: it returns the source code to load on a node. name is unique to the call that writes it, and
// who describes the caller. Render fails if the code cannot hold the policies of all namespaces.
func (t Text) Render(name, who string) (string, error) {
	body, err := t.Body()
	if err != nil {
		return "", err
	}
	var lines []string
	highest := int64(0)
	for _, namespace := range t.Namespaces() {
		part := t.Parts[namespace]
		if part.Number > 0 {
			lines = append(lines, aPart+part.line)
			highest = max(highest, part.Number)
		}
		if body == "" && namespace != "" && part.Value != "" {
			lines = append(lines, aValue+pack(namespace+"\n"+part.Value))
		}
	}
	header := strings.Join(lines, "\n")
	if len(header) > mostHeader {
		return "", fmt.Errorf("the header would have %d bytes, and a text has at most %d for it", len(header), mostHeader)
	}
	first, rest, _ := strings.Cut(body, "\n")
	switch {
	case body == "":
		first = shebang
	case rest == "" || strings.HasPrefix(rest, begins):
		return "", errors.New("the code is not a library")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s%d, %d lines, %.16s\n", first, begins, format, len(lines), functions.Digest(header))
	if header != "" {
		b.WriteString(header + "\n")
	}
	fmt.Fprintf(&b, "redis.register_function{function_name='%s%s',description='number %d, text %s',flags={'no-writes','allow-stale'},callback=function() return %s end}\n%s\n%s",
		By, name, highest, functions.Digest(header + "\n" + body)[:32], luastring.Append(nil, who), ends, rest)
	return b.String(), nil
}

var headerLine = regexp.MustCompile(`^--ratelimit header ([0-9]{1,9}), ([0-9]{1,6}) lines, ([0-9a-f]{16})$`)

// Body returns the library in the source code of a node, without the header. It does not check the
// header.
func Body(source string) string {
	first, rest, _ := strings.Cut(source, "\n")
	if !strings.HasPrefix(rest, begins) {
		return source
	}
	_, body, found := strings.Cut(rest, "\n"+ends+"\n")
	if !found || body == "" {
		return ""
	}
	return first + "\n" + body
}

// Parse reads the source code of a node. For "", it returns a text without parts. It fails if the
// header is malformed or not credible, or if the source code has policies of namespaces that
// cannot be read; then the node must not be changed.
func Parse(source string) (Text, error) {
	t := Text{Parts: map[string]Part{}}
	records, values, err := t.parseHeader(source)
	if err != nil {
		return Text{}, err
	}
	found, err := split(Body(source))
	if err != nil {
		return Text{}, err
	}
	if len(found) > 0 && len(values) > 0 {
		return Text{}, errors.New("the header has values beside the code")
	}
	maps.Copy(found, values)
	for namespace, value := range found {
		t.Parts[namespace] = Part{Value: value}
	}
	for line, r := range records {
		value := found[r.Namespace]
		if r.Digest != Digest(value) {
			continue // the value was edited, or lost: it has the number 0
		}
		replaced, err := apply(value, r.replaced)
		if err != nil {
			return Text{}, fmt.Errorf("the header is malformed: the difference of the namespace %q: %w", r.Namespace, err)
		}
		t.Parts[r.Namespace] = Part{Number: r.Number, Value: value, Replaced: replaced, Log: r.Log, line: line}
	}
	return t, nil
}

// parseHeader parses the header of source. It returns two maps: the records, whose keys are the
// packed texts of the lines, and the values, whose keys are the namespaces.
func (t *Text) parseHeader(source string) (map[string]record, map[string]string, error) {
	_, rest, _ := strings.Cut(source, "\n")
	if !strings.HasPrefix(rest, begins) {
		return nil, nil, nil
	}
	malformed := func(format string, args ...any) (map[string]record, map[string]string, error) {
		return nil, nil, fmt.Errorf("the header is malformed: "+format, args...)
	}
	first, rest, _ := strings.Cut(rest, "\n")
	version, _, _ := strings.Cut(strings.TrimPrefix(first, begins), ",")
	if n, err := strconv.ParseUint(version, 10, 31); err == nil && n > format {
		return nil, nil, fmt.Errorf("%w (%d)", ErrNewer, n)
	}
	words := headerLine.FindStringSubmatch(first)
	if words == nil || words[1] != strconv.Itoa(format) {
		return malformed("%.80q is not its first line", first)
	}
	header, _, found := strings.Cut(rest, "\n"+ends+"\n")
	if !found {
		return malformed("its end is missing")
	}
	if len(header) > mostHeader+1024 {
		return malformed("it has %d bytes, and a header has at most %d", len(header), mostHeader)
	}
	lines := strings.Split(header, "\n")
	function := lines[len(lines)-1]
	lines = lines[:len(lines)-1]
	if count, _ := strconv.Atoi(words[2]); len(lines) != count || functions.Digest(strings.Join(lines, "\n"))[:16] != words[3] {
		return malformed("its lines are not those that were written")
	}
	_, name, ok := strings.Cut(function, "redis.register_function{function_name='"+By)
	if name, _, _ = strings.Cut(name, "'"); !ok || !nameText.MatchString(name) {
		return malformed("%.80q does not name the writer", function)
	}
	t.Name = name
	records, values, seen := map[string]record{}, map[string]string{}, map[string]bool{}
	left := mostInflated
	for _, line := range lines {
		if packed, ok := strings.CutPrefix(line, aValue); ok {
			text, err := unpack(packed, &left)
			namespace, value, _ := strings.Cut(text, "\n")
			if err == nil {
				err = checkValue(namespace, value)
			}
			if err != nil || values[namespace] != "" {
				return malformed("a value of the namespace %.80q: %w", namespace, cmp.Or(err, errTwice))
			}
			values[namespace] = value
			continue
		}
		packed, ok := strings.CutPrefix(line, aPart)
		if !ok {
			return malformed("%.80q", line)
		}
		r, err := decode(packed, &left)
		if err == nil && seen[r.Namespace] {
			err = errTwice
		}
		if err != nil {
			return malformed("a part of the namespace %.80q: %w", r.Namespace, err)
		}
		seen[r.Namespace], records[packed] = true, r
		t.Highest = max(t.Highest, r.Number)
	}
	return records, values, nil
}

var (
	nameText = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
	hexText  = regexp.MustCompile(`^([0-9a-f]{12}|[0-9a-f]{64})?$`)
	errTwice = errors.New("it is there twice")
)

func checkValue(namespace, value string) error {
	list, err := Policies(value)
	if err != nil {
		return err
	}
	if err := functions.CheckNamespace(namespace); err != nil {
		return err
	}
	if len(list) == 0 || ValueOf(list) != value || slices.ContainsFunc(list, func(p functions.Policy) bool {
		return p.Namespace() != namespace || len(p.Faults()) > 0
	}) {
		return errors.New("it has other policies")
	}
	return nil
}

// decode reads and checks a record.
func decode(packed string, left *int) (record, error) {
	var r record
	text, err := unpack(packed, left)
	if err != nil {
		return r, err
	}
	line, replaced, _ := strings.Cut(text, "\n")
	reader := json.NewDecoder(strings.NewReader(line))
	reader.DisallowUnknownFields()
	if err := reader.Decode(&r); err != nil {
		return r, err
	}
	r.replaced = replaced
	if r.Namespace != "" {
		if err := functions.CheckNamespace(r.Namespace); err != nil {
			return r, err
		}
	}
	if err := checkNumber(r.Number); err != nil {
		return r, err
	}
	if !hexText.MatchString(r.Digest) || len(r.Log) > MaxLog {
		return r, errors.New("it has another digest or log than a deployment writes")
	}
	for _, e := range r.Log {
		if err := checkNumber(e.Number); err != nil {
			return r, err
		}
		if e.AtMS < 0 || e.AtMS > MaxNumber || !hexText.MatchString(e.Digest) || e.More < 0 {
			return r, errors.New("its log has values that no deployment writes")
		}
	}
	return r, nil
}

func checkNumber(n int64) error {
	if n < 1 || n > MaxNumber {
		return fmt.Errorf("the number %d is not from 1 to %d", n, int64(MaxNumber))
	}
	return nil
}

func pack(text string) string {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestCompression)
	if err != nil {
		panic("text: cannot compress: " + err.Error()) // the level is valid
	}
	_, _ = io.WriteString(w, text) // a bytes.Buffer does not fail
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// unpack is the inverse of pack. left is how many bytes it may return; unpack subtracts their number.
func unpack(packed string, left *int) (string, error) {
	deflated, err := base64.StdEncoding.Strict().DecodeString(packed)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(deflated)), int64(*left)+1))
	if *left -= len(text); err == nil && *left < 0 {
		err = fmt.Errorf("the header has more than %d bytes when it is inflated", mostInflated)
	}
	return string(text), err
}
