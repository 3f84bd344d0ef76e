package peers_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// worse is by how much a ratio may differ from that on the page before it is reported.
const worse = 1.1

// compareWithPage prints what is worse than on the page, and does not change it. Machines differ, so a
// value of noonlock counts as a ratio to that of the reference in the same run: the first library in the
// table that is not noonlock.
func (x *bench) compareWithPage(page string) {
	said := false
	for _, r := range x.report {
		t, ok := r.(*table)
		if !ok {
			continue
		}
		committed := page
		if t.title != "" {
			_, committed, _ = strings.Cut(page, t.title+":\n")
		}
		then, now := readTable(committed), readTable(t.String())
		at := slices.IndexFunc(t.lines, func(line string) bool { return !isNoonlock(line) })
		if at < 0 {
			continue
		}
		reference := t.lines[at]
		for _, line := range t.lines {
			if !isNoonlock(line) {
				continue
			}
			for _, column := range t.columns {
				if column == "× raw" { // another column says the same
					continue
				}
				was, is := ratio(then, line, reference, column), ratio(now, line, reference, column)
				change := is / was
				if isMoreBetter(t.title + column) {
					change = was / is
				}
				if change > worse {
					said = true
					fmt.Printf("%s: %s, %s: %s times that of %s, on the page %s times\n",
						x.row, line, strings.TrimPrefix(t.title+", "+column, ", "), figure(is), reference, figure(was))
				}
			}
		}
	}
	if !said {
		fmt.Printf("%s: nothing is worse by more than a tenth\n", x.row)
	}
}

func isNoonlock(line string) bool { return strings.HasPrefix(line, "noonlock") }

// isMoreBetter reports whether a greater value of a column is better.
func isMoreBetter(column string) bool {
	return strings.HasPrefix(column, "cycles a second") || strings.Contains(column, "waited longest")
}

// ratio returns what a line has in a column, compared with another line. It is not a number if the table
// lacks one of them, or if both are 0.
func ratio(cells map[[2]string]float64, line, reference, column string) float64 {
	return cells[[2]string{line, column}] / cells[[2]string{reference, column}]
}

// readTable returns the medians of the first table of a text, by line and column.
func readTable(text string) map[[2]string]float64 {
	cells := map[[2]string]float64{}
	var columns []string
	for row := range strings.Lines(text) {
		parts := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
		switch {
		case !strings.HasPrefix(row, "|") && columns == nil:
			continue
		case !strings.HasPrefix(row, "|"):
			return cells
		case columns == nil:
			columns = parts
			continue
		}
		for i, cell := range parts[1:] {
			middle, _, _ := strings.Cut(strings.TrimSpace(cell), " ")
			if v, err := strconv.ParseFloat(strings.ReplaceAll(middle, ",", ""), 64); err == nil && i+1 < len(columns) {
				cells[[2]string{strings.TrimSpace(parts[0]), strings.TrimSpace(columns[i+1])}] = v
			}
		}
	}
	return cells
}
