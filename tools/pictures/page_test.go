package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var docs = filepath.Join("..", "..", "docs")

// TestThePagesHaveThePictures checks that each picture is XML, and what the command draws, and that its page
// shows it.
func TestThePagesHaveThePictures(t *testing.T) {
	for _, p := range pictures {
		svg, err := p.draw()
		if err != nil {
			t.Errorf("%s: %v", p.file, err)
			continue
		}
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
			t.Errorf("%s: %v", p.file, err)
		}
		if shown, err := os.ReadFile(filepath.Join(docs, p.file)); err != nil || string(shown) != svg {
			t.Errorf("docs/%s is not what the command draws (%v); run make pictures, and look at it", p.file, err)
		}
		page, err := os.ReadFile(filepath.Join(docs, p.page))
		if err != nil || !strings.Contains(string(page), p.file+")") {
			t.Errorf("docs/%s does not show %s: %v", p.page, p.file, err)
		}
	}
}
