package tables

import (
	"os"
	"path/filepath"
	"testing"
)

func TestATableWithoutAPlace(t *testing.T) {
	page := "a\n<!-- table: x -->\nold\n<!-- end of the table -->\nb\n"
	if got, err := Fill(page, []Table{{"x", "new\n"}}); err != nil || got != "a\n<!-- table: x -->\nnew\n<!-- end of the table -->\nb\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := Read(page, "x"); err != nil || got != "old\n" {
		t.Errorf("%q, %v", got, err)
	}
	file := filepath.Join(t.TempDir(), "page.md")
	for _, page := range []string{"", "<!-- table: x -->\nno end\n"} {
		if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(page, "x"); err == nil {
			t.Errorf("a table in %q", page)
		}
		err := Update(file, []Table{{"x", "new\n"}})
		if got, readErr := os.ReadFile(file); err == nil || readErr != nil || string(got) != page {
			t.Errorf("%q became %q, %v, %v", page, got, err, readErr)
		}
	}
}

func TestMarkdown(t *testing.T) {
	got := Markdown(1, []string{"a", "b"}, [][]string{{"c", "1"}, {"", "22"}})
	if want := "| a | b |\n|---|---:|\n| c | 1 |\n|  | 22 |\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
