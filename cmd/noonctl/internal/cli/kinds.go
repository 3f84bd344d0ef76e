package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A kind is a kind of thing that get lists.
type kind struct {
	overview.Kind
	summary string
	titles  []string // of the table
	wide    int      // how many of them are shown without --output wide

	// read reads one. found is false if there is none.
	read func(ctx context.Context, a *app, name string) (it item, found bool, err error)
}

// An item is a thing that was read.
type item struct {
	name  string
	cells []string // of the table, without the name
	data  any      // for JSON
	// state changes when watchers should see the item again. The cells also contain times.
	state string
}

var lockKind = kind{
	Kind:    overview.Locks,
	summary: "Locks that are held or have waiters",
	titles:  []string{"NAME", "KIND", "HOLDER", "SINCE", "EXPIRES", "WAITERS", "TOKEN", "OWNERS", "NEXT"}, wide: 6,
	read: func(ctx context.Context, a *app, name string) (item, bool, error) {
		seen, err := a.client.Inspect(ctx, name)
		if err != nil {
			return item{}, false, err
		}
		return lockItem(name, seen), seen.Kind != lockcore.LockFree || len(seen.Waiters) > 0, nil
	},
}

var daemonKind = kind{
	Kind:    overview.Daemons,
	summary: "Daemons that ran within the last week",
	titles:  []string{"NAME", "HOLDER", "SINCE", "EXPIRES", "WAITERS", "TOKEN", "NEXT"}, wide: 5,
	read: func(ctx context.Context, a *app, name string) (item, bool, error) {
		seen, err := a.client.Inspect(ctx, overview.Daemons.LockOf(name))
		if err != nil {
			return item{}, false, err
		}
		it := lockItem(name, seen)
		it.cells = append(slices.Clone(it.cells[1:6]), it.cells[7]) // without the kind and the owners
		return it, seen.Kind != lockcore.LockFree || len(seen.Waiters) > 0, nil
	},
}

func lockItem(name string, seen lockcore.Inspection) item {
	seen.Name = name // a daemon has another one than its lock
	var owners []string
	var state strings.Builder
	fmt.Fprint(&state, seen.Kind, seen.NoTTL)
	for _, h := range seen.Holders {
		if h.Owner != "" && !slices.Contains(owners, h.Owner) {
			owners = append(owners, h.Owner)
		}
		fmt.Fprintln(&state, h.Identity, h.Owner, h.Reads, h.Token)
	}
	for _, w := range seen.Waiters {
		fmt.Fprintln(&state, w.Identity, w.Owner, w.Reads, w.Alive)
	}
	holder, since, token, next := "", "", "", ""
	if len(seen.Holders) > 0 {
		first := seen.Holders[0]
		holder, since = first.Identity, relative(first.Since, seen.Now)
		if holder == "" {
			holder = "another program"
		}
		if first.Reads {
			holder += " (reads)"
		}
		if more := len(seen.Holders) - 1; more > 0 {
			holder += fmt.Sprintf(" +%d", more)
		}
		if first.Token > 0 {
			token = strconv.FormatUint(first.Token, 10)
		}
	} else if seen.Kind == lockcore.LockForeign {
		holder = "another program"
	}
	if len(seen.Waiters) > 0 {
		next = seen.Waiters[0].Identity
	}
	return item{
		name: name, data: seen, state: state.String(),
		cells: []string{string(seen.Kind), holder, since, expiry(seen), strconv.Itoa(len(seen.Waiters)), token, strings.Join(owners, " "), next},
	}
}

// expiry returns when the lock is free unless a holder renews its lease.
func expiry(seen lockcore.Inspection) string {
	if seen.NoTTL {
		return "never"
	}
	var last time.Duration
	for _, h := range seen.Holders {
		last = max(last, h.TTL)
	}
	if last == 0 {
		return ""
	}
	return "in " + span(last)
}

var electionKind = kind{
	Kind:    overview.Elections,
	summary: "Elections that had a leader within the last week",
	titles:  []string{"NAME", "LEADER", "SINCE", "EXPIRES", "CANDIDATES", "TERM", "TOKEN", "NEXT", "METADATA"}, wide: 5,
	read: func(ctx context.Context, a *app, name string) (item, bool, error) {
		data, err := readElection(ctx, a, name)
		if err != nil {
			return item{}, false, err
		}
		next, since, expires, term, token := "", "", "", "", ""
		var metadata []string
		if len(data.Candidates) > 0 {
			next = data.Candidates[0].Identity
		}
		if data.Leader != "" {
			since, expires = relative(data.Acquired, data.now), "in "+span(time.Duration(data.Left)*time.Millisecond)
		}
		if data.Term > 0 {
			term, token = strconv.FormatUint(data.Term, 10), strconv.FormatUint(data.Token, 10)
		}
		for _, key := range sortedKeys(data.Metadata) {
			metadata = append(metadata, key+"="+data.Metadata[key])
		}
		var state strings.Builder
		fmt.Fprintln(&state, data.Leader, data.Token)
		for _, c := range data.Candidates {
			fmt.Fprintln(&state, c.Identity)
		}
		return item{
			name: name, data: data, state: state.String(),
			cells: []string{data.Leader, since, expires, strconv.Itoa(len(data.Candidates)), term, token, next, strings.Join(metadata, " ")},
		}, data.Term > 0 || len(data.Candidates) > 0, nil
	},
}

