package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // for build-output and build-fail, instead of Package
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
	Key, Value  string // for attr
}

// report is the state of a test run.
type report struct {
	out   io.Writer
	now   func() time.Time
	begun time.Time
	said  time.Time // when the last line was printed

	packages map[string]*suite           // packages that are running
	builds   map[string]*strings.Builder // output of builds, by import path

	passed, failed int
	failures       []string // one line each, and an excerpt of the test's output
	skips          []string // one line each
	reasons        []string // of the skips
	counted        []string // one line each
}

// suite is a run of one package's tests.
type suite struct {
	begun          time.Time
	tests          map[string]*test
	order          []string        // of the tests
	other          strings.Builder // output outside of tests
	passed, failed int
	skipped        int
}

// test is a test or a subtest.
type test struct {
	begun  time.Time
	result string // "" while it runs, else pass, fail or skip
	output strings.Builder
}

func newReport(out io.Writer, now func() time.Time) *report {
	return &report{
		out: out, now: now, begun: now(), said: now(),
		packages: make(map[string]*suite), builds: make(map[string]*strings.Builder),
	}
}

func (r *report) print(format string, args ...any) {
	fmt.Fprintf(r.out, format, args...)
	r.said = r.now()
}

func (r *report) add(e event) {
	if e.ImportPath != "" { // an event of a build
		b := r.builds[e.ImportPath]
		if b == nil {
			b = new(strings.Builder)
			r.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
		return
	}
	s := r.packages[e.Package]
	if s == nil {
		s = &suite{begun: r.now(), tests: make(map[string]*test)}
		r.packages[e.Package] = s
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			s.other.WriteString(e.Output)
		case "pass", "fail", "skip":
			r.end(e, s)
			delete(r.packages, e.Package)
		}
		return
	}
	t := s.tests[e.Test]
	if t == nil {
		t = &test{begun: r.now()}
		s.tests[e.Test] = t
		s.order = append(s.order, e.Test)
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "attr":
		if e.Key == "counted" {
			r.counted = append(r.counted, e.Test+": "+e.Value)
		}
	case "pass", "fail", "skip":
		t.result = e.Action
	}
}

// end counts the tests of a package that has ended. It prints the output of its failed
// tests, and then the package's line.
func (r *report) end(e event, s *suite) {
	name := short(e.Package)
	for _, path := range s.order {
		t := s.tests[path]
		result := t.result
		if result == "" {
			result = "fail" // the process ended while the test was running
		}
		if s.covered(path, result) {
			continue
		}
		switch result {
		case "pass":
			s.passed++
		case "skip":
			s.skipped++
			why := reason(t.output.String())
			r.reasons = append(r.reasons, why)
			r.skips = append(r.skips, fmt.Sprintf("%s: %s: %s", name, path, why))
		case "fail":
			s.failed++
			r.failures = append(r.failures, name+": "+path+excerpt(t.output.String()))
		}
	}
	if e.Action == "fail" && s.failed == 0 {
		s.failed = 1
		what := "failed outside of its tests"
		if e.FailedBuild != "" {
			what = "does not build"
		}
		r.failures = append(r.failures, name+": "+what)
	}
	if e.Action == "fail" || s.failed > 0 {
		r.printFailed(e, s)
	}
	r.passed += s.passed
	r.failed += s.failed
	if len(s.tests) == 0 && e.Action != "fail" {
		return // it has no tests
	}
	verdict := "ok  "
	if s.failed > 0 {
		verdict = "FAIL"
	}
	r.print("%s %-44s %8s  %s\n", verdict, name, seconds(time.Duration(e.Elapsed*float64(time.Second))), counts(s.passed, s.failed, s.skipped))
}

// covered reports whether the test's result is already counted by its subtests.
func (s *suite) covered(path, result string) bool {
	prefix := path + "/"
	for other, t := range s.tests {
		if strings.HasPrefix(other, prefix) && (result == "pass" || t.result == result || result == "fail" && t.result == "") {
			return true
		}
	}
	return false
}

