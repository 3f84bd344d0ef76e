package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// onTime is how long after a noon came due nobody is late with it.
const onTime = 10 * time.Second

// A Cut is an end of a range that was moved, and why.
type Cut struct {
	At     time.Time
	Reason string
}

// Narrowed are the ends of a range that Narrow has moved; nil: it has not.
type Narrowed struct {
	Since, Until *Cut
}

// Standing is where Narrow reads how the job stands; a *singleton.Job is one.
type Standing interface {
	Ledger
	Status(ctx context.Context) (singleton.Status, error)
}

// Narrow takes from a range what cannot be judged: the noons before the lottery
// began, which nobody was there to draw, and the newest ones, if they are being drawn
// at this moment or have only just come due. What is left, none at times, has ended
// for good: Check may read it while the lottery goes on.
//
// The lottery began with its ledger, or with the first draw in the database if that
// is older: a ledger that was lost and begun anew excuses no noon since then. A ledger
// that does not know its beginning any more began with the oldest trace of it; if
// older traces may have been dropped, nothing is excused.
func Narrow(ctx context.Context, st *store.Store, ledger Standing, want store.Expected) (store.Expected, Narrowed, error) {
	var cut Narrowed
	state, err := ledger.Status(ctx)
	if errors.Is(err, singleton.ErrNoLedger) {
		return want, cut, nil
	}
	if err != nil {
		return want, cut, err
	}
	if cut.Since, err = beginning(ctx, st, ledger, state, want); err != nil {
		return want, cut, err
	}
	if cut.Since != nil {
		want.Since = cut.Since.At
		if want.Since.After(want.Until) {
			want.Since = want.Until
		}
		want.Ticks = slices.DeleteFunc(slices.Clone(want.Ticks), func(t time.Time) bool { return t.Before(want.Since) })
	}
	for n, tick := range slices.Backward(want.Ticks) {
		reason := pending(state, tick)
		if reason == "" {
			break
		}
		want.Until, want.Ticks = tick, want.Ticks[:n]
		cut.Until = &Cut{want.Until, reason}
	}
	return want, cut, nil
}

// beginning is where the range begins instead; nil: where it does.
func beginning(ctx context.Context, st *store.Store, ledger Ledger, state singleton.Status, want store.Expected) (*Cut, error) {
	first, err := st.First(ctx, want.Job)
	if err != nil {
		return nil, err
	}
	began := &Cut{state.Begun.Add(time.Millisecond), "the ledger in Redis was begun just before, and no draw is older"} // the instant itself is not claimed
	if state.Begun.IsZero() {
		oldest, err := oldestTrace(ctx, ledger, state)
		if err != nil || oldest.IsZero() {
			return nil, err
		}
		began = &Cut{oldest, "the ledger in Redis has lost its beginning, and no trace of the lottery is older"}
	}
	if !first.IsZero() && first.Before(began.At) {
		began = &Cut{first, "that is the first draw in the database, and the ledger in Redis is not older"}
	}
	if !began.At.After(want.Since) {
		return nil, nil
	}
	return began, nil
}

// oldestTrace is the oldest noon that the ledger knows; zero if it knows none, or may
// have forgotten older ones.
func oldestTrace(ctx context.Context, ledger Ledger, state singleton.Status) (oldest time.Time, err error) {
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil || len(runs) >= noon.KeepRuns {
		return time.Time{}, err
	}
	trace := func(tick time.Time) {
		if _, triggered := singleton.TriggeredAt(tick); !triggered && (oldest.IsZero() || tick.Before(oldest)) {
			oldest = tick
		}
	}
	trace(state.Last)
	for _, run := range runs {
		trace(run.Tick)
	}
	for _, open := range state.Open {
		trace(open.Tick)
	}
	return oldest, nil
}

// pending is why a noon may not have been drawn yet without anything being wrong;
// empty: it should have been.
func pending(state singleton.Status, tick time.Time) string {
	at := slices.IndexFunc(state.Open, func(open singleton.Open) bool { return open.Tick.Equal(tick) })
	if at >= 0 && state.Open[at].Running {
		return fmt.Sprintf("it is being drawn by %s at attempt %d", state.Open[at].Holder, state.Open[at].Attempt)
	}
	settled := at < 0 && !tick.After(state.Last)
	if !settled && state.Replicas > 0 && state.Now.Sub(tick).Abs() < onTime {
		return fmt.Sprintf("it comes due within %s of now", onTime)
	}
	return ""
}
