package main

import (
	"os"
	"strings"
	"testing"
)

// TestThePage checks that the table and the picture of docs/sharing.md are the command's output.
func TestThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sharing.md")
	if err != nil {
		t.Fatal(err)
	}
	table, err := run()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/sharing.md does not have this table; read whether the text around it still holds:\n%s", table)
	}
	picture, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := os.ReadFile("../../docs/" + file); err != nil || string(shown) != picture || !strings.Contains(string(page), "]("+file+")") {
		t.Errorf("docs/sharing.md does not show what the command draws (%v); run go run ./tools/sharing, and read whether the text around it still holds", err)
	}
}
