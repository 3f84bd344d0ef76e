package singleton

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/lockcore"
)

// A Group limits how many runs of its jobs there are at a time, on all replicas together.
type Group struct {
	// Name is the name of a lockcore.Semaphore. A run has one of its slots during each attempt. Other programs may
	// use it, too. Its leases have the TTL of Config.
	Name string `json:",omitzero"`

	// Runs is the size of the Semaphore where none is stored: 1 to 1000. Semaphore.Resize changes the stored one.
	Runs int `json:",omitzero"`
}

// A group is the Group of some jobs of a Runner.
type group struct {
	slots *lockcore.Semaphore
	turn  chan struct{} // of the one that is in the queue of the Semaphore, so that replicas get slots in turn
}

// A place is the right to one run at a time.
type place struct {
	of   chan struct{}   // the places of the replica; nil: any number
	slot *lockcore.Lease // of the group; nil: the job has none
}

// take waits for a place: on this replica, and in the group of the job. It holds neither while it waits for the other:
//
//	   ┌──────────── full ◄────────────┐
//	   ▼                               │
//	wait for the replica ──► try the group ──► both
//	   ▲                               ▼ full
//	   └── full ◄── try the replica ◄── wait for the group
//
// Those that wait on this replica are served in order.
func (r *Runner) take(ctx context.Context, g *group) (*place, error) {
	p := &place{of: r.places}
	for {
		if !enter(ctx, p.of) {
			return nil, ctx.Err()
		}
		if g == nil {
			return p, nil
		}
		var err error
		select {
		case g.turn <- struct{}{}:
			p.slot, err = g.slots.TryAcquire(ctx)
			<-g.turn
		default:
			err = lockcore.ErrNotAcquired
		}
		if err == nil {
			return p, nil
		}
		leave(p.of)
		if !errors.Is(err, lockcore.ErrNotAcquired) {
			return nil, err
		}
		if !enter(ctx, g.turn) {
			return nil, ctx.Err()
		}
		p.slot, err = g.slots.Acquire(ctx)
		leave(g.turn)
		if err != nil {
			return nil, err
		}
		select {
		case p.of <- struct{}{}:
			return p, nil
		default:
		}
		if p.of == nil {
			return p, nil
		}
		_ = p.slot.Unlock(ctx)
	}
}

// enter waits for a place in a channel, which serves in order. It returns false if ctx has ended.
func enter(ctx context.Context, of chan struct{}) bool {
	if of == nil {
		return ctx.Err() == nil
	}
	select {
	case of <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func leave(of chan struct{}) {
	if of != nil {
		<-of
	}
}

// leave gives a place back; nil: there is none. If a slot cannot be given back, it expires with its TTL.
func (p *place) leave(ctx context.Context) {
	if p == nil {
		return
	}
	leave(p.of)
	if p.slot != nil {
		_ = p.slot.Unlock(ctx)
	}
}

// A seat is a call of take for the next claim of a follower, in the background.
type seat struct {
	group *group
	stop  context.CancelFunc
	taken chan struct{} // closed at its end
	place *place
	err   error
}

// place returns a place for a claim, or nil if that has to wait. The loop is then woken.
func (f *follower) place(ctx context.Context) (*place, error) {
	if f.r.places == nil && f.j.group == nil {
		return &place{}, nil
	}
	if f.seat != nil && f.seat.group != f.j.group { // the job was changed
		f.unseat(ctx)
	}
	if f.seat == nil {
		s := &seat{group: f.j.group, taken: make(chan struct{})}
		ctx, s.stop = context.WithCancel(ctx)
		f.seat = s
		f.wg.Go(func() {
			defer f.wake()
			defer close(s.taken)
			s.place, s.err = f.r.take(ctx, s.group)
		})
	}
	select {
	case <-f.seat.taken:
		s := f.seat
		f.seat = nil
		s.stop()
		return s.place, s.err
	default:
		f.waits = true
		return nil, nil
	}
}

// unseat ends the wait for a place if the last step has not claimed anything.
func (f *follower) unseat(ctx context.Context) {
	s := f.seat
	if s == nil || f.waits {
		return
	}
	f.seat = nil
	s.stop()
	f.wg.Go(func() {
		<-s.taken
		f.stop.Do(ctx, s.place.leave)
	})
}

// seat waits for a place before another attempt. It returns false if ctx or the lease of the run has ended, or the run
// is canceled.
func (x *jobRun) seat(ctx context.Context) bool {
	bound, stop := x.run.Bind(ctx)
	defer stop()
	waiting, cancel := context.WithCancel(bound)
	defer cancel()
	defer x.run.OnCancel(func(error) { cancel() })()
	for pauses := retry.Pauses(50*time.Millisecond, 2*time.Second); waiting.Err() == nil; {
		p, err := x.r.take(waiting, x.j.group)
		if err == nil {
			x.place, x.slot = p, p.slot
			return true
		}
		retry.Sleep(waiting, pauses.NextBackOff(), nil)
	}
	return false
}

// semaphore returns the semaphore of a group.
func (g Group) semaphore(client *lockcore.Client, lease lockcore.LeaseConfig) (*lockcore.Semaphore, error) {
	slots, err := client.Semaphore(g.Name, g.Runs, lease)
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		field := map[string]string{"n": "JobConfig.Group.Runs", "name": "JobConfig.Group.Name"}[refused.Field]
		return nil, &noonlock.ConfigError{Package: "singleton", Field: field, Value: refused.Value, Rule: refused.Rule}
	}
	return slots, err
}

// group returns the group of a job. Jobs with the same name of it share one.
func (r *Runner) group(of Group) (*group, error) {
	if of == (Group{}) {
		return nil, nil
	}
	slots, err := of.semaphore(r.client, r.lease())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups[of.Name] == nil {
		r.groups[of.Name] = &group{slots, make(chan struct{}, 1)}
	}
	return r.groups[of.Name], nil
}
