package singleton

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

var (
	errLedgerLost     = errors.New("singleton: ledger lost")
	errTwoDefinitions = errors.New("singleton: two definitions of one job")
	errLedgerAhead    = errors.New("singleton: ledger ahead of the server's clock")
)

// rolloutWithin is how long a rollout may take: as long as a job has replicas of two definitions, an error
// is logged after each such time.
const rolloutWithin = 10 * time.Minute

// look reads the ledger. The request contains the former state. If the ledger was lost, a new
// one begins after the last tick in this state that has ended.
func (f *follower) look(ctx context.Context) error {
	before := f.state
	if now, ok := f.r.clock.now(); ok {
		before.Shared = f.j.shared(before, now.Add(f.lookAfter()))
	}
	// An aborted request may arrive after leave, and would register this replica again.
	opening, done := f.stop.Finish(ctx)
	defer done()
	sent := time.Now()
	var state ledger.State
	var err error
	same := false
	if f.known == old {
		state, same, err = f.j.ledger.Look(opening, before)
	}
	if !same && err == nil {
		state, err = f.j.ledger.Open(opening, before)
		if more := state.Again - lookEvery; more > 0 {
			state.Again -= rand.N(more) // replicas that started together look one after the other
		}
	}
	if err != nil {
		f.state = state // the replica may have been registered
		return err
	}
	f.looked, f.known = time.Now(), entire
	f.r.observe(state.Now, sent, f.looked)
	f.report(state)
	f.state = state
	for _, open := range state.Open {
		if run := f.mine[open.Key()]; run != nil {
			run.Cancel(open)
		}
	}
	f.show(f.state.LastSuccess)
	f.lookAhead()
	f.due(f.j.schedule.Next(later(state.Now, state.Last)))
	return nil
}

// show shows the state. succeeded is the newest tick of which an answer of the ledger says that it
// succeeded; zero: none does.
func (f *follower) show(succeeded time.Time) {
	if !succeeded.IsZero() {
		f.j.ready.Settle(succeeded) // another replica could record one since
	}
	f.j.metrics.show(&f.state)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// lookAhead checks whether ticks are due that will not run, because the ledger has accounted for
// them: the server's clock was ahead, and was then set right. One tick may have run just before
// a clock was set back. From two on, the job is not ready.
func (f *follower) lookAhead() {
	first := f.j.schedule.Next(f.state.Now).UTC()
	if first.IsZero() || !first.Before(f.state.Last) {
		f.owed = time.Time{}
		if f.j.ready.Hindered(nil) {
			f.log.Info("server's clock has reached the ledger; ticks run again")
		}
		return
	}
	err := fmt.Errorf("%w: no tick runs before %s", errLedgerAhead, f.state.Last.UTC().Format(time.RFC3339))
	if f.j.ready.Hindered(err) {
		f.owed = first
		f.log.Error(errLedgerAhead, "no tick runs until the server's clock has reached the ledger", "last", f.state.Last, "now", f.state.Now)
	}
}

// due shows when the next tick is due. While ticks are due that do not run, it is the first of
// them, so that the job counts as overdue.
func (f *follower) due(next time.Time) {
	if !f.owed.IsZero() {
		next = f.owed
	}
	f.j.metrics.instant(f.j.metrics.next, next)
}

// report logs and counts the changes since the last check.
func (f *follower) report(state ledger.State) {
	log := f.log
	switch {
	case state.Superseded && f.state.Now.IsZero():
		log.Info("another definition of the job is active; waiting to take over")
	case state.Superseded && !f.state.Superseded:
		log.Info("another definition of the job is active; this replica claims no ticks")
	case !state.Superseded && f.state.Superseded:
		log.Info("definition of this replica is active")
	}
	switch {
	case state.Paused && !f.state.Paused:
		log.Info("job paused", "since", state.PausedSince, "by", state.By.Who, "reason", state.By.Reason)
		f.j.metrics.count(f.j.metrics.acts, ledger.ActionPause)
	case !state.Paused && f.state.Paused:
		log.Info("job resumed", "by", state.By.Who, "reason", state.By.Reason)
		f.j.metrics.count(f.j.metrics.acts, ledger.ActionResume)
	}
	if state.Lost {
		log.Error(errLedgerLost, "ledger lost or set back; restored from the state of the replicas", "last", state.Last, "paused", state.Paused)
		f.j.metrics.count(f.j.metrics.losses)
	}
	if at := state.Rescheduled; !at.IsZero() && !state.Superseded && !at.Equal(f.state.Rescheduled) {
		log.Info("schedule changed; ticks that were due and did not run are skipped", "from", at, "upto", state.Last)
		f.j.metrics.count(f.j.metrics.changes)
	}
	switch {
	case state.Others == 0:
		f.conflictSince = time.Time{}
	case f.conflictSince.IsZero():
		f.conflictSince = time.Now()
	case time.Since(f.conflictSince) >= rolloutWithin:
		f.conflictSince = time.Now()
		log.Error(errTwoDefinitions, "job has two definitions: unfinished rollout, or another program that uses its name",
			"others", state.Others)
		f.j.metrics.count(f.j.metrics.conflicts)
	}
}
