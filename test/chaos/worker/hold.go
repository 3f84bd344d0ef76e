package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
)

// A lease is what a careful user asks a library during its work.
type lease struct {
	token     uint64
	slot      int                  // -1: it has none
	check     func() error         // nil while the lease is valid
	remaining func() time.Duration // how long it stays valid
	unlock    func(ctx context.Context) error
}

// A term is the time of one lease.
type term struct {
	w     *worker
	about history.Event // kind, name, id, mode, slot and token of all its events
	until int64
}

// ask records the begin of a call that waits for at most limit; 0: without a limit.
func (w *worker) ask(kind, name, mode string, limit time.Duration) *term {
	t := &term{w: w, about: history.Event{Kind: kind, Name: name, Mode: mode, ID: int(w.calls.Add(1))}}
	if limit > 0 {
		t.until = history.Now() + limit.Nanoseconds()
	}
	t.add(history.Ask, nil)
	t.until = 0
	return t
}

func (t *term) add(what string, err error) {
	e := t.about
	e.What, e.Until = what, t.until
	if err != nil {
		e.Err = err.Error()
	}
	t.w.log.Add(e)
}

// granted records the result of a call.
func (t *term) granted(l *lease, err error) bool {
	if err != nil {
		t.add(history.Failed, err)
		return false
	}
	t.about.Token = l.token
	if l.slot >= 0 {
		t.about.Slot = l.slot
	}
	t.believe(l)
	t.add(history.Granted, nil)
	return true
}

// believe reads until when the lease is valid at least: the clock is read before.
func (t *term) believe(l *lease) (changed bool) {
	now := history.Now()
	left := l.remaining()
	if t.w.Rate > 0 {
		left = time.Duration(float64(left) / t.w.Rate)
	}
	if until := now + left.Nanoseconds(); left > 0 && until > t.until+t.w.TTL.Nanoseconds()/10 {
		t.until = until
		return true
	}
	return false
}

// work holds a lease for a while, and writes to the resource. It returns when the time is over, when ctx ends, or when
// the lease has ended, which it records. whole: the lease is held until ctx ends.
func (t *term) work(ctx context.Context, r *rand.Rand, l *lease, writes, whole bool) (held bool) {
	hold := time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	if t.w.Holds > 0 && r.IntN(t.w.Holds) == 0 {
		hold = t.w.TTL + time.Duration(r.Int64N(int64(2*t.w.TTL)))
	}
	for end := history.Now() + hold.Nanoseconds(); ; {
		if err := l.check(); err != nil {
			t.add(history.Lost, err)
			return false
		}
		if t.believe(l) {
			t.add(history.Until, nil)
		}
		if writes {
			retry.Sleep(ctx, time.Duration(r.Int64N(int64(t.w.Slow)+1)), nil)
			t.write()
		}
		left := time.Duration(end - history.Now())
		if ctx.Err() != nil || left <= 0 && !whole {
			return true
		}
		if whole {
			left = t.w.TTL
		}
		retry.Sleep(ctx, min(left, t.w.TTL/20), nil)
	}
}

// write asks the resource for a write, which it records.
func (t *term) write() {
	unit := fmt.Sprint(t.about.Kind, "/", t.about.Name, "/", t.about.Slot)
	e := history.Event{W: t.w.Process, Name: unit, ID: t.about.ID, Token: t.about.Token}
	_ = t.w.resource.Call("Resource.Write", e, &struct{}{}) // its answer changes nothing
}
