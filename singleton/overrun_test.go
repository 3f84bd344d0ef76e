package singleton_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Work of a Runner that ignores its context is reported as long as it continues.
// Mutants: the end of the lease is not noticed; an attempt that has returned is still
// reported; the tolerance is not granted.
func TestRunnerCheckFindsAnOverrun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c, faults := f.Linked("stuck")
		r, err := singleton.NewRunner(c, singleton.Config{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		begun, leave := make(chan struct{}, 1), make(chan struct{})
		err = r.Add("draw", "@every 1h", func(context.Context, singleton.Run) error {
			begun <- struct{}{}
			<-leave
			return nil
		}, singleton.JobConfig{})
		if err != nil {
			t.Fatal(err)
		}
		run := f.run(r.Run)
		receive(f, begun, "the start")
		time.Sleep(10 * time.Minute)
		if err := r.Check(0); err != nil {
			t.Errorf("Check while it is held: %v", err)
		}
		f.kill(faults)
		time.Sleep(15 * time.Second)
		if err := r.Check(time.Minute); err != nil {
			t.Errorf("Check within the tolerance: %v", err)
		}
		if err := r.Check(time.Second); !errors.Is(err, singleton.ErrOverrun) || !errors.Is(err, lockcore.ErrLeaseExpired) {
			t.Errorf("Check: %v, want ErrOverrun and the cause", err)
		}
		close(leave)
		synctest.Wait()
		if err := r.Check(0); err != nil {
			t.Errorf("Check after it has returned: %v", err)
		}
		faults.Heal()
		run.end()
	})
}
