package statusz

import (
	"bytes"
	"strconv"

	"github.com/noonlock/noonlock/internal/console/overview"
)

// A row is a thing in a list of the page.
type row struct {
	Name  string          `json:"name"`
	Error string          `json:"error,omitempty"` // why the last read failed
	Gone  bool            `json:"gone,omitempty"`  // the thing does not exist
	Verbs []string        `json:"verbs,omitempty"` // see overview.Thing.Verbs
	Token string          `json:"token,omitempty"` // a text, since JavaScript rounds numbers above 2^53
	Lines []overview.Cell `json:"lines,omitempty"`
	Lists []overview.List `json:"lists,omitempty"`
	Runs  []square        `json:"runs,omitempty"` // runs of a job, the oldest first
}

// A square is a run of a job: an overview.Row with its cells in one text.
type square struct {
	Key   int64  `json:"k"`
	Class string `json:"c"`
	Verb  string `json:"verb,omitempty"`
	Text  string `json:"t"`
}

func rowOf(t overview.Thing) row {
	description := t.Describe()
	r := row{Verbs: t.Verbs(), Token: strconv.FormatUint(t.Token(), 10), Lines: brief(description.Lines)}
	if t.Kind == overview.Partitions {
		description.Lists = description.Lists[:1] // the list of replicas, without the list of partitions
	}
	for _, l := range description.Lists {
		if len(l.Rows) == 0 {
			continue
		}
		if l.More = max(0, len(l.Rows)-maxRows); l.More > 0 {
			l.Rows = l.Rows[:maxRows]
		}
		for i, r := range l.Rows {
			l.Rows[i].Cells = brief(r.Cells)
		}
		r.Lists = append(r.Lists, l)
	}
	return r
}

const (
	maxRows = 20  // rows of each list
	maxText = 160 // bytes of an error or a schedule
	maxRuns = 60  // squares of a job
)

// brief returns the cells that apply, with shortened errors and schedules.
func brief(cells []overview.Cell) (all []overview.Cell) {
	for _, c := range cells {
		if c.Label == "error" || c.Label == "schedule" {
			c.Text = shorten(c.Text)
		}
		if c.String() != "" {
			all = append(all, c)
		}
	}
	return all
}

func shorten(text string) string {
	if len(text) <= maxText {
		return text
	}
	return string(bytes.ToValidUTF8([]byte(text[:maxText]), nil)) + "…"
}

// squaresOf returns the rows of a list as squares. The text of a square begins with the first two cells.
func squaresOf(l overview.List) (all []square) {
	for _, r := range l.Rows {
		text := ""
		for i, c := range brief(r.Cells) {
			switch {
			case c.Label == "token":
			case i == 0:
				text = c.Text
			case i == 1:
				text += ": " + c.Text
			default:
				text += "\n" + c.Label + " " + c.String()
			}
		}
		all = append(all, square{r.Key, r.Class, r.Verb, text})
	}
	return all
}
