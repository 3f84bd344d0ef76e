package singleton

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// follower is what a replica knows of one job, and does about it. Its loop:
//
//	look at the ledger -> take over what is dead -> plan the due ticks
//	  -> claim or skip -> start the run
//
// and between: wait for the next tick, for the end of another's hold, for a
// message, for the end of a run of our own, or for the time to look again. The
// ledger's scripts decide; what is known here only says when to try.
type follower struct {
	r     *Runner
	j     *job
	stop  *stopping.Deadline
	nudge chan struct{}

	state  ledger.State
	known  bool      // state is as good as asking again
	looked time.Time // when it was read
	own    written   // the schedule of the job
	beside time.Time // since when there are replicas of other definitions
	told   bool      // that there are, for long

	wg   sync.WaitGroup // of our runs
	mu   sync.Mutex
	mine map[int64]bool // ticks that this replica runs now
	over []time.Time    // ticks whose end it has recorded since it looked
}

// follow is the life of one job on this replica, until ctx ends and its runs
// have returned.
func (r *Runner) follow(ctx, work context.Context, deadline *stopping.Deadline, j *job) {
	f := &follower{r: r, j: j, stop: deadline, nudge: make(chan struct{}, 1), mine: map[int64]bool{}}
	defer f.wg.Wait()
	defer f.leave(ctx)
	defer j.ledger.Watch(f.wake)()
	wait := retry.Pauses(50*time.Millisecond, 2*time.Second)
	defer j.ready.Run(ctx)() // it claims nothing from then on
	for ctx.Err() == nil {
		pause, err := f.step(ctx, work)
		switch {
		case err == nil:
			wait.Reset()
			if j.ready.Works(readyFor) {
				r.cfg.Logger.Info("the ledger answers again", "job", j.name)
			}
		case ctx.Err() != nil:
			return
		default:
			f.known = false
			pause = wait.NextBackOff()
			const text = "the ledger cannot be used; ticks are late until it can"
			switch temporary := lockcore.IsTemporary(err); {
			case !j.ready.Failed(err, temporary):
			case temporary:
				r.cfg.Logger.Info(text, "job", j.name, "err", err)
			default:
				r.cfg.Logger.Error(err, text, "job", j.name)
			}
		}
		if err == nil {
			// Who is told of something all the time has to look, too: the others
			// take a replica for dead that does not.
			pause = min(pause, max(0, f.lookAfter()-time.Since(f.looked)))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			// Nothing was heard: a claim on an old view is refused, so there is
			// no need to look before each.
		case <-f.nudge:
			f.known = f.known && f.occupied() // while we run it, news is only of us
		case <-ctx.Done():
		}
		timer.Stop()
		f.known = f.known && time.Since(f.looked) < f.lookAfter()
	}
}

// lookAfter is how long what was read is used.
func (f *follower) lookAfter() time.Duration { return min(cmp.Or(f.state.Again, lookEvery), lookEvery) }

// wake makes the follower look.
func (f *follower) wake() {
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

// step does what is to be done now, and says when to look again.
func (f *follower) step(ctx, work context.Context) (time.Duration, error) {
	for {
		if !f.known {
			if err := f.look(ctx); err != nil {
				return 0, err
			}
		}
		again, pause, err := f.act(ctx, work)
		if err != nil || !again {
			return pause, err
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
}

// leave tells that this replica claims no more.
func (f *follower) leave(ctx context.Context) {
	left, stop := f.stop.Context(ctx, 0)
	defer stop()
	trying, cancel := context.WithTimeout(left, f.stop.Last())
	defer cancel()
	if err := f.j.ledger.Leave(trying, f.state); err != nil {
		f.r.cfg.Logger.Info("could not tell that this replica is leaving; it will be missed", "job", f.j.name, "err", err)
	}
}

// act does one thing: takes over a dead run, or claims or skips due ticks. It
// reports whether there may be more to do at once, or after what pause.
func (f *follower) act(ctx, work context.Context) (again bool, pause time.Duration, err error) {
	pause = lookEvery
	if f.state.Superseded || f.occupied() {
		return false, pause, nil
	}
	others := false
	for _, open := range f.state.Open {
		left := open.Left - time.Since(f.looked)
		_, triggered := TriggeredAt(open.Tick)
		switch {
		case f.isMine(open.Tick):
		case left > 0:
			others = true
			pause = min(pause, left+2*time.Millisecond)
		case triggered || !f.state.Paused:
			return f.claim(ctx, work, open.Tick, ledger.ClaimConfig{})
		}
	}
	if f.state.Paused || others && f.j.cfg.Overlap == OverlapForbid {
		return false, pause, nil
	}
	now, _ := f.r.clock.now()
	p := f.j.plan(f.state, now)
	switch {
	case !p.run.IsZero():
		return f.claim(ctx, work, p.run, ledger.ClaimConfig{Skipped: p.skip, Until: p.until})
	case p.skip != nil:
		sent := time.Now()
		err := f.j.ledger.Skip(ctx, f.state, *p.skip)
		if err == nil {
			f.j.metrics.skipped(p.skip)
		}
		f.known = false
		return f.refused(p.skip.Last, sent, err)
	case !p.next.IsZero():
		f.j.metrics.due(p.next)
		pause = min(pause, p.next.Sub(now)+f.r.clock.slack())
	}
	return false, pause, nil
}

// occupied reports that this replica runs a tick beside which no other may run.
func (f *follower) occupied() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mine) > 0 && f.j.cfg.Overlap == OverlapForbid
}

// setOver notes that a tick has ended for good.
func (f *follower) setOver(tick time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = append(f.over, tick)
}

// forget takes the ticks that have ended out of what is known to be open.
func (f *follower) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Open = slices.DeleteFunc(f.state.Open, func(open ledger.OpenRun) bool {
		return slices.ContainsFunc(f.over, open.Tick.Equal)
	})
	f.over = nil
}

func (f *follower) isMine(tick time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mine[tick.UnixMilli()]
}

func (f *follower) setMine(tick time.Time, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if is {
		f.mine[tick.UnixMilli()] = true
	} else {
		delete(f.mine, tick.UnixMilli())
	}
}
