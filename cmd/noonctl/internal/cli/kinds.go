package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
)

// A kind is how get and describe show a kind of thing.
type kind struct {
	overview.Kind
	list, one string   // what get and describe show
	titles    []string // of the table
	cells     func(t overview.Thing) []string
}

var (
	lockKind = kind{
		Kind: overview.Locks, list: "Locks that are held or have waiters", one: "Show the holders and waiters of a lock",
		titles: []string{"NAME", "KIND", "HOLDER", "SINCE", "EXPIRES", "WAITERS"}, cells: lockCells,
	}
	electionKind = kind{
		Kind: overview.Elections, list: "Elections that had a leader within the last week", one: "Show the leader and the candidates of an election",
		titles: []string{"NAME", "LEADER", "SINCE", "EXPIRES", "CANDIDATES"}, cells: electionCells,
	}
	jobKind = kind{
		Kind: overview.Jobs, list: "Jobs that have a ledger", one: "Show the state, the schedule and the newest runs of a job, and why attempts failed",
		titles: []string{"NAME", "STATE", "OUTCOME", "NEXT", "LAST", "LAST SUCCESS", "REPLICAS", "SCHEDULE"}, cells: jobCells,
	}
	partitionKind = kind{
		Kind: overview.Partitions, list: "Sets of partitions that replicas share", one: "Show the leader and the token of each partition of a set",
		titles: []string{"NAME", "PARTITIONS", "REPLICAS", "LED"}, cells: partitionCells,
	}
	kinds = []kind{lockKind, electionKind, jobKind, partitionKind}
)

func lockCells(t overview.Thing) []string {
	holder, since, expires := "", "", ""
	if t.Lock.Kind == lockcore.LockForeign {
		holder = orForeign("")
	}
	var last time.Duration
	for i, h := range t.Lock.Holders {
		if last = max(last, h.TTL); i > 0 {
			continue
		}
		holder, since = orForeign(h.Identity), relative(h.Since, t.Now)
		if h.Reads {
			holder += " (reads)"
		}
		if h.Slot != nil {
			holder += fmt.Sprintf(" (slot %d)", *h.Slot)
		}
		if more := len(t.Lock.Holders) - 1; more > 0 {
			holder += fmt.Sprintf(" +%d", more)
		}
	}
	switch {
	case t.Lock.NoTTL:
		expires = "never"
	case last > 0: // unless a holder renews its lease
		expires = "in " + span(last)
	}
	kind := string(t.Lock.Kind)
	if t.Lock.Kind == lockcore.LockSemaphore {
		kind += fmt.Sprintf(" %d/%d", len(t.Lock.Holders), t.Lock.Slots)
	}
	return []string{kind, holder, since, expires, strconv.Itoa(len(t.Lock.Waiters))}
}

func electionCells(t overview.Thing) []string {
	e := t.Election
	since, expires := "", ""
	if e.Leader != "" {
		since, expires = relative(e.Acquired, t.Now), "in "+span(time.Duration(e.Left)*time.Millisecond)
	}
	return []string{e.Leader, since, expires, strconv.Itoa(len(e.Candidates))}
}

// partitionCells has the shares of the replicas, such as "20-21 each".
func partitionCells(t overview.Thing) []string {
	all := t.Set.Replicas
	led := len(t.Set.Partitions)
	if len(all) > 0 && all[0].Identity == "" {
		led, all = led-all[0].Leads, all[1:]
	}
	shares := "none"
	if len(all) > 0 {
		by := func(a, b overview.Share) int { return cmp.Compare(a.Leads, b.Leads) }
		least, most := slices.MinFunc(all, by).Leads, slices.MaxFunc(all, by).Leads
		if shares = fmt.Sprintf("%d, %d-%d each", led, least, most); least == most {
			shares = fmt.Sprintf("%d, %d each", led, least)
		}
	}
	return []string{strconv.Itoa(len(t.Set.Partitions)), strconv.Itoa(len(all)), shares}
}

func jobCells(t overview.Thing) []string {
	st := *t.Job
	last := st.Last
	if last.Equal(st.Begun) {
		last = time.Time{} // a new ledger has no tick
	}
	return []string{
		t.State(), string(st.Outcome), relative(st.Next, st.Now), relative(last, st.Now), relative(st.LastSuccess, st.Now), strconv.Itoa(st.Replicas), st.Schedule,
	}
}

// orForeign returns the identity of a holder.
func orForeign(identity string) string { return cmp.Or(identity, "another program") }
