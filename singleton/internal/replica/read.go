package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/plan"
)

var (
	errLedgerLost     = errors.New("singleton: ledger lost")
	errTwoDefinitions = errors.New("singleton: two definitions of one job")
	errLedgerAhead    = errors.New("singleton: ledger ahead of the server's clock")
)

// rolloutWithin is how long a rollout may take. While a job has replicas of two definitions, an error is logged each
// time that rolloutWithin has passed.
const rolloutWithin = 10 * time.Minute

// read reads the ledger. The request contains the former state: if the ledger was lost, a new one begins after the last
// tick that has ended in the former state.
func (f *follower) read(ctx context.Context) error {
	before := f.state
	if now, ok := f.r.clock.now(); ok {
		before.Shared = f.def.Shared(f.def.Name, &before, now.Add(f.readAfter()))
	}
	// An aborted request may arrive after leave, and would register this replica again.
	opening, done := f.stop.Finish(ctx)
	defer done()
	sent := time.Now()
	var state ledger.State
	var err error
	same := false
	if f.freshness == expired {
		state, same, err = f.def.Ledger.Refresh(opening, before)
	}
	if !same && err == nil {
		state, err = f.def.Ledger.Open(opening, before)
		if more := state.Again - readEvery; more > 0 {
			state.Again -= rand.N(more) // replicas that started together read one after the other
		}
	}
	if err != nil {
		f.state = state // the replica may have been registered
		return err
	}
	f.readAt, f.freshness = time.Now(), complete
	f.r.observe(state.Now, sent, f.readAt)
	f.report(state)
	f.state = state
	for _, open := range state.Open {
		if run := f.running[open.Key()]; run != nil {
			run.Cancel(open)
		}
	}
	f.show(f.state.LastSuccess)
	f.checkAhead()
	f.showNext(f.def.Schedule.Next(plan.Later(state.Now, state.Last)))
	return nil
}

// checkAhead checks whether ticks will not run because the ledger has accounted for them too early: the server's clock
// was ahead, and was then set right. A single tick may have run just before the clock was set back a little. With two
// of them, the job is not ready.
func (f *follower) checkAhead() {
	first := f.def.Schedule.Next(f.state.Now).UTC()
	if first.IsZero() || !first.Before(f.state.Last) {
		f.overdueTick = time.Time{}
		if f.ready.Blocked(nil) {
			f.log.Info("server's clock has reached the ledger; ticks run again")
		}
		return
	}
	err := fmt.Errorf("%w: no tick runs before %s", errLedgerAhead, f.state.Last.UTC().Format(time.RFC3339))
	if f.ready.Blocked(err) {
		f.overdueTick = first
		f.log.Error(errLedgerAhead, "no tick runs until the server's clock has reached the ledger", "last", f.state.Last, "now", f.state.Now)
	}
}

// report logs and counts the changes since the last read.
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
		f.job.metrics.count(f.job.metrics.actions, ledger.ActionPause)
	case !state.Paused && f.state.Paused:
		log.Info("job resumed", "by", state.By.Who, "reason", state.By.Reason)
		f.job.metrics.count(f.job.metrics.actions, ledger.ActionResume)
	}
	if state.Lost {
		log.Error(errLedgerLost, "ledger lost or set back; restored from the state of the replicas", "last", state.Last, "paused", state.Paused)
		f.job.metrics.count(f.job.metrics.losses)
	}
	if at := state.Rescheduled; !at.IsZero() && !state.Superseded && !at.Equal(f.state.Rescheduled) {
		log.Info("schedule changed; ticks that were due and did not run are skipped", "from", at, "upto", state.Last)
		f.job.metrics.count(f.job.metrics.changes)
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
		f.job.metrics.count(f.job.metrics.conflicts)
	}
}
