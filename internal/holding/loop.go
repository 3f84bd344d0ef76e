// Package holding has the loop of an elector: work that runs under a lease for as long as a process lives.
//
//	                 ┌───────────────── pause ◄──────────────┐
//	                 ▼                                       │
//	Run ──► campaigning ──granted──► working ──returned──► released ──► Run returns
//	         │  ▲    └──ctx ends, Client closed──► Run returns
//	         └──┘ failed: pause
//
// Only Run changes the state of the loop, on its caller's goroutine. A release that is not answered in time
// continues in the background. If it is never answered, the lease expires on the server. A lease
// that was granted after the end of ctx is released at once.
package holding

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/stopping"
)

// A Lease is what a Loop holds. It ends once.
type Lease interface {
	// Err returns the cause of the end, nil while the lease is valid.
	Err() error
}

// A Holder implements the steps that differ between loops. Run calls its methods one after
// the other, on its own goroutine.
type Holder[L Lease] interface {
	// Prepare returns an error if this replica could not hold the lease. A campaign does not notice that while another
	// replica holds the lease. Run calls Prepare before the first campaign, and again after a failed campaign.
	Prepare(ctx context.Context) error
	// Campaign waits for the lease.
	Campaign(ctx context.Context) (L, error)
	// Work does the work and returns when all of it has ended. waited is the duration of
	// the campaign, including failures and the pauses after them.
	Work(ctx context.Context, lease L, waited time.Duration)
	// Release releases the lease and waits for the reply until ctx ends. It is called even if the lease has ended.
	Release(ctx context.Context, lease L) error
	// Released is called after Release, which returned err, and also after a panic or Goexit of Work, before the panic
	// continues. lost is the cause if the lease had ended before the release.
	Released(lease L, lost, err error)
	// Next returns whether to campaign again, and the pause before the next campaign. lost is the argument of
	// Released. held is the time from the beginning of Work to the end of Released.
	Next(lost error, held time.Duration) (pause time.Duration, again bool)
}

// A Loop campaigns for a lease and holds it around work, again and again. All fields are required.
type Loop[L Lease] struct {
	Holder   Holder[L]
	TTL      time.Duration      // TTL of the lease
	Retry    time.Duration      // pause after a failed campaign
	Ready    *readiness.State   // ready while the replica holds or waits for the lease
	Deadline *stopping.Deadline // limits releases after the end of Run's context
	Log      logr.Logger
	Reports  *readiness.Reports // log of failed campaigns

	failedAt time.Time // end of the newest failed campaign
}

// releaseWithin limits how long a loop waits for the answer to a release.
const releaseWithin = 5 * time.Second

// Run campaigns and works until ctx ends or Next returns false; then it returns nil. The error
// is lockcore.ErrClosed if the Client was closed.
func (l *Loop[L]) Run(ctx context.Context) error {
	defer l.Ready.Run(ctx)()
	observed := readiness.WithAnswers(ctx, func(err error) {
		if ctx.Err() == nil {
			l.answered(err)
		}
	})
	prepared := false
	for began := time.Now(); ctx.Err() == nil; {
		var lease L
		var err error
		if !prepared {
			err = l.Holder.Prepare(observed)
		}
		if err == nil {
			lease, err = l.Holder.Campaign(observed)
		}
		prepared = err == nil
		switch {
		case ctx.Err() != nil:
			if err == nil { // granted after the end of ctx
				if err := l.release(ctx, lease); err != nil {
					lock.Log(l.Log, err, "failed to release lease; it will expire")
				}
			}
			return nil
		case errors.Is(err, lock.ErrClosed):
			return err
		case err != nil:
			l.failedAt = time.Now()
			l.answered(err)
			retry.Sleep(ctx, l.Retry, nil)
			continue
		}
		l.Ready.Works(math.MaxInt64) // until the lease has ended, however long that takes
		held := time.Now()
		lost := l.hold(ctx, lease, held.Sub(began))
		pause, again := l.Holder.Next(lost, time.Since(held))
		l.Ready.Works(pause + l.staleAfter())
		if !again {
			return nil
		}
		retry.Sleep(ctx, pause, nil)
		began = time.Now()
	}
	return nil
}

// hold does the work under the lease, and releases the lease even if the work panics. It
// returns the cause if the lease had ended before the release.
func (l *Loop[L]) hold(ctx context.Context, lease L, waited time.Duration) (lost error) {
	defer func() {
		lost = lease.Err()
		l.Holder.Released(lease, lost, l.release(ctx, lease))
	}()
	l.Holder.Work(ctx, lease, waited)
	return nil
}

func (l *Loop[L]) release(ctx context.Context, lease L) error {
	left, cancel := l.Deadline.Context(ctx, 0)
	defer cancel()
	trying, stop := context.WithTimeout(left, min(l.TTL, releaseWithin))
	defer stop()
	return l.Holder.Release(trying, lease)
}

// answered updates the readiness after a campaign, or a request of it.
func (l *Loop[L]) answered(err error) {
	switch {
	case err != nil:
		l.Ready.Failed(l.Reports, l.Log, err, lock.IsTemporary(err))
	case time.Since(l.failedAt) >= l.TTL: // after a failure, a reply is not enough: a server may queue and still refuse
		l.Ready.Works(l.staleAfter())
	}
}

// staleAfter returns how long a campaign counts as working after a reply: a campaign sends a request every 1.1 TTLs.
func (l *Loop[L]) staleAfter() time.Duration { return 4 * max(l.TTL, time.Second) }
