//go:build linux

package operations

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A page is docs/OPERATIONS.md.
type page struct {
	mu     sync.Mutex
	places map[string]*place
}

// A place is a row of a table, named by its first cell, or the rest of a section, named by its
// heading.
type place struct {
	text  string
	taken map[int]bool // the code spans that a test takes, by their index in text
}

var (
	goCode = regexp.MustCompile("(?s)```go.*?```") // ../../docs/operations_test.go compiles it
	code   = regexp.MustCompile("`[^`]+`")
	name   = regexp.MustCompile(`\b(?:noonlock|leader_election)_\w+`)

	// an operator runs, opens or deletes this
	instruction = regexp.MustCompile(`^(?:noonctl |lottery |SET |DEL |HDEL |UPDATE |kubectl|helm |scripts/|make |NOONLOCK_\w+=|--|[?]|/|noonlock:)`)
)

func readPage(t *testing.T) *page {
	t.Helper()
	text := testenv.Call(os.ReadFile("../../docs/OPERATIONS.md")).Must(t)
	p := &page{places: map[string]*place{}}
	section, fenced := "", false
	for line := range strings.Lines(goCode.ReplaceAllString(string(text), "")) {
		where := section
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
			continue
		}
		if fenced || strings.HasPrefix(line, "    ") { // each line of a block is a code span
			line = "`" + strings.TrimSpace(line) + "`"
		}
		if heading, ok := strings.CutPrefix(line, "#"); ok {
			section = strings.Trim(heading, "# \n")
			continue
		}
		if row, ok := strings.CutPrefix(line, "| "); ok {
			where, _, _ = strings.Cut(row, " |")
		}
		if p.places[where] == nil {
			p.places[where] = &place{taken: map[int]bool{}}
		}
		p.places[where].text += strings.TrimSpace(line) + " "
	}
	return p
}

// take returns the code spans in words of the page, which must be there once. They count as tested.
func (p *page) take(t testing.TB, where, words string) (spans []string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.places[where]
	if !ok {
		t.Fatalf("OPERATIONS.md has no row or section %q", where)
	}
	if n := strings.Count(at.text, words); n != 1 {
		t.Fatalf("OPERATIONS.md, %s: it has these words %d times:\n%s", where, n, words)
	}
	begin := strings.Index(at.text, words)
	for _, found := range code.FindAllStringIndex(at.text, -1) {
		if begin <= found[0] && found[1] <= begin+len(words) {
			at.taken[found[0]] = true
			spans = append(spans, at.text[found[0]+1:found[1]-1])
		}
	}
	if len(spans) == 0 {
		t.Fatalf("OPERATIONS.md, %s: there is no code in\n%s", where, words)
	}
	return spans
}

// requireAll asserts that tests have taken all instructions, or that these are commands and flags that exist: the
// tests of cmd/noonctl and of the lottery prove what they do. The metrics must be those of METRICS.md.
func (p *page) requireAll(t *testing.T, bin string) {
	t.Helper()
	metrics := testenv.Call(os.ReadFile("../../docs/METRICS.md")).Must(t)
	flags := testenv.Call(os.ReadFile("../../docs/NOONCTL.md")).Must(t)
	for where, at := range p.places {
		for _, found := range code.FindAllStringIndex(at.text, -1) {
			span := strings.Trim(at.text[found[0]:found[1]], "`")
			if at.taken[found[0]] {
				continue
			}
			for _, metric := range name.FindAllString(span, -1) {
				if !strings.Contains(string(metrics), "| `"+metric+"` |") {
					t.Errorf("OPERATIONS.md, %s: there is no %s", where, metric)
				}
			}
			if !instruction.MatchString(span) {
				continue
			}
			words := strings.Fields(span)
			options := slices.IndexFunc(append(words, "-"), func(word string) bool { return strings.HasPrefix(word, "-") })
			help := string(flags)
			if words[0] == "noonctl" || words[0] == "lottery" {
				out, err := exec.CommandContext(t.Context(), filepath.Join(bin, words[0]), append(slices.Clone(words[1:options]), "--help")...).CombinedOutput()
				if help = string(out); err != nil {
					t.Errorf("OPERATIONS.md, %s: %s: %v\n%s", where, span, err, out)
				}
			} else if !strings.HasPrefix(span, "--") {
				t.Errorf("OPERATIONS.md, %s: no test takes %s", where, span)
			}
			for _, word := range words[options:] {
				if strings.HasPrefix(word, "-") && !strings.Contains(help, word) {
					t.Errorf("OPERATIONS.md, %s: %s has no flag %s", where, span, word)
				}
			}
		}
	}
}
