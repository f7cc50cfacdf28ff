package main

import (
	"os"
	"strings"
	"testing"
)

// TestThePageHasTheTable checks that the table of docs/sharing.md is the command's output.
func TestThePageHasTheTable(t *testing.T) {
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
}
