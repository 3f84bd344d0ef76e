// Package docs_test compares the documentation with the code.
package docs_test

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

//go:embed readme/main.go
var readmeProgram string

//go:embed firsthour/main.go
var firstHourProgram string

// The code of each page is in the file that compiles it, as lines or as the body of a function. They are short.
func TestCodeOfPagesIsCompiled(t *testing.T) {
	t.Parallel()
	for page, c := range map[string]struct {
		compiled       string
		blocks, length int // the number of blocks, and the most lines of one
	}{
		"../README.md":  {readmeProgram, 1, 45},
		"FIRST_HOUR.md": {firstHourProgram, 1, 100},
		"OPERATIONS.md": {operationsTest, 1, 100},
		"TESTING.md":    {testingFile, 2, 100},
	} {
		text := testenv.Call(os.ReadFile(page)).Must(t)
		blocks := goCode.FindAllStringSubmatch(string(text), -1)
		testenv.Equal(t, page+": blocks of Go", len(blocks), c.blocks)
		for _, block := range blocks {
			body := "{\n" + regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSuffix(block[1], "\n"), "\t") + "\n}\n"
			if !strings.Contains(c.compiled, "\n"+block[1]) && !strings.Contains(strings.ReplaceAll(c.compiled, "\n\n", "\n\t\n"), body) {
				t.Errorf("%s shows code that is not compiled:\n%s", page, block[1])
			}
			if n := strings.Count(block[1], "\n"); n > c.length {
				t.Errorf("%s shows %d lines, want at most %d:\n%s", page, n, c.length, block[1])
			}
		}
	}
}

// Links in the documentation lead to files of this repository, and to headings in them.
func TestLinks(t *testing.T) {
	t.Parallel()
	pages := testenv.Call(filepath.Glob("*.md")).Must(t)
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../SECURITY.md", "../CHANGELOG.md", "../adapters/clientgo/README.md",
		"../charts/lottery/README.md", "../charts/noonctl/README.md", "../examples/leader/README.md", "../examples/lottery/README.md", "../examples/sidecar/README.md") {
		text := testenv.Call(os.ReadFile(page)).Must(t)
		for _, link := range linkTarget.FindAllStringSubmatch(string(text), -1) {
			if link[1] == "" {
				link[1] = link[2]
			}
			if strings.Contains(link[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link[1], err)
			} else if anchor != "" && !slices.Contains(anchors(t, target), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, link[1])
			}
		}
	}
}

// The README links to the documentation of packages and names that exist.
func TestLinksToPackages(t *testing.T) {
	t.Parallel()
	text := testenv.Call(os.ReadFile("../README.md")).Must(t)
	links := regexp.MustCompile(`https://pkg\.go\.dev/([\w./-]+)#?([\w.]*)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 10 {
		t.Errorf("the README has %d links to packages", len(links))
	}
	for _, link := range links {
		args := []string{"doc", link[1]}
		if link[2] != "" {
			args = append(args, link[2])
		}
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", link[0], err, out)
		}
	}
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)]+)\)| src(?:set)?="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notAnchor  = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchors of the headings of a page, as GitHub makes them.
func anchors(t *testing.T, page string) (all []string) {
	t.Helper()
	text := testenv.Call(os.ReadFile(page)).Must(t)
	for _, h := range heading.FindAllStringSubmatch(string(text), -1) {
		all = append(all, strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-"))
	}
	return all
}
