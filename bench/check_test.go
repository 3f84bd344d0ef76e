package bench_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// compareWithPage prints what is worse than on the page by more than a tenth. Machines differ, so a value
// of noonlock counts as a ratio to the first library in the same table that is not noonlock.
func (x *bench) compareWithPage(page string) {
	for _, t := range x.report {
		_, committed, _ := strings.Cut(page, t.heading)
		then, now := readTable(committed), readTable(t.String())
		at := slices.IndexFunc(t.lines, func(line string) bool { return !strings.HasPrefix(line, "noonlock") })
		if at < 0 {
			continue
		}
		reference := t.lines[at]
		for _, line := range t.lines {
			for _, column := range t.columns {
				if !strings.HasPrefix(line, "noonlock") || column == "× raw" { // another column says the same
					continue
				}
				of, to := [2]string{line, column}, [2]string{reference, column}
				was, is := then[of]/then[to], now[of]/now[to] // no number if the table lacks one, or both are 0
				change := is / was
				if more := t.title + column; strings.HasPrefix(more, "Cycles") || column == "cycles a second" || strings.Contains(more, "waited longest") {
					change = was / is // a greater value is better
				}
				if change > 1.1 {
					fmt.Printf("%s: %s, %s: %s times that of %s, on the page %s times\n",
						x.row, line, strings.TrimPrefix(t.title+", "+column, ", "), figure(is), reference, figure(was))
				}
			}
		}
	}
}

// readTable returns the medians of the first table of a text, by line and column.
func readTable(text string) map[[2]string]float64 {
	cells := map[[2]string]float64{}
	at := strings.Index(text, "| ")
	if at < 0 {
		return cells
	}
	text, _, _ = strings.Cut(text[at:], "\n\n")
	rows := strings.Split(text, "\n")
	columns := strings.Split(rows[0], " | ")
	for _, row := range rows[1:] {
		parts := strings.Split(row, " | ")
		for i, cell := range parts {
			middle, _, _ := strings.Cut(cell, " ")
			if v, err := strconv.ParseFloat(strings.ReplaceAll(middle, ",", ""), 64); err == nil && i < len(columns) {
				cells[[2]string{strings.Trim(parts[0], "| "), strings.Trim(columns[i], "| ")}] = v
			}
		}
	}
	return cells
}
