package statusz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// An item is a thing as JSON. It does not change.
type item struct{ json []byte }

// A thing is an election, a job, a daemon or a lock that a browser shows. One look reads it at
// a time.
type thing struct {
	key
	next    time.Time   // when to read it again
	changed atomic.Bool // a message says that the job has changed
	stop    func()      // of Watch; nil: not watched
	last    *item       // the newest one
	fresh   *item       // as last, if the look has not published it yet
	ahead   *time.Duration

	election *election.Election
	job      *singleton.Job
	jobRow   jobRow    // with the history that was last read
	history  time.Time // when that was
	ends     []int64
}

// forget ends what belongs to a thing that is not shown any more.
func (t *thing) forget() {
	if t.stop != nil {
		t.stop()
		t.stop = nil
	}
}

// read reads the thing. The error is temporary; another one is a part of the item.
func (t *thing) read(ctx context.Context, client *lockcore.Client, ahead time.Duration) error {
	changed := t.changed.Swap(false)
	var row any
	var err error
	interval := lockInterval
	switch t.kind {
	case overview.Elections:
		row, err = t.readElection(ctx, client, ahead)
		interval = 0
	case overview.Jobs:
		row, interval, err = t.readJob(ctx, client, ahead, changed)
	default:
		row, err = t.readLock(ctx, client, t.kind.LockOf(t.name), ahead)
	}
	if err != nil && (ctx.Err() != nil || lockcore.IsTemporary(err)) {
		if changed {
			t.changed.Store(true)
		}
		return err
	}
	if err != nil {
		row, interval = errorRow{Name: t.name, Error: err.Error()}, jobInterval
	}
	encoded, err := json.Marshal(row)
	if err != nil {
		return err
	}
	t.next = time.Now().Add(interval)
	if t.last == nil || !bytes.Equal(t.last.json, encoded) {
		t.last = &item{encoded}
		t.fresh = t.last
	}
	return nil
}

// An errorRow is a thing that cannot be read.
type errorRow struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

const mostQueued = 20 // holders, candidates and waiters of a row

// shorten returns the beginning of a list, and how many are left out.
func shorten[T any](all []T) (some []T, more int) {
	n := min(len(all), mostQueued)
	return all[:n], len(all) - n
}

