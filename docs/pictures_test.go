package docs_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// An element is one of a picture's.
type element struct {
	Class    string `xml:"class,attr"`
	Packages string `xml:"data-packages,attr"`
}

// The picture of the packages is true: every package of the library is in it, and imports
// go to a lower layer or stay in a box.
func TestImportsGoDown(t *testing.T) {
	const module = "github.com/noonlock/noonlock/"
	type place struct{ layer, room int }
	places, at := map[string]place{}, place{}
	var picture struct {
		Elements []element `xml:",any"`
	}
	testenv.Must(t, xml.Unmarshal(testenv.Call(os.ReadFile("floors.svg")).Must(t), &picture))
	for _, e := range picture.Elements {
		switch e.Class {
		case "axis":
			at.layer++
		case "box":
			at.room++
			for p := range strings.FieldsSeq(e.Packages) {
				places[p] = at
			}
		}
	}
	seen := 0
	for _, folder := range []string{"..", "../examples/lottery", "../adapters/clientgo", "../cmd/noonctl"} {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir = folder
		cmd.Stderr = os.Stderr
		out := testenv.Call(cmd.Output()).Must(t)
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
	testenv.Equal(t, "packages of the picture that exist", seen, len(places))
}

// apart reports whether a package is not a part of the library: it is for tests, or it is
// internal to an example.
func apart(path string) bool {
	for _, prefix := range []string{
		"docs", "test/", "examples/internal/", "examples/lottery/", "adapters/clientgo/example", "cmd/noonctl/internal/", "lockcore/lockcoretest",
		"internal/build/release", "internal/testing/servers", "internal/testing/testenv",
	} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
