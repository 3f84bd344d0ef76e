package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// The picture of the packages is true: every package of the library is in it, and imports
// go to a lower layer or stay in a box.
func TestImportsGoDown(t *testing.T) {
	const module = "github.com/noonlock/noonlock/"
	type place struct{ layer, room int }
	places := map[string]place{}
	for i, rooms := range layers() {
		for j, r := range rooms {
			for _, p := range r.packages {
				places[p] = place{i, j}
			}
		}
	}
	seen := 0
	for _, folder := range []string{"../..", "../../examples/lottery", "../../adapters/clientgo", "../../cmd/noonctl"} {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir = folder
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			from := strings.TrimPrefix(fields[0], module)
			at, ok := places[from]
			if !ok {
				if !apart(from) {
					t.Errorf("%s is not in the picture", from)
				}
				continue
			}
			seen++
			for _, imported := range fields[1:] {
				to, ok := places[strings.TrimPrefix(imported, module)]
				if ok && to.layer <= at.layer && to != at {
					t.Errorf("%s imports %s, which is not below it in the picture", from, imported)
				}
			}
		}
	}
	if seen != len(places) {
		t.Errorf("%d of the %d packages in the picture exist", seen, len(places))
	}
}

// apart reports whether a package is not a part of the library: it is for tests, or it is
// internal to an example.
func apart(path string) bool {
	for _, prefix := range []string{
		"docs", "test/", "examples/lottery/", "adapters/clientgo/example", "cmd/noonctl/internal/", "lockcore/lockcoretest",
		"internal/release", "internal/servers", "internal/testenv", "internal/wire/wiretest",
	} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
