package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

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