func (r *report) printFailed(e event, s *suite) {
	r.print("\n")
	if b := r.builds[e.FailedBuild]; b != nil {
		r.print("%s", b)
	}
	for _, path := range s.order {
		if t := s.tests[path]; t.result == "fail" || t.result == "" {
			r.print("%s", progress.ReplaceAllString(t.output.String(), ""))
		}
	}
	r.print("%s\n", &s.other)
}

// excerpt returns the first and the last lines of a failed test's output, indented. Whoever sees
// only the end of a report has the reason of a failure there.
func excerpt(output string) string {
	const each = 8
	lines := strings.Split(strings.TrimSuffix(progress.ReplaceAllString(output, ""), "\n"), "\n")
	if len(lines) > 2*each {
		lines = slices.Concat(lines[:each], []string{"..."}, lines[len(lines)-each:])
	}
	var text strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&text, "\n    %.300s", line)
	}
	return text.String()
}

// progress matches the lines that the testing package prints about a test that runs.
var progress = regexp.MustCompile(`(?m)^=== (RUN|PAUSE|CONT|NAME|ATTR) .*\n`)

// stillRunning prints the tests that have been running for longest if nothing was printed
// for a while.
func (r *report) stillRunning() {
	now := r.now()
	if now.Sub(r.said) < silence {
		return
	}
	names := slices.SortedFunc(maps.Keys(r.packages), func(a, b string) int {
		return cmp.Or(r.packages[a].begun.Compare(r.packages[b].begun), cmp.Compare(a, b))
	})
	if len(names) == 0 {
		r.print("...  building, for %s\n", seconds(now.Sub(r.begun)))
		return
	}
	for _, name := range names {
		s := r.packages[name]
		line := ""
		for _, path := range s.order {
			if s.tests[path].result == "" { // the innermost of the tests that began first
				if line == "" || strings.HasPrefix(path, line+"/") {
					line = path
				}
			}
		}
		r.print("...  %-44s %8s  %s\n", short(name), seconds(now.Sub(s.begun)), line)
	}
}

// finish prints the summary and returns its last two lines: how long the tests took and why
// tests were skipped, and the counts.
func (r *report) finish() string {
	for _, name := range slices.Sorted(maps.Keys(r.packages)) { // go test was killed
		r.end(event{Action: "fail", Package: name, Elapsed: r.now().Sub(r.packages[name].begun).Seconds()}, r.packages[name])
	}
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		r.print("\n%s:\n", title)
		for _, line := range lines {
			r.print("  %s\n", line)
		}
	}
	slices.Sort(r.skips)
	list("Counted by the tests", r.counted)
	list("Skipped", slices.Compact(r.skips))
	list("Failed", r.failures)
	closing := fmt.Sprintf("All tests took %s; %s\n%s\n", seconds(r.now().Sub(r.begun)), r.whySkipped(), counts(r.passed, r.failed, len(r.skips)))
	r.print("\n%s", closing)
	return closing
}

// whySkipped returns the reasons of the skipped tests, the most frequent one first.
func (r *report) whySkipped() string {
	tests := make(map[string]int)
	for _, why := range r.reasons {
		tests[why]++
	}
	all := slices.SortedFunc(maps.Keys(tests), func(a, b string) int {
		return cmp.Or(tests[b]-tests[a], cmp.Compare(a, b))
	})
	for i, why := range all {
		all[i] = fmt.Sprintf("%d skipped: %s", tests[why], why)
	}
	if len(all) == 0 {
		return "none was skipped"
	}
	return strings.Join(all, "; ")
}

func counts(passed, failed, skipped int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

func seconds(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// short removes the module's path.
func short(path string) string {
	const module = "github.com/noonlock/noonlock"
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// location matches the file and line that the testing package puts before a message.
var location = regexp.MustCompile(`^\s+[\w.-]+\.go:\d+: `)

// reason returns the last message that a skipped test logged.
func reason(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		switch at := location.FindString(line); {
		case at != "":
			lines = []string{strings.TrimSpace(line[len(at):])}
		case strings.HasPrefix(strings.TrimSpace(line), "--- SKIP"), len(lines) == 0:
		case strings.HasPrefix(line, "        "):
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return cmp.Or(strings.Join(lines, " "), "no reason given")
}
