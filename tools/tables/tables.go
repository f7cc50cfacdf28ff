// Package tables writes a program's results into a page of the documentation: Markdown tables between
// HTML comments, and pictures beside the page.
package tables

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ratelimit-functions/ratelimit/internal/replace"
)

// A Table is a table in a page. Text holds the Markdown lines between the lines `<!-- table: Name
// -->` and `<!-- end of the table -->`.
type Table struct{ Name, Text string }

// Fill returns the page with the given tables in their places. It returns an error if the page has
// no place for a table.
func Fill(page string, tables []Table) (string, error) {
	for _, t := range tables {
		begin, end := fmt.Sprintf("<!-- table: %s -->\n", t.Name), "<!-- end of the table -->\n"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ends := strings.Cut(rest, end)
		if !ok || !ends {
			return "", fmt.Errorf("no place for the table %q: it goes between %q and %q", t.Name, begin, end)
		}
		page = before + begin + t.Text + end + after
	}
	return page, nil
}

// Read returns the text of the named table in page.
func Read(page, name string) (string, error) {
	_, rest, _ := strings.Cut(page, fmt.Sprintf("<!-- table: %s -->\n", name))
	text, _, ok := strings.Cut(rest, "<!-- end of the table -->\n")
	if !ok {
		return "", fmt.Errorf("no table %q", name)
	}
	return text, nil
}

// Update puts the given tables into the Markdown page in file. If the page has no place for a
// table, Update does not change it.
func Update(file string, tables []Table) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	renewed, err := Fill(string(page), tables)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return replace.File(file, []byte(renewed))
}

// Write updates the named page in folder, and writes the pictures into folder. pictures maps file
// names to SVG.
func Write(folder, page string, tables []Table, pictures map[string]string) error {
	if err := Update(filepath.Join(folder, page), tables); err != nil {
		return err
	}
	for name, svg := range pictures {
		if err := replace.File(filepath.Join(folder, name), []byte(svg)); err != nil {
			return err
		}
	}
	return nil
}

// Markdown returns a table. left is the number of left-aligned columns, which come first. All other
// columns are right-aligned.
func Markdown(left int, columns []string, rows [][]string) string {
	lines := []string{row(columns), "|" + strings.Repeat("---|", left) + strings.Repeat("---:|", len(columns)-left) + "\n"}
	for _, cells := range rows {
		lines = append(lines, row(cells))
	}
	return strings.Join(lines, "")
}

func row(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
