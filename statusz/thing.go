package statusz

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An item is a thing as JSON. It does not change.
type item struct{ json []byte }

// A thing is an election, a job or a lock that a browser shows. One look reads it at a time.
type thing struct {
	key
	next    time.Time          // when to read it again
	news    func() bool        // of Watch
	stop    context.CancelFunc // ends that
	changed bool               // it had news, and was not read since

	status singleton.Status // of a job, when its history was last read
	ended  []square         // of its history, the oldest first
	read   time.Time        // time of that read
}

// A row is what the page shows of a thing in a list.
type row struct {
	Name  string          `json:"name"`
	Error string          `json:"error,omitempty"` // why it could not be read
	Gone  bool            `json:"gone,omitempty"`
	Verbs []string        `json:"verbs,omitempty"` // actions that can do something
	Token string          `json:"token,omitempty"` // a number of JavaScript has only 53 bits
	Lines []overview.Cell `json:"lines,omitempty"`
	Lists []overview.List `json:"lists,omitempty"`
	Runs  []square        `json:"runs,omitempty"` // of a job, the oldest first
}

// A square is an overview.Row of a run with its cells in one text.
type square struct {
	Key   int64  `json:"k"`
	Class string `json:"c"`
	Verb  string `json:"verb,omitempty"`
	Text  string `json:"t"`
}

// look reads the thing, and publishes it. A temporary error leaves the item.
func (t *thing) look(ctx context.Context, a *run) {
	began := time.Now()
	row, left, err := t.row(ctx, a)
	if err != nil {
		row.Error = err.Error()
	}
	t.changed = t.changed && err != nil
	row.Name = t.name
	encoded, _ := json.Marshal(row) // it has no type that JSON lacks
	interval := readInterval
	switch {
	case t.kind == overview.Locks:
		interval = lockInterval
	case left > 0: // the holder may die without a message
		interval = min(interval, left)
	}
	t.next = time.Now().Add(interval)
	a.update(func() (visible bool) {
		visible = err != nil || a.failed[t.key].err != nil
		a.note(t.key, err, began)
		old := a.items[t.key]
		temporary := err != nil && (ctx.Err() != nil || lockcore.IsTemporary(err))
		if !temporary && (old == nil || !bytes.Equal(old.json, encoded)) {
			a.items[t.key] = &item{encoded}
			return true
		}
		return visible
	})
}

// row returns what the page shows of the thing, and how long the lease of its holder lasts unless it is renewed.
func (t *thing) row(ctx context.Context, a *run) (r row, left time.Duration, err error) {
	sent := time.Now()
	seen, err := t.kind.Read(ctx, a.client, t.name)
	if err != nil {
		return r, 0, err
	}
	if !seen.Exists() {
		t.read = time.Time{}
		return row{Gone: true}, 0, nil
	}
	if left = seen.Left(); t.kind == overview.Jobs || t.kind == overview.Elections && left > 0 {
		a.clock(seen.Now, sent)
	}
	all := seen.Describe()
	r = row{Verbs: seen.Verbs(), Token: strconv.FormatUint(seen.Token(), 10), Lines: brief(all.Lines), Lists: all.Lists}
	switch t.kind {
	case overview.Jobs:
		if r.Runs, err = t.squares(ctx, a, *seen.Job); err != nil {
			return row{}, 0, err
		}
	case overview.Partitions:
		r.Lists = r.Lists[:1] // the shares
	default:
	}
	r.Lists = slices.DeleteFunc(r.Lists, func(l overview.List) bool { return len(l.Rows) == 0 })
	for i, l := range r.Lists {
		if l.More = max(0, len(l.Rows)-mostListed); l.More > 0 {
			l.Rows = l.Rows[:mostListed]
		}
		for j, one := range l.Rows {
			l.Rows[j].Cells = brief(one.Cells)
		}
		r.Lists[i] = l
	}
	return r, left, nil
}

const (
	mostListed   = 20 // rows of each list
	longestError = 160
	mostRuns     = 60
)

// brief returns the cells that apply, and the beginnings of errors and schedules.
func brief(cells []overview.Cell) (all []overview.Cell) {
	for _, c := range cells {
		if c.Label == "error" || c.Label == "schedule" {
			c.Text = beginning(c.Text)
		}
		if c.String() != "" {
			all = append(all, c)
		}
	}
	return all
}

func beginning(text string) string {
	if len(text) <= longestError {
		return text
	}
	return string(bytes.ToValidUTF8([]byte(text[:longestError]), nil)) + "…"
}

// squares returns those of the history, which it reads if that may have changed, and of the open runs.
func (t *thing) squares(ctx context.Context, a *run, st singleton.Status) (all []square, err error) {
	old := t.status
	// A run that begins and ends between two reads leaves no trace in the status, if its messages are lost.
	if t.changed || time.Since(t.read) >= readInterval || !st.LastSuccess.Equal(old.LastSuccess) || !st.Next.Equal(old.Next) ||
		st.Schedule != old.Schedule || len(st.Open) != len(old.Open) {
		job, err := singleton.NewJob(a.client, t.name)
		if err != nil {
			return nil, err
		}
		entries, err := job.Runs(ctx, mostRuns)
		if err != nil {
			return nil, err
		}
		slices.Reverse(entries)
		t.ended = squaresOf(overview.Runs(entries))
		t.status, t.read = st, time.Now()
	}
	all = append(slices.Clone(t.ended), squaresOf(overview.OpenRuns(st.Open))...)
	return all[max(0, len(all)-mostRuns):], nil
}

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
