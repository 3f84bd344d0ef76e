package singleton

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A follower runs the ticks of one job on this replica. Its steps:
//
//	check the ledger -> claim the open runs that nobody holds -> plan the due ticks
//	  -> claim or skip -> start the run
//
// Between two steps its loop waits for the next tick, the end of another replica's lease, a
// message, the end of a run of this replica, or the next periodic check. The ledger's scripts
// decide; the state here only selects which request to send.
type follower struct {
	*loop
	r    *Runner
	j    *job // its newest definition that was noticed
	end  context.CancelCauseFunc
	stop *stopping.Deadline

	state         ledger.State
	looked        time.Time // when it was read
	heard         time.Time // when a run of another replica ended, or was found to be held
	known         knowledge // of what has changed since then
	conflictSince time.Time // start of the current mix of definitions, or its last error
	owed          time.Time // the first due tick that does not run, see lookAhead; zero: none

	mine map[int64]*ledger.Claim // by their keys, what this replica runs now

	seat  *place // requested for the next claim; nil: none waits for a place
	waits bool   // the last claim does

	once *onceCall // nil for a job of a Runner
	over bool      // that call is

	wg      sync.WaitGroup // of the runs of this replica
	mu      sync.Mutex
	noticed []change // since the last step
}

// knowledge is what a follower knows of its job without another look.
type knowledge int

const (
	outdated knowledge = iota // the state must be read before it is used
	old                       // the same, and nothing says that it has changed
	present                   // Last and Open of the state are up to date
	entire                    // all of the state is: nothing has ended since it was read
)

// A change of the job: it has another definition here, a run of this replica has returned, a message says that a run
// has ended, or, with none of them, anything may have changed.
type change struct {
	to        *job
	run       *jobRun
	end       *ledger.RunID // of a run of this replica, nil if it has not ended
	succeeded bool
}

// newFollower returns a follower for follow. end ends the context of that.
func (r *Runner) newFollower(j *job, end context.CancelCauseFunc) *follower {
	log := r.log.WithValues("job", j.name)
	reports := lock.Of(r.client).Reports("jobs", "ledger unavailable; ticks are delayed", "ledger available again")
	return &follower{
		loop: newLoop(j.ready, log, reports, true),
		r:    r, j: j, end: end, mine: map[int64]*ledger.Claim{},
	}
}

// follow runs one job on this replica until ctx ends or a call of Once is over, and its runs have returned.
func (f *follower) follow(ctx context.Context) error {
	defer f.end(nil)
	defer f.forget()
	var done func()
	f.stop, done = stopping.New(ctx, f.r.cfg.ShutdownTimeout, (f.r.cfg.ShutdownTimeout-f.r.cfg.Drain)/5)
	defer done()
	work, free := f.r.drained(ctx)
	defer free()
	defer f.wg.Wait()
	defer f.leave(ctx)
	defer func() { f.waits = false; f.unseat() }()
	defer f.j.ledger.Watch(func(end *ledger.RunID, succeeded bool) { f.notice(change{end: end, succeeded: succeeded}) })()
	defer f.j.ready.Run(ctx)() // after the end of ctx it claims nothing, so it is not ready
	return f.run(ctx, func() (pause time.Duration, over bool, err error) {
		pause, err = f.step(ctx, work)
		return pause, f.over, err
	})
}

// lookAfter returns how long the state is used after it was read.
func (f *follower) lookAfter() time.Duration {
	again := cmp.Or(f.state.Again, lookEvery)
	if len(f.state.Open) > 0 {
		again = min(again, lookEvery)
	}
	return again
}

// step acts until nothing is left to do now, and returns the pause before the next check.
func (f *follower) step(ctx, work context.Context) (pause time.Duration, err error) {
	// Without a message, the state need not be read again, because a claim with an old state
	// is refused.
	if time.Since(f.looked) >= f.lookAfter() && f.known != outdated {
		f.known = old
	}
	defer f.unseat()
	for again := true; again && err == nil; {
		f.waits = false
		f.catchUp()
		if err = ctx.Err(); err == nil && f.known <= old {
			err = f.look(ctx)
		}
		if err == nil {
			again, pause, err = f.act(ctx, work)
		}
	}
	if err != nil {
		f.known = outdated
		return 0, err
	}
	// Messages must not postpone the check: the others consider a replica without checks
	// dead.
	return min(pause, max(0, f.lookAfter()-time.Since(f.looked))), nil
}

// forget ends the series of the job if it was removed.
func (f *follower) forget() {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if f.r.jobs[f.j.name] == nil {
		f.j.metrics.forget()
	}
}

