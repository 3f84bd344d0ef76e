package main

import (
	"os"
	"testing"
)

func TestTheManualIsCurrent(t *testing.T) {
	t.Parallel()
	committed, err := os.ReadFile("../../../../docs/NOONCTL.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(committed) != page() {
		t.Error(`docs/NOONCTL.md is out of date; run "go run ./cmd/noonctl/internal/manual > docs/NOONCTL.md"`)
	}
}
