package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// FAULT 52: the lease is released after the function has returned, however long that takes
// (P4).
// Mutant: release when ctx ends.
func TestDaemonStopWaitsForTheFunction(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const slow = 5 * time.Minute
		starts := make(chan daemonStart, 2)
		var returned time.Duration
		first := f.run(f.daemon(f.Client("slow"), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			f.begins("slow", token)
			starts <- daemonStart{"slow", token, f.Clock()}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
				t.Errorf("cause: %v, want Run's context's", cause)
			}
			time.Sleep(slow)
			returned = f.Clock()
			f.ends("slow", token)
			return nil
		}, singleton.DaemonConfig{}).Run)
		receive(f, starts, "the start")
		f.run(f.daemon(f.Client("next"), f.steady("next", starts, nil), singleton.DaemonConfig{}).Run)
		f.Until("the next one is queued", func() bool { return f.queued("feed") == 1 })
		first.cancel()
		time.Sleep(slow - time.Second)
		if first.over() || len(starts) > 0 {
			t.Error("handed over before the function has returned")
		}
		time.Sleep(2 * time.Second)
		if next := receive(f, starts, "the hand-over"); next.at < returned || next.at > returned+10*time.Millisecond {
			t.Errorf("started at %v, want right after %v", next.at, returned)
		}
		f.history.Require(t)
	})
}

// FAULT 54: the holder dies. Its function is stopped by its own clock before the successor
// starts, which happens within TTL + 0.5 s.
func TestDaemonIsTakenOverFromTheDead(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		cfg := singleton.DaemonConfig{TTL: f.ttl(time.Second)}
		starts, ends := make(chan daemonStart, 3), make(chan error, 3)
		c, faults := f.Linked("dies")
		f.run(f.daemon(c, f.steady("dies", starts, ends), cfg).Run)
		first := receive(f, starts, "the start")
		f.run(f.daemon(f.Client("next"), f.steady("next", starts, nil), cfg).Run)
		f.Until("the next one is queued", func() bool { return f.queued("feed") == 1 })
		killed := f.Clock()
		f.kill(faults)
		next := receive(f, starts, "the takeover")
		if f.Bubble != nil && len(ends) == 0 {
			t.Error("taken over before the dead one's function has stopped")
		}
		if cause := receive(f, ends, "its end"); !errors.Is(cause, lockcore.ErrLeaseExpired) {
			t.Errorf("cause: %v, want ErrLeaseExpired", cause)
		}
		if next.token <= first.token || next.replica != "next" {
			t.Errorf("taken over by %+v from %+v", next, first)
		}
		if took := next.at - killed; f.Bubble != nil && took > cfg.TTL+500*time.Millisecond {
			t.Errorf("taken over after %v", took)
		}
		// It returns and queues.
		faults.Heal()
		f.Until("it is queued again", func() bool { return f.queued("feed") == 1 })
		f.stoppedInTime(t)
	})
}

// FAULT 23: the lock is deleted. The function's context ends, and it is started again under
// a new lease.
func TestDaemonCampaignsAgainAfterALoss(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		starts, ends := make(chan daemonStart, 2), make(chan error, 2)
		f.run(f.daemon(f.Client("a"), f.steady("a", starts, ends), singleton.DaemonConfig{
			TTL: 6 * time.Second, Backoff: time.Minute, HandOverAfter: 1,
		}).Run)
		first := receive(f, starts, "the start")
		if n, err := f.Raw.Del(f.Context(), "noonlock:{job/daemon/feed}:lock").Result(); n != 1 || err != nil {
			t.Fatalf("deleted %d keys: %v", n, err)
		}
		if cause := receive(f, ends, "its end"); !errors.Is(cause, lockcore.ErrLeaseLost) {
			t.Errorf("cause: %v, want ErrLeaseLost", cause)
		}
		lost := f.Clock()
		again := receive(f, starts, "the next start")
		if again.token <= first.token {
			t.Errorf("token %d after %d", again.token, first.token)
		}
		// A loss is not a failure of the function.
		if pause := again.at - lost; f.Bubble != nil && pause > 10*time.Millisecond {
			t.Errorf("started again after %v, want at once", pause)
		}
		f.history.Require(t)
	})
}

// A function that ignores its context is reported, and never runs twice here.
func TestDaemonCheckFindsAnOverrun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c, faults := f.Linked("stuck")
		started, leave := make(chan uint64, 2), make(chan struct{})
		s := f.daemon(c, func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			started <- token
			<-leave
			return nil
		}, singleton.DaemonConfig{})
		if err := s.Check(0); err != nil {
			t.Errorf("Check before Run: %v", err)
		}
		run := f.run(s.Run)
		first := receive(f, started, "the start")
		time.Sleep(10 * time.Minute)
		if err := s.Check(0); err != nil {
			t.Errorf("Check while it is held: %v", err)
		}
		f.kill(faults)
		time.Sleep(11 * time.Second)
		if err := s.Check(10 * time.Second); err != nil {
			t.Errorf("Check within the tolerance: %v", err)
		}
		if err := s.Check(0); !errors.Is(err, singleton.ErrOverrun) || !errors.Is(err, lockcore.ErrLeaseExpired) {
			t.Errorf("Check: %v, want ErrOverrun and the cause", err)
		}
		if err := s.Run(t.Context()); !errors.Is(err, singleton.ErrRunning) {
			t.Errorf("a second Run: %v, want ErrRunning", err)
		}
		faults.Heal()
		time.Sleep(time.Minute)
		if len(started) > 0 {
			t.Error("started again while it was running")
		}
		leave <- struct{}{}
		if second := receive(f, started, "the next start"); second <= first {
			t.Errorf("token %d after %d", second, first)
		}
		if err := s.Check(0); err != nil {
			t.Errorf("Check after it has returned: %v", err)
		}
		run.cancel()
		close(leave)
		if err := run.result(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := s.Check(0); err != nil {
			t.Errorf("Check after Run: %v", err)
		}
	})
}

// A DaemonRunner waits for a server that is unreachable or refuses requests.
func TestDaemonWaitsForTheServer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		f.Bubble.Stop()
		starts := make(chan daemonStart, 1)
		run := f.run(f.daemon(f.Client("a"), f.steady("a", starts, nil), singleton.DaemonConfig{}).Run)
		time.Sleep(10 * time.Minute)
		if run.over() || len(starts) > 0 {
			t.Fatal("Run did not wait")
		}
		if err := f.Bubble.Start(true); err != nil {
			t.Fatal(err)
		}
		f.Bubble.Server().SetError("NOPERM this user has no permissions")
		time.Sleep(10 * time.Minute)
		if run.over() || len(starts) > 0 {
			t.Fatal("Run did not wait for its rights")
		}
		f.Bubble.Server().SetError("")
		receive(f, starts, "the start")
		run.end()
	})
}

func TestDaemonEndsWithItsClient(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		c := f.Client("a")
		starts, ends := make(chan daemonStart, 1), make(chan error, 1)
		run := f.run(f.daemon(c, f.steady("a", starts, ends), singleton.DaemonConfig{}).Run)
		receive(f, starts, "the start")
		if err := c.Close(f.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if cause := receive(f, ends, "the end"); !errors.Is(cause, lockcore.ErrClosed) {
			t.Errorf("cause: %v, want ErrClosed", cause)
		}
		if err := run.result(); !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("Run: %v, want ErrClosed", err)
		}
	})
}