// ms returns milliseconds since 1970, 0 for the zero time.
func ms(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// clock notes how far the server's clock is ahead, by an answer with the server's time. It keeps
// the known value if that is possible, because an answer may have taken seconds.
func (t *thing) clock(now, sent time.Time, known time.Duration) {
	took := time.Since(sent)
	most := now.Sub(sent) + time.Millisecond // now is rounded
	if known > most || known < most-took-2*time.Millisecond {
		ahead := (most - took/2).Round(time.Millisecond)
		t.ahead = &ahead
	}
}

// An electionRow is the JSON of an election. Tokens are strings, because a number of
// JavaScript has only 53 bits.
type electionRow struct {
	Name       string            `json:"name"`
	Gone       bool              `json:"gone,omitempty"`
	Leader     string            `json:"leader,omitempty"` // empty: nobody leads
	Last       string            `json:"last,omitempty"`   // the last leader, if nobody leads
	Term       uint64            `json:"term,string"`
	Token      uint64            `json:"token,string"`
	Acquired   int64             `json:"acquired,omitempty"`
	Released   int64             `json:"released,omitempty"`
	Ends       int64             `json:"ends,omitempty"`  // of the lease
	Lease      int64             `json:"lease,omitempty"` // its whole length
	Metadata   map[string]string `json:"metadata,omitempty"`
	Asked      string            `json:"asked,omitempty"` // the leader was asked to resign
	Candidates []candidate       `json:"candidates"`
	More       int               `json:"more,omitempty"`
}

type candidate struct {
	Identity string `json:"identity"`
	Since    int64  `json:"since"`
	Promoted bool   `json:"promoted,omitempty"`
}

func (t *thing) readElection(ctx context.Context, client *lockcore.Client, ahead time.Duration) (row electionRow, err error) {
	if t.election == nil {
		if t.election, err = election.NewElection(client, t.name); err != nil {
			return row, err
		}
	}
	sent := time.Now()
	r, err := t.election.Record(ctx)
	if err != nil {
		return row, err
	}
	if r.Left > 0 {
		t.clock(r.Renewed.Add(r.Lease-r.Left), sent, ahead)
	}
	waiting, err := t.election.Candidates(ctx)
	if err != nil {
		return row, err
	}
	row = electionRow{
		Name: t.name, Gone: r.Term == 0 && len(waiting) == 0, Term: r.Term, Token: r.Token,
		Acquired: ms(r.Acquired), Released: ms(r.Released), Metadata: r.Metadata, Candidates: []candidate{},
	}
	if r.Left > 0 {
		row.Leader, row.Ends, row.Lease = r.Holder, ms(r.Renewed.Add(r.Lease)), r.Lease.Milliseconds()
	} else {
		row.Last = r.Holder
	}
	if r.Asked != nil {
		row.Asked = overview.Request(*r.Asked)
	}
	waiting, row.More = shorten(waiting)
	for _, c := range waiting {
		row.Candidates = append(row.Candidates, candidate{c.Identity, ms(c.Since), c.Promoted})
	}
	return row, nil
}

// A lockRow is the JSON of a lock or a daemon.
type lockRow struct {
	Name        string   `json:"name"`
	Gone        bool     `json:"gone,omitempty"`
	Kind        string   `json:"kind"`
	NoTTL       bool     `json:"no_ttl,omitempty"`
	Holders     []holder `json:"holders"`
	MoreHolders int      `json:"more_holders,omitempty"`
	Waiters     []waiter `json:"waiters"`
	MoreWaiters int      `json:"more_waiters,omitempty"`
}

type holder struct {
	Identity string `json:"identity,omitempty"` // empty: another program
	Owner    string `json:"owner,omitempty"`
	Reads    bool   `json:"reads,omitempty"`
	Since    int64  `json:"since,omitempty"`
	Token    uint64 `json:"token,string"`
	Ends     int64  `json:"ends,omitempty"`
}

type waiter struct {
	Identity string `json:"identity"`
	Owner    string `json:"owner,omitempty"`
	Reads    bool   `json:"reads,omitempty"`
	Since    int64  `json:"since"`
	Alive    bool   `json:"alive"`
}

func (t *thing) readLock(ctx context.Context, client *lockcore.Client, name string, ahead time.Duration) (row lockRow, err error) {
	seen, err := client.Inspect(ctx, name)
	if err != nil {
		return row, err
	}
	now := time.Now().Add(ahead)
	row = lockRow{
		Name: t.name, Gone: seen.Kind == lockcore.LockFree && len(seen.Waiters) == 0,
		Kind: string(seen.Kind), NoTTL: seen.NoTTL, Holders: []holder{}, Waiters: []waiter{},
	}
	holders, more := shorten(seen.Holders)
	row.MoreHolders = more
	var ends []int64
	for i, h := range holders {
		end := int64(0)
		if h.TTL >= 0 {
			end = t.steady(i, ms(now.Add(h.TTL)))
		}
		ends = append(ends, end)
		row.Holders = append(row.Holders, holder{h.Identity, h.Owner, h.Reads, ms(h.Since), h.Token, end})
	}
	t.ends = ends
	waiters, more := shorten(seen.Waiters)
	row.MoreWaiters = more
	for _, w := range waiters {
		row.Waiters = append(row.Waiters, waiter{w.Identity, w.Owner, w.Reads, ms(w.Since), w.Alive})
	}
	return row, nil
}

// steady returns the end of the lease of a holder. It is computed from the answer's arrival, so
// it varies; a small difference is not a renewal.
func (t *thing) steady(i int, end int64) int64 {
	const small = 300
	if i < len(t.ends) && max(end-t.ends[i], t.ends[i]-end) < small {
		return t.ends[i]
	}
	return end
}

// A jobRow is the JSON of a job.
type jobRow struct {
	Name        string    `json:"name"`
	Gone        bool      `json:"gone,omitempty"`
	Next        int64     `json:"next,omitempty"`
	Success     int64     `json:"success,omitempty"` // the newest tick that succeeded
	Outcome     string    `json:"outcome,omitempty"` // of the run that ended last
	Paused      bool      `json:"paused,omitempty"`
	Since       int64     `json:"since,omitempty"` // of the pause
	Replicas    int       `json:"replicas"`
	Definitions int       `json:"definitions"` // that have replicas
	Schedule    string    `json:"schedule,omitempty"`
	Open        []openRun `json:"open,omitempty"`
	More        int       `json:"more,omitempty"` // open runs
	// Ended are entries of the history, newest first. Their holders and errors are indexes of
	// Texts, since many entries have the same.
	Ended []endedRun `json:"ended"`
	Texts []string   `json:"texts"`
}

type openRun struct {
	Tick      int64  `json:"tick"` // the key of its RunID
	Triggered int64  `json:"triggered,omitempty"`
	Attempt   int    `json:"attempt"`
	Holder    string `json:"holder,omitempty"`
	Since     int64  `json:"since"`
	Running   bool   `json:"running,omitempty"`
	Error     string `json:"error,omitempty"`    // of the last attempt that ended
	Request   string `json:"request,omitempty"`  // what an operator has requested, and who and why
	Canceled  string `json:"canceled,omitempty"` // who has canceled it, and why
}

type endedRun struct {
	Tick      int64  `json:"k"`
	Outcome   string `json:"o"` // of letters
	Last      int64  `json:"l,omitempty"`
	Count     int    `json:"c,omitempty"`
	Triggered int64  `json:"t,omitempty"`
	Attempt   int    `json:"a,omitempty"`
	Holder    int    `json:"h,omitempty"` // an index of Texts, from 1; 0: none
	Start     int64  `json:"s,omitempty"`
	Took      int64  `json:"d,omitempty"` // ms
	Error     int    `json:"e,omitempty"`
}

// letters stand for the outcomes of an Entry.
var letters = map[string]string{
	singleton.OutcomeSucceeded: "s", singleton.OutcomeFailed: "f", singleton.OutcomeUnknown: "u", singleton.OutcomeSkipped: "k",
}

const (
	mostEnded    = 60
	longestError = 160
	mostTexts    = 8000 // bytes of all Texts of a job as JSON
)

// beginning returns the beginning of an error.
func beginning(text string) string {
	if len(text) <= longestError {
		return text
	}
	return string(bytes.ToValidUTF8([]byte(text[:longestError]), nil)) + "…"
}

func (t *thing) readJob(ctx context.Context, client *lockcore.Client, ahead time.Duration, changed bool) (row any, interval time.Duration, err error) {
	if t.job == nil {
		if t.job, err = singleton.NewJob(client, t.name); err != nil {
			return nil, 0, err
		}
		t.stop = t.job.Watch(func() { t.changed.Store(true) })
		changed = true
	}
	sent := time.Now()
	st, err := t.job.Status(ctx)
	if errors.Is(err, singleton.ErrNoLedger) {
		t.jobRow = jobRow{}
		return jobRow{Name: t.name, Gone: true}, jobInterval, nil
	}
	if err != nil {
		return nil, 0, err
	}
	t.clock(st.Now, sent, ahead)
	now := jobRow{
		Name: t.name, Next: ms(st.Next), Success: ms(st.LastSuccess), Paused: st.Paused, Since: ms(st.PausedSince),
		Outcome: st.Outcome, Replicas: st.Replicas, Definitions: len(st.Definitions), Schedule: beginning(st.Schedule),
	}
	for _, o := range st.Open {
		run := openRun{Tick: o.Key(), Attempt: o.Attempt, Holder: o.Holder, Since: ms(o.Since), Running: o.Running}
		if o.Triggered {
			run.Triggered = ms(o.Tick)
		}
		if n := len(o.Attempts); n > 0 {
			run.Error = beginning(o.Attempts[n-1].Error)
		}
		if o.Request != nil {
			run.Request = o.Request.Action + " by " + overview.ByWhom(o.Request.By, o.Request.Reason)
		}
		if o.Canceled != nil {
			run.Canceled = "canceled by " + overview.ByWhom(o.Canceled.By, o.Canceled.Reason)
		}
		now.Open = append(now.Open, run)
	}
	now.Open, now.More = shorten(now.Open)
	old := t.jobRow
	// A run that begins and ends between two reads leaves no trace in the status, if its messages are lost.
	if changed || time.Since(t.history) >= jobInterval || now.Success != old.Success || now.Next != old.Next || now.Schedule != old.Schedule || len(now.Open) != len(old.Open) {
		if err := t.readHistory(ctx, &now); err != nil {
			return nil, 0, err
		}
		t.history = time.Now()
	} else {
		now.Ended, now.Texts = old.Ended, old.Texts
	}
	t.jobRow = now
	if len(now.Open) > 0 {
		return now, lockInterval, nil
	}
	return now, jobInterval, nil
}

func (t *thing) readHistory(ctx context.Context, row *jobRow) error {
	entries, err := t.job.Runs(ctx, mostEnded)
	if err != nil {
		return err
	}
	row.Ended, row.Texts = []endedRun{}, []string{}
	known := map[string]int{"": 0}
	size := 0
	index := func(text string) int {
		if _, ok := known[text]; !ok {
			encoded, _ := json.Marshal(text) // a string has no errors
			if size += len(encoded); size > mostTexts {
				text = "…" // the history has it; newer entries are more important
			}
		}
		i, ok := known[text]
		if !ok {
			row.Texts = append(row.Texts, text)
			i = len(row.Texts)
			known[text] = i
		}
		return i
	}
	for _, e := range entries {
		run := endedRun{
			Tick: e.Key(), Outcome: letters[e.Outcome], Last: ms(e.Last), Count: e.Count, Attempt: e.Attempt,
			Holder: index(e.Holder), Start: ms(e.Start), Error: index(beginning(e.Error)),
		}
		if e.Triggered {
			run.Triggered = ms(e.Tick)
		}
		if !e.Start.IsZero() && !e.End.IsZero() {
			run.Took = e.End.Sub(e.Start).Milliseconds()
		}
		row.Ended = append(row.Ended, run)
	}
	return nil
}
