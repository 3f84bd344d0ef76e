package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Row returns the cells of the thing in a list of its kind.
func (t Thing) Row() []Cell {
	row := []Cell{t.state()}
	switch t.Kind {
	case Elections:
		e, since := t.Election, cell("since", "")
		if e.Leader != "" {
			since = cell("since", e.Acquired)
		}
		expires := t.expires(t.Left())
		expires.Of = e.Lease
		return append(row, cell("leader", e.Leader, "who"), since, expires, cell("candidates", len(e.Candidates)))
	case Jobs:
		st := *t.Job
		outcome := cell("outcome", string(st.Outcome), either(MarkOf(st).Failing, "error", ""))
		if st.Paused {
			st.Next = time.Time{} // a paused job runs no tick
		}
		return append(row, outcome, cell("next tick", st.Next), cell("last success", st.LastSuccess),
			cell("schedule", st.Schedule), cell("replicas", st.Replicas))
	case Partitions:
		replicas, led := t.Set.shares()
		return append(row, cell("partitions", len(t.Set.Partitions)), cell("replicas", replicas), cell("led", led))
	default:
		kind, holder, first := string(t.Lock.Kind), "", lockcore.Holder{}
		expires := t.expires(t.Left())
		if len(t.Lock.Holders) > 0 {
			first = t.Lock.Holders[0]
			holder = describeClient(HolderName(first.Identity), first.Owner, first.Reads, first.Slot)
		}
		if more := len(t.Lock.Holders) - 1; more > 0 {
			holder += fmt.Sprintf(" +%d", more)
		}
		if t.Lock.Kind == lockcore.LockSemaphore {
			kind += fmt.Sprintf(" %d/%d", len(t.Lock.Holders), t.Lock.Slots)
		}
		if t.Lock.NoTTL {
			expires.Text = "never"
		}
		return append(row, cell("kind", kind), cell("holder", holder, "who"), cell("since", first.Since), expires,
			cell("waiters", len(t.Lock.Waiters)))
	}
}

// expires returns the end of a lease, rounded to 100 ms. Now and the TTL are rounded to ms, so the exact sum would move
// with each read although the lease is not renewed.
func (t Thing) expires(left time.Duration) Cell {
	if left <= 0 {
		return cell("expires", "")
	}
	return cell("expires", t.Now.Add(left).Round(100*time.Millisecond))
}

// Describe returns the Description of the thing. The Details of a job have more.
func (t Thing) Describe() Description {
	row := t.Row() // for elections and locks, its last cell is the length of a list, and left out here
	switch t.Kind {
	case Elections:
		e := t.Election
		request, metadata := "", []string{}
		if e.Asked != nil {
			request = "to resign, by " + By(e.Asked.By, e.Asked.Reason)
			if e.Asked.To != "" {
				request = "to transfer to " + e.Asked.To + strings.TrimPrefix(request, "to resign")
			}
		}
		for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
			metadata = append(metadata, key+"="+e.Metadata[key])
		}
		return Description{
			append(row[:len(row)-1], cell("granted to", e.Granted, "who"), cell("token", e.Token), cell("last leader", e.Last),
				cell("resigned", e.Released),
				cell("asked", request), cell("metadata", strings.Join(metadata, ", "))),
			[]List{listOf("Candidates, the next leader first", e.Candidates, func(c election.Candidate) []Cell {
				return []Cell{
					cell("candidate", c.Identity, "who"), cell("since", c.Since),
					cell("promoted", c.Promoted),
				}
			})},
		}
	case Jobs:
		return Description{
			append(row, cell("paused since", t.Job.PausedSince)),
			[]List{OpenRuns(t.Job.Open)},
		}
	case Partitions:
		return Description{row, []List{
			listOf("Replicas", t.Set.Replicas, func(s Share) []Cell {
				return []Cell{cell("replica", cmp.Or(s.Identity, "no leader"), "who"), cell("leads", s.Leads)}
			}),
			listOf("Partitions", t.Set.Partitions, func(p partition.Partition) []Cell {
				return []Cell{
					cell("partition", strconv.Itoa(p.Index)), cell("leader", p.Leader, "who"),
					cell("token", p.Token),
				}
			}),
		}}
	default:
		note := either(t.Lock.NoTTL, `the key has no TTL, so waiters may wait for ever; see "noonctl release"`, "")
		holders := t.Lock.Holders
		if len(holders) == 1 {
			holders = nil // the lines have the holder
		}
		return Description{append(row[:len(row)-1], cell("token", t.Token()), cell("note", note, "error")), []List{
			listOf("Holders", holders, func(h lockcore.Holder) []Cell {
				name := describeClient(HolderName(h.Identity), h.Owner, h.Reads, h.Slot)
				return []Cell{
					cell("holder", name, "who"), cell("token", h.Token),
					cell("since", h.Since), t.expires(h.TTL),
				}
			}),
			listOf("Waiters, the next one first", t.Lock.Waiters, func(w lockcore.Waiter) []Cell {
				return []Cell{
					cell("waiter", describeClient(w.Identity, w.Owner, w.Reads, nil), "who"), cell("since", w.Since),
					cell("state", either(w.Alive, "", "does not answer"), "error"),
				}
			}),
			listOf("Servers", t.Lock.Servers, serverCells),
		}}
	}
}

