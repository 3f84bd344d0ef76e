package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommittedPicturesMatchTheirDrawings(t *testing.T) {
	for name, draw := range drawings() {
		committed, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(committed) != draw() {
			t.Errorf(`docs/%s is out of date; run "go run ./docs/pictures"`, name)
		}
	}
}
