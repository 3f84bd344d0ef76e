package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// drawings maps the name of each file in docs/ to the function that draws it.
func drawings() map[string]func() string {
	return map[string]func() string{
		"lease.svg":    lease,
		"handover.svg": handover,
		"tick.svg":     tick,
		"noon.svg":     noon,
		"floors.svg":   floors,
	}
}

func main() {
	for name, draw := range drawings() {
		if err := os.WriteFile(filepath.Join("docs", name), []byte(draw()), 0o644); err != nil { //nolint:gosec // a picture that everybody may read
			fmt.Fprintln(os.Stderr, "pictures:", err)
			os.Exit(1)
		}
	}
}