// Token returns the fencing token of the leader, or the greatest of the holders' tokens, or 0.
func (t Thing) Token() uint64 {
	newest := t.Election.Token
	for _, h := range t.Lock.Holders {
		newest = max(newest, h.Token)
	}
	return newest
}

// Verbs returns the actions that the state of the thing allows.
func (t Thing) Verbs() []string {
	switch {
	case t.Election.Leader != "":
		return []string{"resign"}
	case len(t.Lock.Holders) > 0:
		return []string{"release"}
	case t.Job == nil:
		return nil
	}
	verbs := []string{"trigger", either(t.Job.Paused, "resume", "pause")}
	if slices.ContainsFunc(t.Job.Open, func(o singleton.OpenRun) bool { return o.Attempt > 0 }) {
		verbs = append(verbs, "cancel")
	}
	return verbs
}

// HolderName returns the identity of the holder of a lock, or another text for a foreign lock.
func HolderName(identity string) string { return cmp.Or(identity, "another program") }

func describeClient(name, owner string, reads bool, slot *int) string {
	if owner != "" {
		name += " for " + owner
	}
	if reads {
		name += " (reads)"
	}
	if slot != nil {
		name += fmt.Sprintf(" (slot %d)", *slot)
	}
	return name
}

func serverCells(v lockcore.ServerView) []Cell {
	state, holder := "member", ""
	switch {
	case v.Err != nil:
		state = v.Err.Error()
	case !v.Member || v.Waits > 0:
		state = "grants nothing yet"
	}
	for _, h := range v.Holders { // at most one, which may also be an attempt without a majority
		holder = HolderName(h.Identity)
	}
	return []Cell{
		cell("server", v.Address, "who"), cell("state", state), cell("list", v.List), cell("waits", v.Waits),
		cell("holder", holder),
	}
}

// shares returns the number of replicas that lead, and a text such as "41, 20-21 each" about their partitions.
func (s Set) shares() (replicas int, led string) {
	all := slices.DeleteFunc(slices.Clone(s.Replicas), func(s Share) bool { return s.Identity == "" })
	if len(all) == 0 {
		return 0, "none"
	}
	sum := 0
	for _, s := range all {
		sum += s.Leads
	}
	by := func(a, b Share) int { return cmp.Compare(a.Leads, b.Leads) }
	least, most := slices.MinFunc(all, by).Leads, slices.MaxFunc(all, by).Leads
	if led = fmt.Sprintf("%d, %d-%d each", sum, least, most); least == most {
		led = fmt.Sprintf("%d, %d each", sum, least)
	}
	return len(all), led
}

// Releases returns the List of the forced releases of a lock.
func Releases(all []lockcore.ForcedRelease) List {
	return listOf("Released by force, the last one first", all, func(r lockcore.ForcedRelease) []Cell {
		return []Cell{cell("at", Instant(r.At)), cell("by", By(r.By.Who, r.By.Reason)), cell("leases", r.Leases)}
	})
}

// Terms returns the List of the terms of an election.
func Terms(all []election.LeaderRecord) List {
	return listOf("Terms of the last week", all, func(r election.LeaderRecord) []Cell {
		lasted := max(0, r.Released.Sub(r.Acquired)) // 0 for a term that has not ended
		return []Cell{
			cell("leader", r.Holder, "who"), cell("token", r.Token),
			cell("from", Instant(r.Acquired)), cell("for", lasted),
		}
	})
}
