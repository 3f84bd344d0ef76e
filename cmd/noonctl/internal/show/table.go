package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/noonlock/noonlock/internal/console/overview"
)

// A Table is printed in columns that are as wide as their widest cell.
type Table struct {
	Titles []string
	rows   [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) {
	for i, text := range cells {
		cells[i] = cell(text)
	}
	t.rows = append(t.rows, cells)
}

// cell returns a text in one line. Joined errors have one line each.
func cell(text string) string { return Text(cmp.Or(strings.ReplaceAll(text, "\n", "; "), "-")) }

// Print prints the table, with its titles if titled. If the table is wider than the columns of the terminal, Print prints
// one line for each cell instead, so that nothing is cut off. With 0 columns, the width has no limit.
func (t *Table) Print(w io.Writer, indent string, columns int, titled bool) {
	lines := t.rows
	if titled {
		lines = append([][]string{t.Titles}, t.rows...)
	}
	var text strings.Builder
	aligned := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	for _, cells := range lines {
		fmt.Fprintln(aligned, indent+strings.Join(cells, "\t"))
	}
	_ = aligned.Flush() // a Builder returns no error
	wide := func(line string) bool { return utf8.RuneCountInString(line) > columns }
	if columns > 0 && slices.ContainsFunc(strings.Split(text.String(), "\n"), wide) {
		t.printRows(w, indent)
		return
	}
	fmt.Fprint(w, text.String())
}

func (t *Table) printRows(w io.Writer, indent string) {
	for _, row := range t.rows {
		fmt.Fprintf(w, "%s%s\n", indent, row[0])
		for i, text := range row[1:] {
			label := ""
			if title := t.Titles[i+1]; title != "" {
				label = strings.ToLower(title) + ": "
			}
			if text != "-" {
				fmt.Fprintf(w, "%s  %s%s\n", indent, label, text)
			}
		}
	}
}

// Description prints a line for each fact, and a table for each list.
func Description(w io.Writer, name string, now time.Time, d overview.Description, columns int) {
	lines := &Table{Titles: []string{"", ""}}
	for _, c := range append([]overview.Cell{{Label: "name", Text: name}}, d.Lines...) {
		text := c.String()
		if c.At > 0 {
			text += " (" + c.Relative(now) + ")"
		}
		if text != "" {
			lines.Add(strings.ToUpper(c.Label[:1])+c.Label[1:]+":", text)
		}
	}
	lines.Print(w, "", columns, false)
	for _, l := range d.Lists {
		if len(l.Rows) == 0 {
			continue
		}
		t := &Table{rows: make([][]string, len(l.Rows))}
		for i, title := range l.Rows[0].Cells {
			if !slices.ContainsFunc(l.Rows, func(r overview.Row) bool { return r.Cells[i].String() != "" }) {
				continue
			}
			t.Titles = append(t.Titles, strings.ToUpper(title.Label))
			for j, row := range l.Rows {
				t.rows[j] = append(t.rows[j], cell(row.Cells[i].String()))
			}
		}
		fmt.Fprintf(w, "%s:\n", l.Title)
		t.Print(w, "  ", columns, true)
	}
}
