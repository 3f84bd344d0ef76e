package docs_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// An element is one of a picture's.
type element struct {
	name, text string
	attributes map[string]string
}

// elements returns those of a picture in docs, and fails if it is not well-formed.
func elements(t *testing.T, file string) (all []*element) {
	t.Helper()
	f := testenv.Call(os.Open(file)).Must(t)
	defer f.Close()
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local, attributes: map[string]string{}}
			for _, a := range token.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			if len(all) > 0 {
				all[len(all)-1].text += string(token)
			}
		}
	}
}

// The pictures are written by hand, except chaos.svg, which TestAgain of test/chaos draws. They have one style, which has a palette for dark pages, and a
// title for readers who see no pictures. On a phone, a picture is scaled to some 360 pixels: its text
// must be large enough there.
func TestPictures(t *testing.T) {
	files, err := filepath.Glob("*.svg")
	if err != nil || len(files) < 5 {
		t.Fatalf("there are %d pictures: %v", len(files), err)
	}
	style := ""
	for _, file := range files {
		all := elements(t, file)
		whole := all[0].attributes
		if whole["width"] != "480" || whole["viewBox"] != "0 0 480 "+whole["height"] || whole["role"] != "img" {
			t.Errorf("%s: its size is %v", file, whole)
		}
		height, err := strconv.Atoi(whole["height"])
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		title := ""
		for _, e := range all {
			switch e.name {
			case "title":
				title = strings.TrimSpace(e.text)
			case "style":
				if style == "" {
					style = e.text
				}
				if e.text != style || !strings.Contains(style, "prefers-color-scheme: dark") {
					t.Errorf("%s: its style is not that of %s, with a dark palette", file, files[0])
				}
			case "text", "rect":
				x, errX := strconv.Atoi(e.attributes["x"])
				y, errY := strconv.Atoi(e.attributes["y"])
				if e.attributes["class"] != "page" && (errX != nil || errY != nil || x < 0 || x > 480 || y < 0 || y > height) {
					t.Errorf("%s: %v is outside", file, e.attributes)
				}
			}
		}
		if len(title) < 20 || title != whole["aria-label"] {
			t.Errorf("%s: its title is %q, and its label %q", file, title, whole["aria-label"])
		}
	}
}

// The picture of the packages is true: every package of the library is in it, and imports
// go to a lower layer or stay in a box.
func TestImportsGoDown(t *testing.T) {
	const module = "github.com/noonlock/noonlock/"
	type place struct{ layer, room int }
	places, at := map[string]place{}, place{}
	for _, e := range elements(t, "floors.svg") {
		switch e.attributes["class"] {
		case "axis":
			at.layer++
		case "box":
			at.room++
			for p := range strings.FieldsSeq(e.attributes["data-packages"]) {
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