// leave deregisters this replica, which claims no more ticks.
func (f *follower) leave(ctx context.Context) {
	left, stop := f.stop.Context(ctx, 0)
	defer stop()
	trying, cancel := context.WithTimeout(left, f.stop.Last())
	defer cancel()
	if err := f.j.ledger.Leave(trying, f.state); err != nil && !errors.Is(err, lockcore.ErrClosed) {
		lock.Log(f.log, err, "failed to deregister replica; peers will time it out")
	}
}

// act does one thing: it claims an open run that nobody holds, or claims or skips due ticks. again
// reports whether there may be more to do at once; if not, pause is the time until then.
func (f *follower) act(ctx, work context.Context) (again bool, pause time.Duration, err error) {
	pause = f.lookAfter()
	forbidden, blocked := !f.j.cfg.AllowOverlap, false // by an earlier run, if runs may not overlap
	if f.state.Superseded || forbidden && len(f.mine) > 0 {
		return false, pause, nil
	}
	if f.once != nil {
		asked := len(f.state.Open) == 0 && !f.once.asked
		if f.over, err = f.once.step(ctx, f.j.ledger, f.state); f.over || err != nil {
			return false, 0, err
		}
		if asked {
			f.once.asked, f.known = true, outdated
			return true, 0, nil
		}
	}
	settling := f.state.Settling - time.Since(f.looked)
	var free []ledger.RunID
	for _, open := range f.state.Open {
		left := open.Left - time.Since(f.looked)
		waits := open.Begins() && left > 0
		switch {
		case open.Holder == f.r.client.Identity() && f.state.Replicas > 1:
			left += stepBack
		case open.Asked != nil && open.Attempt == 0 && forbidden:
			left = max(left, stepBack-time.Since(f.heard))
		}
		switch {
		case f.mine[open.Key()] != nil, open.Begins() && f.state.Paused:
		case left > 0:
			blocked = blocked || !open.Over && !waits
			pause = min(pause, min(left, lookEvery)+2*time.Millisecond)
		case open.Over: // as a message says, which may be forged
			f.known = outdated
			return true, 0, nil
		case blocked && forbidden:
		case settling > 0 && !open.Triggered && open.Asked == nil:
			blocked, pause = true, min(pause, settling)
		case forbidden:
			return f.claim(ctx, work, open.RunID, time.Time{})
		default:
			free = append(free, open.RunID)
		}
	}
	if len(free) > 0 { // any, so that replicas seldom claim the same one
		return f.claim(ctx, work, free[rand.IntN(len(free))], time.Time{})
	}
	if f.state.Paused || blocked && forbidden || f.once != nil {
		return false, pause, nil
	}
	if settling > 0 {
		return false, min(pause, settling), nil
	}
	now, _ := f.r.clock.now()
	p := f.j.plan(f.state, now)
	switch {
	case p.skip != nil && f.known != entire: // the reason depends on when the last run ended
		f.known = outdated
		return true, 0, nil
	case p.skip != nil:
		return f.skip(ctx, *p.skip)
	case !p.run.IsZero():
		return f.claim(ctx, work, ledger.RunID{Tick: p.run}, p.until)
	case !p.next.IsZero():
		f.due(p.next)
		pause = min(pause, p.next.Sub(now)+f.r.clock.slack())
	}
	return false, pause, nil
}

// stepBack is how long the replica that has made an attempt leaves the next one to others, as the fault may be its own,
// and how long the others leave a request to the replica whose run has ended, as one claim is enough.
const stepBack = 100 * time.Millisecond

// notice records a change, and causes a step.
func (f *follower) notice(c change) {
	f.mu.Lock()
	f.noticed = append(f.noticed, c)
	f.mu.Unlock()
	f.wake()
}

// catchUp brings the state up to date with what was noticed since the last step.
func (f *follower) catchUp() {
	f.mu.Lock()
	noticed := f.noticed
	f.noticed = nil
	f.mu.Unlock()
	for _, c := range noticed {
		if c.to != nil {
			f.j, f.known, f.owed = c.to, outdated, time.Time{}
			continue
		}
		explained := c.end != nil
		if c.run != nil {
			delete(f.mine, c.run.run.Key())
		}
		switch {
		case !explained:
		case c.run != nil:
			f.state.Recorded(*c.end, c.succeeded)
		default:
			if f.mine[c.end.Key()] == nil && f.state.Run(*c.end) != nil { // its own ends are also announced
				f.heard = time.Now()
			}
			explained = f.state.Ended(*c.end, c.succeeded)
		}
		if explained {
			f.known = min(f.known, present)
		} else {
			f.known = outdated
		}
	}
	if len(noticed) > 0 {
		f.show(time.Time{})
	}
}
