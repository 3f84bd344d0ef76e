package bench_test

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// A table has a sample for each repetition in each cell. Lines and columns keep the order in
// which they were added.
type table struct {
	title, heading string
	of             string // what a line is
	lines, columns []string
	cells          map[[2]string][]float64
}

// table adds a table to the report.
func (x *bench) table(title, of string) *table {
	t := &table{title: title, of: of, cells: map[[2]string][]float64{}}
	if title != "" {
		t.heading = title + ":\n\n"
	}
	x.report = append(x.report, t)
	return t
}

// add adds a sample, if it is a number.
func (t *table) add(line, column string, value float64) {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return
	}
	for all, one := range map[*[]string]string{&t.lines: line, &t.columns: column} {
		if !slices.Contains(*all, one) {
			*all = append(*all, one)
		}
	}
	at := [2]string{line, column}
	t.cells[at] = append(t.cells[at], value)
}

func (t *table) String() string {
	var s strings.Builder
	s.WriteString(t.heading)
	fmt.Fprintf(&s, "| %s | %s |\n|%s\n", t.of, strings.Join(t.columns, " | "), strings.Repeat(" --- |", len(t.columns)+1))
	for _, line := range t.lines {
		fmt.Fprintf(&s, "| %s |", line)
		for _, column := range t.columns {
			fmt.Fprintf(&s, " %s |", spread(t.cells[[2]string{line, column}]))
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// spread returns the median, and the smallest and the largest sample if they differ from it.
func spread(samples []float64) string {
	if len(samples) == 0 {
		return "—"
	}
	middle := figure(median(samples)) // sorts
	least, most := figure(samples[0]), figure(samples[len(samples)-1])
	if least == middle && most == middle {
		return middle
	}
	return fmt.Sprintf("%s (%s–%s)", middle, least, most)
}

// figure prints three digits, and all digits before the point.
func figure(v float64) string {
	if v >= 1000 {
		s := strconv.FormatFloat(v, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	}
	digits := 2
	for limit := 1.0; limit <= 100 && v >= 10*limit; limit *= 10 {
		digits--
	}
	s := strconv.FormatFloat(v, 'f', max(digits, 0), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// write replaces the part of the page between the markers of the row, or compares with it.
func (x *bench) write() {
	x.b.Helper()
	begin, end := "<!-- make bench: "+x.row+" -->\n", "<!-- end of "+x.row+" -->"
	page, err := os.ReadFile(*pagePath)
	x.check(err)
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		x.b.Fatalf("%s has no lines %q and %q", *pagePath, begin, end)
	}
	if *compareOnly {
		x.compareWithPage(strings.TrimSuffix(rest, after))
		return
	}
	var parts []string
	for _, r := range x.report {
		parts = append(parts, r.String())
		x.b.Log("\n" + r.String())
	}
	how := fmt.Sprintf("%s, %d processors; repetitions: %d, seconds: %v.", strings.Join(x.with, ", "), runtime.NumCPU(), *repetitions, *seconds)
	text := before + begin + strings.Join(parts, "\n") + "\n" + how + "\n" + end + after
	x.check(os.WriteFile(*pagePath, []byte(text), 0o644)) //nolint:gosec // a page that everybody may read
}
