package noon

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A Vigil draws noons on several independent Redis servers, which have no ledger. Its Keep is the
// function of a singleton.Daemon, so one replica at a time runs it.
//
// The database says which noons are drawn. A noon and its marker are written in one transaction,
// which refuses the token of an earlier holder. So each noon has one draw, even if two replicas
// hold the lease after a fault. The noons after the last draw are drawn in order, also late.
//
// Without a ledger, noons are times of the replica's clock, and a change of the schedule counts
// from the last draw.
type Vigil struct {
	Drawing  *Drawing
	Schedule schedule.Schedule
	// Began is when the replica started. Earlier noons are drawn only if there is a draw before
	// them.
	Began  time.Time
	Holder string

	last singleton.Run // the last attempt
}

// Keep draws noons until ctx ends or a draw fails. The Daemon then calls it again.
func (v *Vigil) Keep(ctx context.Context, token uint64) error {
	for since := v.Began; ; {
		last, err := v.Drawing.Store.Last(ctx, Job)
		if err != nil {
			return err
		}
		if !last.IsZero() && (since.Equal(v.Began) || last.After(since)) {
			since = last
		}
		tick := v.Schedule.Next(since)
		if tick.IsZero() {
			<-ctx.Done() // the schedule has ended
			return nil
		}
		timer := time.NewTimer(time.Until(tick))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		run := singleton.Run{Job: Job, Tick: tick, Attempt: 1, Token: token, Holder: v.Holder}
		if tick.Equal(v.last.Tick) {
			run.Attempt = v.last.Attempt + 1
		}
		v.last = run
		if err := v.Drawing.Draw(ctx, run); err != nil {
			return err
		}
		since = tick
	}
}
