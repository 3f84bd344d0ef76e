package replica

import (
	"cmp"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/slots"
)

// A follower runs the ticks of one job on this replica.
type follower struct {
	*loop
	r    *Replica
	job  *Job
	def  Definition // newest that was noticed
	stop *stopping.Deadline

	state         ledger.State
	readAt        time.Time // local time of the last read
	freshness     freshness // of the state
	peerRan       time.Time // last sign of a run on another replica
	conflictSince time.Time // start of the current mix of definitions, or last error about it
	overdueTick   time.Time // first due tick that will not run; see checkAhead

	running map[int64]*ledger.Claim // runs of this replica, by their keys
	slot    *slots.Slot             // requested for the next claim
	queued  bool                    // whether the last claim waits for slot

	once *once // nil for a job of a Runner
	wg   sync.WaitGroup
}

// freshness says whether a follower must read its state before the next step.
type freshness int

const (
	stale    freshness = iota // the state must be read before it is used
	expired                   // as stale, but nothing says that the state has changed
	partial                   // Last and Open of the state are up to date
	complete                  // nothing has changed since the state was read
)

func (j *Job) newFollower() *follower {
	_, def := j.news()
	log := j.replica.log.WithValues("job", def.Name)
	return &follower{
		loop: newLoop(j.wake, &j.Ready, log, j.replica.reports, true),
		r:    j.replica, job: j, def: def, running: map[int64]*ledger.Claim{},
	}
}

// readAfter returns how long the state is used after it was read.
func (f *follower) readAfter() time.Duration {
	after := cmp.Or(f.state.Again, readEvery)
	if len(f.state.Open) > 0 {
		after = min(after, readEvery)
	}
	return after
}

// holder returns the replica that held a run when the ledger was read, or nothing.
func (f *follower) holder(id ledger.RunID) string {
	if open := f.state.Run(id); open != nil {
		return open.Holder
	}
	return ""
}

// applyEvents brings the state up to date with the events since the last step.
func (f *follower) applyEvents() {
	events, def := f.job.news()
	for _, e := range events {
		if e.updated {
			f.def, f.freshness, f.overdueTick = def, stale, time.Time{}
			continue
		}
		explained := e.end != nil
		if e.returned != nil {
			delete(f.running, e.returned.Key())
		}
		switch {
		case !explained:
		case e.returned != nil:
			f.state.ApplyEnd(*e.end, e.succeeded)
		default:
			if f.running[e.end.Key()] == nil && f.state.Run(*e.end) != nil { // not a run of this replica
				f.peerRan = time.Now()
			}
			explained = f.state.ApplyMessage(*e.end, e.succeeded)
		}
		if explained {
			f.freshness = min(f.freshness, partial)
		} else {
			f.freshness = stale
		}
	}
	if len(events) > 0 {
		f.show(time.Time{})
	}
}

// show shows the state. succeeded is the newest tick whose success an answer of the ledger reports, or zero.
func (f *follower) show(succeeded time.Time) {
	if !succeeded.IsZero() {
		f.ready.Recorded(succeeded) // so Ready forgets an earlier outcome that was refused
	}
	f.job.metrics.show(&f.state)
}

// showNext shows when the next tick is due. While due ticks do not run (overdueTick), it shows the first of them, so
// that the job counts as overdue.
func (f *follower) showNext(next time.Time) {
	if !f.overdueTick.IsZero() {
		next = f.overdueTick
	}
	f.job.metrics.showTime(f.job.metrics.next, next)
}
