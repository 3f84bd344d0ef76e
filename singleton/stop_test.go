package singleton_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// Run returns within ShutdownTimeout of the end of its context, although the server hangs:
// between ticks, in a run that ends with the drain, and in one that cannot be recorded. Run
// waits for work that takes longer, and makes one try after it.
// Mutants: the limits of recording, handing over and deregistering are added up.
func TestFault84_RunnerStopsWhileTheServerHangs(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for _, test := range []struct {
		name           string
		drain, within  time.Duration // as configured
		work           time.Duration // never: until its context is done
		late           time.Duration // after that
		fail, idle     bool
		least, longest time.Duration
	}{
		{name: "idle", idle: true, longest: 2 * time.Second},
		{name: "success", longest: 30 * time.Second},
		{name: "failure", fail: true, longest: 30 * time.Second},
		{name: "until the drain is over", work: never, least: 20 * time.Second, longest: 30 * time.Second},
		{name: "fails then", work: never, fail: true, least: 9 * time.Second, longest: 30 * time.Second},
		{name: "no drain", drain: -1, work: never, longest: 10 * time.Second},
		{name: "shorter", drain: time.Second, within: 2 * time.Second, work: never, least: time.Second, longest: 2 * time.Second},
		{name: "late", drain: time.Second, within: 2 * time.Second, work: never, late: time.Minute, least: time.Minute, longest: time.Minute + 1400*time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				r, err := singleton.NewRunner(f.ClientWith(f.Direct(), lockcore.Config{}), singleton.Config{Drain: test.drain, ShutdownTimeout: test.within})
				if err != nil {
					t.Fatal(err)
				}
				begun, hung := make(chan struct{}, 1), make(chan struct{})
				err = r.Add("draw", "@every 1h", func(ctx context.Context, _ singleton.Run) error {
					begun <- struct{}{}
					<-hung
					if test.work == never {
						<-ctx.Done()
						time.Sleep(test.late)
					}
					if test.fail {
						return errBroken
					}
					return nil
				}, singleton.JobConfig{MaxAttempts: 1})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- r.Run(ctx) }()
				if test.idle {
					time.Sleep(time.Minute + time.Second) // between two looks
				} else {
					<-begun
				}
				f.Bubble.Hang()
				close(hung)
				cancel()
				stopped := time.Now()
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				if took := time.Since(stopped); took < test.least || took > test.longest {
					t.Errorf("Run returned after %v, want from %v to %v", took, test.least, test.longest)
				}
				f.Bubble.Unhang()
			})
		})
	}
}

// A run that ends at once and cannot be recorded is not repeated without a pause.
// Mutant: the replica claims the tick again as soon as it has released it.
func TestFault83_RunThatCannotBeRecorded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		var at []time.Time
		r.add("draw", "@every 1h", func(context.Context, singleton.Run) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			at = append(at, time.Now())
			return nil
		}, singleton.JobConfig{MaxAttempts: 20})
		r.run()
		completes := request("complete")
		f.Bubble.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
			refused := completes(append([]string{cmd}, args...))
			if refused {
				c.WriteError("NOPERM this user has no permissions")
			}
			return refused
		})
		defer f.Bubble.Server().Server().SetPreHook(nil)
		time.Sleep(100 * time.Minute)
		if err := r.runner.Ready(); !errors.Is(err, singleton.ErrNotReady) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("Ready while no outcome can be recorded: %v", err)
		}
		f.Bubble.Server().Server().SetPreHook(nil)
		time.Sleep(2 * time.Hour)
		if err := r.runner.Ready(); err != nil {
			t.Errorf("Ready after an outcome was recorded: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		at = slices.DeleteFunc(at, func(a time.Time) bool { return time.Since(a) < 2*time.Hour })
		if len(at) < 5 || len(at) > 20 {
			t.Errorf("%d attempts\n%s", len(at), f.log.String())
		}
		for i := 1; i < len(at); i++ {
			if pause := at[i].Sub(at[i-1]); pause < 900*time.Millisecond || i > 7 && pause < 50*time.Second {
				t.Errorf("attempt %d came %v after the one before", i+1, pause)
			}
		}
	})
}

// A look at the ledger is under way when the replica stops: the others do not consider it
// alive afterwards.
// Mutant: the end of Run aborts the look, which arrives after the deregistration.
func TestAReplicaThatStopsDuringALookIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		r.add("draw", "0 0 1 1 *", nil, singleton.JobConfig{})
		r.run()
		f.Until("the job is known", func() bool { _, err := f.job("draw").Status(t.Context()); return err == nil })
		f.Pass(time.Second)
		rule := r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: request("open"), Delay: 300 * time.Millisecond})
		if err := f.job("draw").Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.Pass(100 * time.Millisecond)
		lockcoretest.MustFire(t, rule)
		r.stop()
		f.Pass(time.Second)
		for field := range f.Raw.HGetAll(t.Context(), f.key("draw", "job")).Val() {
			if strings.HasPrefix(field, "live:") {
				t.Errorf("%s is taken for alive", field)
			}
		}
	})
}
