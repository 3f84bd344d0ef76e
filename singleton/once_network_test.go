package singleton_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A caller that was refused because another run is in progress shares that run's outcome,
// even if it has ended before the next look.
func TestOnceRefusedClaimSharesTheOutcome(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		nothing := func(context.Context) error { return nil }
		warm, err := singleton.NewOnce(f.Client("warm"), "scripts", singleton.OnceConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := warm.Do(t.Context(), nothing); err != nil { // the server knows the scripts now
			t.Fatal(err)
		}
		c, faults := f.Linked("late")
		// Its requests are: look, claim, look.
		claim := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lockcoretest.Command("EVALSHA"), Skip: 1, Count: 1})
		look := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lockcoretest.Command("EVALSHA"), Skip: 2, Count: 1})
		late := f.do(f.once(c, singleton.OnceConfig{}), mustNotRun(t))
		f.Until("its claim is on its way", func() bool { return claim.Fired() == 1 })
		started, leave := make(chan struct{}), make(chan struct{})
		first := f.do(f.once(f.Client("first"), singleton.OnceConfig{}), func(context.Context) error {
			close(started)
			<-leave
			return errBroken
		})
		receive(f, started, "the run")
		claim.Lift()
		f.Until("its second look is on its way", func() bool { return look.Fired() == 1 })
		close(leave)
		want := onceFailure(t, first.result())
		look.Lift()
		if failed := onceFailure(t, late.result()); failed != want || failed.Holder != "first" {
			t.Errorf("outcome %v, want %v", failed, want)
		}
	})
}

// Do returns errors that only an operator can fix, and does not wait.
func TestOnceTellsARefusal(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		o := f.once(f.Client("a"), singleton.OnceConfig{})
		f.Bubble.Server().SetError("NOPERM this user has no permissions")
		if err := f.do(o, mustNotRun(t)).result(); err == nil || !strings.Contains(err.Error(), `once "migrate-7"`) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Do: %v, want the server's refusal", err)
		}
		f.Bubble.Server().SetError("LOADING Redis is loading the dataset in memory")
		run := f.do(o, func(context.Context) error { return nil })
		time.Sleep(10 * time.Minute)
		if run.over() {
			t.Errorf("Do did not wait for a server that is loading: %v", run.result())
		}
		f.Bubble.Server().SetError("")
		if err := run.result(); err != nil {
			t.Errorf("Do: %v", err)
		}
		c := f.Client("b")
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.do(f.once(c, singleton.OnceConfig{}), mustNotRun(t)).result(); !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("Do on a closed Client: %v", err)
		}
	})
}

// A success that cannot be recorded does not count: Do returns an error, and leaves the run
// to others.
func TestOnceSuccessThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		err := f.do(f.once(f.Client("a"), singleton.OnceConfig{}), func(context.Context) error {
			f.Bubble.Server().SetError("NOPERM this user has no permissions")
			return nil
		}).result()
		if err == nil || !strings.Contains(err.Error(), "outcome succeeded not recorded") || errors.Is(err, singleton.ErrOnceFailed) {
			t.Errorf("Do: %v", err)
		}
		f.Bubble.Server().SetError("")
		var count tally
		if err := f.do(f.once(f.Client("b"), singleton.OnceConfig{}), func(context.Context) error {
			count.add("run")
			return nil
		}).result(); err != nil || count.get("run") != 1 {
			t.Errorf("a later Do: %v after %d runs", err, count.get("run"))
		}
	})
}
