package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestThePageHasThePicture checks that the picture of docs/budgets.md is the command's output.
func TestThePageHasThePicture(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, "budgets.md"))
	if err != nil || !strings.Contains(string(page), "]("+file+")") {
		t.Errorf("docs/budgets.md does not show %s: %v", file, err)
	}
	picture, err := draw()
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := os.ReadFile(filepath.Join(docs, file)); err != nil || string(shown) != picture {
		t.Errorf("docs/%s is not what the command draws (%v); run make budgets, and read whether the text around it still holds", file, err)
	}
}
