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

// onTime is the time after its due time within which a draw is not late.
const onTime = 10 * time.Second

// A Cut is an end of a range that was moved, and the reason.
type Cut struct {
	At     time.Time
	Reason string
}

// Narrowed holds the ends of a range that Narrow has moved; nil: not moved.
type Narrowed struct {
	Since, Until *Cut
}

// Standing is the source of the job's status for Narrow. A *singleton.Job is one.
type Standing interface {
	Ledger
	Status(ctx context.Context) (singleton.Status, error)
}

// Narrow removes noons that cannot be checked from a range: those before the lottery began,
// and the newest ones if they are being drawn or are only just due. The remaining noons,
// possibly none, are final, so Check may read them while the lottery runs.
//
// The lottery began with its ledger, or with the first draw in the database if that is
// older. So if a ledger was lost and created again, noons before the new one are still
// checked. If a ledger has lost its beginning, the lottery began with its oldest record. If
// older records may have been dropped, the start of the range is not moved.
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

// beginning returns the new start of the range, or nil to keep it.
func beginning(ctx context.Context, st *store.Store, ledger Ledger, state singleton.Status, want store.Expected) (*Cut, error) {
	first, err := st.First(ctx, want.Job)
	if err != nil {
		return nil, err
	}
	began := &Cut{state.Begun.Add(time.Millisecond), "the ledger in Redis begins just before it, and no draw is older"} // the job does not claim the instant itself
	if state.Begun.IsZero() {
		oldest, err := oldestTrace(ctx, ledger, state)
		if err != nil || oldest.IsZero() {
			return nil, err
		}
		began = &Cut{oldest, "the ledger in Redis has lost its beginning, and no record of the lottery is older"}
	}
	if !first.IsZero() && first.Before(began.At) {
		began = &Cut{first, "it is the first draw in the database, and the ledger in Redis is not older"}
	}
	if !began.At.After(want.Since) {
		return nil, nil
	}
	return began, nil
}

// oldestTrace returns the oldest noon in the ledger. It returns the zero time if there is
// none, or if the ledger may have dropped older ones.
func oldestTrace(ctx context.Context, ledger Ledger, state singleton.Status) (oldest time.Time, err error) {
	runs, err := ledger.Runs(ctx, noon.KeepRuns)
	if err != nil || len(runs) >= noon.KeepRuns {
		return time.Time{}, err
	}
	trace := func(run singleton.RunID) {
		if !run.Triggered && (oldest.IsZero() || run.Tick.Before(oldest)) {
			oldest = run.Tick
		}
	}
	trace(singleton.RunID{Tick: state.Last})
	for _, run := range runs {
		trace(run.RunID)
	}
	for _, open := range state.Open {
		trace(open.RunID)
	}
	return oldest, nil
}

// pending returns why a noon may correctly be undrawn at the moment, or "" if it should
// have been drawn.
func pending(state singleton.Status, tick time.Time) string {
	at := slices.IndexFunc(state.Open, func(open singleton.Open) bool { return !open.Triggered && open.Tick.Equal(tick) })
	if at >= 0 && state.Open[at].Running {
		return fmt.Sprintf("it is being drawn by %s at attempt %d", state.Open[at].Holder, state.Open[at].Attempt)
	}
	settled := at < 0 && !tick.After(state.Last)
	if !settled && state.Replicas > 0 && state.Now.Sub(tick).Abs() < onTime {
		return fmt.Sprintf("it is due within %s of now", onTime)
	}
	return ""
}
