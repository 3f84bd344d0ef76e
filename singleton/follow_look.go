package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

var (
	errLedgerLost     = errors.New("singleton: ledger lost")
	errTwoDefinitions = errors.New("singleton: two definitions of one job")
)

// rolloutWithin is how long a job may have replicas of two definitions before that is
// taken for a mistake.
const rolloutWithin = 10 * time.Minute

// look reads the ledger. What we knew of it goes along, so that one that was
// lost begins again where everything before had ended.
func (f *follower) look(ctx context.Context) error {
	now, ok := f.r.clock.now()
	if !ok {
		sent := time.Now()
		var err error
		if now, _, err = f.j.ledger.Now(ctx); err != nil {
			return err
		}
		f.r.observe(now, sent, time.Now())
	}
	f.forget()
	before := f.state
	before.Next, before.Spec, before.Handover = f.j.schedule.Next(now), f.spec(now), nil
	// A look that is broken off may arrive after leave, and the others would take this
	// replica for alive.
	asking, done := f.stop.Finish(ctx)
	defer done()
	for range 3 {
		sent := time.Now()
		state, err := f.j.ledger.Open(asking, before)
		if err != nil {
			f.state = state // its start may have been heard
			return err
		}
		f.looked, f.known = time.Now(), true
		f.r.observe(state.Now, sent, f.looked)
		f.tell(state, before.Handover)
		f.state = state
		if state.Handover == nil {
			break
		}
		next, spec := before.Next, before.Spec
		before = state
		before.Next, before.Spec, before.Handover = next, spec, f.handOver(state)
	}
	if f.state.Handover != nil {
		f.state.Again = time.Second // its ticks are claimed faster than they are counted
	}
	f.j.metrics.stands(&f.state)
	f.j.metrics.due(before.Next)
	return nil
}

// spec is the job's schedule as a later version can read it.
func (f *follower) spec(now time.Time) string {
	if f.own.text == "" || !f.own.half.IsZero() && now.After(f.own.half) {
		f.own = write(f.j.schedule, f.j.ticks, now)
	}
	return f.own.text
}

// handOver counts what the schedule before this one owes. One that cannot be read here
// owes the tick that was to come, if that has come due.
func (f *follower) handOver(state ledger.State) *ledger.Handover {
	h := &ledger.Handover{Spec: state.Handover.Spec, Upto: state.Now.Truncate(time.Millisecond)}
	if h.Upto.Before(state.Last) {
		h.Upto = state.Last
	}
	former, err := readSchedule(h.Spec)
	if err == nil {
		h.Skipped = owed(former, state.Last, h.Upto)
		if isShort(former, h.Upto) {
			f.r.cfg.Logger.Info("the former schedule of the job is not known up to now; those of its ticks that are later than the ledger knows are skipped and not recorded",
				"job", f.j.name, "schedule", h.Spec)
		}
		return h
	}
	f.r.cfg.Logger.Info("the former schedule of the job cannot be read here; of its ticks that are skipped one at most is recorded",
		"job", f.j.name, "schedule", h.Spec)
	if state.Next.After(state.Last) && !state.Next.After(h.Upto) {
		h.Skipped = &ledger.Skip{First: state.Next, Last: state.Next, Count: 1, Reason: skipRescheduled}
	}
	return h
}

// tell logs and counts what has changed since the last look.
func (f *follower) tell(state ledger.State, handover *ledger.Handover) {
	log := f.r.cfg.Logger.WithValues("job", f.j.name)
	switch {
	case state.Superseded && f.state.Now.IsZero():
		log.Info("another definition of the job is in use; this replica waits until its own may take over")
	case state.Superseded && !f.state.Superseded:
		log.Info("another definition of the job is in use; this replica claims none of its ticks")
	case !state.Superseded && f.state.Superseded:
		log.Info("this replica's definition of the job is in use")
	}
	switch {
	case state.Paused && !f.state.Paused:
		log.Info("the job is paused", "since", state.PausedSince)
	case !state.Paused && f.state.Paused:
		log.Info("the job is resumed")
	}
	if state.Lost {
		log.Error(errLedgerLost, "the ledger of the job was lost or set back; it goes on from what the replicas remember", "last", state.Last)
		f.j.metrics.losses.Inc()
	}
	if state.Dropped && handover != nil && handover.Skipped != nil {
		owed := handover.Skipped
		log.Info("the schedule of the job has changed; ticks of the former one are skipped", "first", owed.First, "last", owed.Last, "count", owed.Count)
		f.j.metrics.skipped(owed)
	}
	switch {
	case state.Others == 0:
		f.beside, f.told = time.Time{}, false
	case f.beside.IsZero():
		f.beside = time.Now()
	case !f.told && time.Since(f.beside) >= rolloutWithin:
		f.told = true
		log.Error(errTwoDefinitions, "the job has had two definitions for long: a rollout that does not end, or another program that uses its name",
			"others", state.Others)
		f.j.metrics.conflicts.Inc()
	}
}
