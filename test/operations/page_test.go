//go:build linux

package operations

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A page is docs/OPERATIONS.md.
type page struct {
	mu     sync.Mutex
	places map[string]*place
	series map[string]bool // which a replica has exported, as name{label="value"}
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
	name   = regexp.MustCompile(`\b(?:noonlock|leader_election)_\w+(?:\{[^}]*\})?`)

	// an operator runs, opens or deletes this
	instruction = regexp.MustCompile("^`(?:noonctl |lottery |SET |DEL |HDEL |UPDATE |kubectl|helm |scripts/|make |NOONLOCK_\\w+=|--|[?]|/|noonlock:)")
)

func readPage(t *testing.T) *page {
	t.Helper()
	text := testenv.Call(os.ReadFile("../../docs/OPERATIONS.md")).Must(t)
	p := &page{places: map[string]*place{}, series: map[string]bool{}}
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

// exports records what a replica exports.
func (p *page) exports(metrics string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(metrics) {
		if found := name.FindString(line); found != "" && !strings.HasPrefix(line, "#") {
			p.series[found] = true
		}
	}
}

// exported reports whether a replica has exported the metric with these labels.
func (p *page) exported(metric string) bool {
	metric, labels, _ := strings.Cut(strings.TrimSuffix(metric, "}"), "{")
	for series := range p.series {
		own, has, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		for _, suffix := range []string{"", "_count"} { // of a histogram
			if own == metric+suffix && strings.Contains(","+has+",", labels) {
				return true
			}
		}
	}
	return false
}

// requireAll asserts that tests have taken all instructions, and that replicas have exported all
// metrics.
func (p *page) requireAll(t *testing.T) {
	t.Helper()
	for where, at := range p.places {
		for _, found := range code.FindAllStringIndex(at.text, -1) {
			span := at.text[found[0]:found[1]]
			if at.taken[found[0]] {
				continue
			}
			if instruction.MatchString(span) {
				t.Errorf("OPERATIONS.md, %s: no test takes %s", where, span)
				continue
			}
			for _, metric := range name.FindAllString(span, -1) {
				if !p.exported(metric) {
					t.Errorf("OPERATIONS.md, %s: no replica exports %s", where, metric)
				}
			}
		}
	}
}
