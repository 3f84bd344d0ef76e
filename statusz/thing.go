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

	jobRow jobRow    // with the history that was last read
	read   time.Time // when that was
}

// look reads the thing, and publishes it. A temporary error leaves the item.
func (t *thing) look(ctx context.Context, a *run) {
	began := time.Now()
	row, left, err := t.row(ctx, a)
	if err != nil {
		row = map[string]any{"error": err.Error()}
	}
	t.changed = t.changed && err != nil
	row["name"] = t.name
	encoded, _ := json.Marshal(row) // of what was JSON
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
func (t *thing) row(ctx context.Context, a *run) (row map[string]any, left time.Duration, err error) {
	sent := time.Now()
	seen, err := t.kind.Read(ctx, a.client, t.name)
	if err != nil {
		return nil, 0, err
	}
	data := seen.Data()
	switch {
	case t.kind == overview.Jobs && !seen.Exists():
		t.jobRow = jobRow{}
		return map[string]any{"gone": true}, 0, nil
	case t.kind == overview.Jobs:
		a.clock(seen.Now, sent)
		if err := t.readJob(ctx, a, *seen.Job); err != nil {
			return nil, 0, err
		}
		data = t.jobRow
	case t.kind != overview.Locks && seen.Left() > 0:
		a.clock(seen.Now, sent)
	}
	text, err := json.Marshal(data)
	if err != nil {
		return nil, 0, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&row); err != nil {
		return nil, 0, err
	}
	compact(row, seen.Now)
	newest := uint64(0) // of all holders, of which a row may show only some
	for _, h := range seen.Lock.Holders {
		newest = max(newest, h.Token)
	}
	if t.kind == overview.Locks {
		row["newest"] = strconv.FormatUint(newest, 10)
	}
	if !seen.Exists() {
		row["gone"] = true
	}
	return row, seen.Left(), nil
}

const (
	mostQueued   = 20 // elements of each list
	longestError = 160
	mostEnded    = 60
	mostErrors   = 8000 // bytes of all errors of a job as JSON
)

// times are the fields that have instants.
var times = []string{"acquired", "renewed", "released", "since", "next", "last", "begun", "last_success", "paused_since", "tick", "at", "start", "end"}

// compact changes the JSON of an object as the page needs it. Instants are ms since 1970 on the server's
// clock, and so are the ends of leases. Tokens are strings, because a number of JavaScript has only 53
// bits. What changes with every read is left out, so are the rest of a long list and of an error.
func compact(object map[string]any, now time.Time) {
	ms := func(field string) time.Duration {
		n, _ := object[field].(json.Number)
		left, _ := n.Int64()
		return time.Duration(left) * time.Millisecond
	}
	if left := max(ms("ttl_ms"), ms("left_ms")); left > 0 {
		const steps = 100 * time.Millisecond // the time of the answer and the TTL are rounded
		object["ends"] = now.Add(left).Round(steps).UnixMilli()
	}
	for _, field := range []string{"now", "ttl_ms", "left_ms", "renewed"} {
		delete(object, field)
	}
	for field, value := range object {
		switch value := value.(type) {
		case map[string]any:
			if field != "metadata" { // of the program
				compact(value, now)
			}
		case []any:
			if more := len(value) - mostQueued; more > 0 && field == "attempts" {
				value = value[more:]
			} else if more > 0 && field != "ended" {
				object["more_"+field], value = more, value[:mostQueued]
			}
			for _, one := range value {
				if one, ok := one.(map[string]any); ok {
					compact(one, now)
				}
			}
			object[field] = value
		case json.Number:
			if field == "token" || field == "term" {
				object[field] = value.String()
			}
		case string:
			if at, err := time.Parse(time.RFC3339, value); err == nil && slices.Contains(times, field) {
				object[field] = max(0, at.UnixMilli())
			} else if field == "error" || field == "schedule" {
				object[field] = beginning(value)
			}
		}
	}
}

func beginning(text string) string {
	if len(text) <= longestError {
		return text
	}
	return string(bytes.ToValidUTF8([]byte(text[:longestError]), nil)) + "…"
}

// A jobRow is the JSON of a job, before it is compact.
type jobRow struct {
	singleton.Status
	Definitions int        `json:"definitions"` // that have replicas
	Ended       []endedRun `json:"ended"`       // entries of the history, newest first
}

type endedRun struct {
	Tick    int64  `json:"k"` // the key of its RunID
	Outcome string `json:"o"` // of letters
	Last    int64  `json:"l,omitempty"`
	Count   int    `json:"c,omitempty"`
	Attempt int    `json:"a,omitempty"`
	Holder  string `json:"h,omitempty"`
	Start   int64  `json:"s,omitempty"`
	Took    int64  `json:"d,omitempty"` // ms
	Error   string `json:"e,omitempty"`
}

// letters stand for the outcomes of an Entry.
var letters = map[singleton.Outcome]string{
	singleton.OutcomeSucceeded: "s", singleton.OutcomeFailed: "f", singleton.OutcomeUnknown: "u", singleton.OutcomeSkipped: "k",
}

// readJob makes the row of a job, and reads its history if that may have changed.
func (t *thing) readJob(ctx context.Context, a *run, st singleton.Status) error {
	old := t.jobRow
	st.Pending = nil // the row has their number
	now := jobRow{Status: st, Definitions: len(st.Definitions), Ended: old.Ended}
	// A run that begins and ends between two reads leaves no trace in the status, if its messages are lost.
	if t.changed || time.Since(t.read) >= readInterval || !now.LastSuccess.Equal(old.LastSuccess) || !now.Next.Equal(old.Next) || now.Schedule != old.Schedule || len(now.Open) != len(old.Open) {
		if err := t.readHistory(ctx, a, &now); err != nil {
			return err
		}
		t.read = time.Now()
	}
	t.jobRow = now
	return nil
}

func (t *thing) readHistory(ctx context.Context, a *run, row *jobRow) error {
	job, err := singleton.NewJob(a.client, t.name)
	if err != nil {
		return err
	}
	entries, err := job.Runs(ctx, mostEnded)
	if err != nil {
		return err
	}
	row.Ended = []endedRun{}
	size := 0
	for _, e := range entries {
		run := endedRun{
			Tick: e.Key(), Outcome: letters[e.Outcome], Last: max(0, e.Last.UnixMilli()), Count: e.Count, Attempt: e.Attempt,
			Holder: e.Holder, Start: max(0, e.Start.UnixMilli()), Error: beginning(e.Error),
		}
		encoded, _ := json.Marshal(run.Error) // a string has no errors
		if size += len(encoded); size > mostErrors && run.Error != "" {
			run.Error = "…" // the history has it; newer entries are more important
		}
		if !e.Start.IsZero() && !e.End.IsZero() {
			run.Took = e.End.Sub(e.Start).Milliseconds()
		}
		row.Ended = append(row.Ended, run)
	}
	return nil
}