// electionData is the JSON of an election.
type electionData struct {
	Name       string            `json:"name"`
	Leader     string            `json:"leader,omitempty"` // empty: nobody leads
	Last       string            `json:"last_leader,omitempty"`
	Term       uint64            `json:"term,omitempty"`
	Token      uint64            `json:"token,omitempty"`
	Acquired   time.Time         `json:"acquired,omitzero"`
	Renewed    time.Time         `json:"renewed,omitzero"`
	Released   time.Time         `json:"released,omitzero"`
	Left       int64             `json:"left_ms,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Asked      *askedData        `json:"asked,omitempty"` // the leader was asked to resign
	Candidates []candidateData   `json:"candidates"`

	now time.Time // of the server, about
}

type askedData struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	To     string `json:"to,omitempty"`
}

type candidateData struct {
	Identity string    `json:"identity"`
	Since    time.Time `json:"since"`
	Promoted bool      `json:"promoted,omitempty"`
}

func readElection(ctx context.Context, a *app, name string) (electionData, error) {
	e, err := election.NewElection(a.client, name)
	if err != nil {
		return electionData{}, err
	}
	r, err := e.Record(ctx)
	if err != nil {
		return electionData{}, err
	}
	candidates, err := e.Candidates(ctx)
	if err != nil {
		return electionData{}, err
	}
	data := electionData{
		Name: name, Term: r.Term, Token: r.Token, Acquired: r.Acquired, Renewed: r.Renewed, Released: r.Released,
		Metadata: r.Metadata, Candidates: []candidateData{}, now: time.Now(),
	}
	if r.Left > 0 {
		data.Leader, data.Left = r.Holder, r.Left.Milliseconds()
		data.now = r.Renewed.Add(r.Lease - r.Left)
	} else {
		data.Last = r.Holder
	}
	if r.Asked != nil {
		data.Asked = &askedData{r.Asked.By, r.Asked.Reason, r.Asked.To}
	}
	for _, c := range candidates {
		data.Candidates = append(data.Candidates, candidateData(c))
	}
	return data, nil
}

var jobKind = kind{
	Kind:    overview.Jobs,
	summary: "Jobs that have a ledger",
	titles:  []string{"NAME", "STATE", "OUTCOME", "NEXT", "LAST", "LAST SUCCESS", "REPLICAS", "SCHEDULE", "HOLDER", "ATTEMPT", "TOKEN"}, wide: 8,
	read: func(ctx context.Context, a *app, name string) (item, bool, error) {
		j, err := singleton.NewJob(a.client, name)
		if err != nil {
			return item{}, false, err
		}
		st, err := j.Status(ctx)
		if errors.Is(err, singleton.ErrNoLedger) {
			return item{}, false, nil
		}
		if err != nil {
			return item{}, false, err
		}
		return jobItem(st), true, nil
	},
}

func jobItem(st singleton.Status) item {
	holder, attempt, token := "", "", ""
	if len(st.Open) > 0 {
		open := st.Open[0]
		holder, attempt = open.Holder, strconv.Itoa(open.Attempt)
		if open.Token > 0 {
			token = strconv.FormatUint(open.Token, 10)
		}
	}
	var state strings.Builder
	fmt.Fprintln(&state, st.Next, st.Last, st.LastSuccess, st.Outcome, st.Paused, st.Replicas, st.Schedule)
	for _, open := range st.Open {
		fmt.Fprintln(&state, open.Name(), open.Attempt, open.Holder, open.Running, open.Canceled != nil)
	}
	schedule := st.Schedule
	if strings.HasPrefix(schedule, "ticks") {
		schedule = "its own" // the ledger has its next ticks
	}
	return item{
		name: st.Job, data: st, state: state.String(),
		cells: []string{
			jobState(st), st.Outcome, relative(st.Next, st.Now), relative(lastTick(st), st.Now), relative(st.LastSuccess, st.Now),
			strconv.Itoa(st.Replicas), schedule, holder, attempt, token,
		},
	}
}

// lastTick returns the newest tick that ran or was skipped. A new ledger has none: Last is when it began.
func lastTick(st singleton.Status) time.Time {
	if st.Last.Equal(st.Begun) {
		return time.Time{}
	}
	return st.Last
}

// jobState returns what the job is doing.
func jobState(st singleton.Status) string {
	running, canceled := 0, false
	for _, open := range st.Open {
		if open.Running {
			running++
			canceled = canceled || open.Canceled != nil
		}
	}
	var states []string
	switch {
	case running == 1:
		states = append(states, "running")
	case running > 1:
		states = append(states, fmt.Sprintf("running (%d)", running))
	case len(st.Open) > 0:
		states = append(states, fmt.Sprintf("open (%d)", len(st.Open)))
	}
	if canceled {
		states = append(states, "canceled")
	}
	if st.Paused {
		states = append(states, "paused")
	}
	if st.Replicas == 0 {
		states = append(states, "no replicas")
	}
	if states == nil {
		return "idle"
	}
	return strings.Join(states, ", ")
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
