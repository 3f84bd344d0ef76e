package singleton_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func (f *fleet) daemon(c *lockcore.Client, work func(context.Context) error, cfg singleton.DaemonConfig) *singleton.DaemonRunner {
	f.Helper()
	s, err := singleton.NewDaemonRunner(c, "feed", work, cfg)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// A start is one start of a daemon's function.
type daemonStart struct {
	replica string
	token   uint64
	at      time.Duration
}

// steady is a function that reports its start, works until its context is done, and returns
// the cause.
func (f *fleet) steady(replica string, starts chan<- daemonStart, ends chan<- error) func(context.Context) error {
	return func(ctx context.Context) error {
		token := lockcore.FromContext(ctx).Token()

		f.begins(replica, token)
		starts <- daemonStart{replica, token, f.Clock()}
		<-ctx.Done()
		f.ends(replica, token)
		if ends != nil {
			ends <- context.Cause(ctx)
		}
		return ctx.Err()
	}
}

func TestDaemonRunsOnOneReplicaAndIsHandedOver(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		const replicas = 5
		starts := make(chan daemonStart, 2*replicas)
		runs := map[string]*replicaRun{}
		for i := range replicas {
			name := fmt.Sprintf("replica-%d", i)
			s := f.daemon(f.Client(name), f.steady(name, starts, nil), singleton.DaemonConfig{})
			runs[name] = f.run(s.Run)
		}
		first := receive(f, starts, "the first start")
		f.Until("the others are queued", func() bool { return f.queued("feed") == replicas-1 })
		last := first
		for range replicas - 1 {
			stopped := f.Clock()
			runs[last.replica].cancel()
			next := receive(f, starts, "the hand-over")
			if next.token <= last.token {
				t.Errorf("token %d after %d", next.token, last.token)
			}
			// Virtual time: without a hand-over it would be the rest of a TTL.
			if took := next.at - stopped; f.Bubble != nil && took > 10*time.Millisecond {
				t.Errorf("handed over after %v, want at once", took)
			}
			if err := runs[last.replica].result(); err != nil {
				t.Errorf("Run: %v", err)
			}
			last = next
		}
		runs[last.replica].end()
		if n := len(starts); n != 0 {
			t.Errorf("%d more starts than replicas", n)
		}
		f.history.Require(t)
	})
}

// A replica on which the function always fails does not keep it from the others.
func TestDaemonGoesToTheNextAfterFailures(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		var count tally
		cfg := singleton.DaemonConfig{HandOverAfter: 2}
		broken := f.run(f.daemon(f.Client("broken"), func(context.Context) error {
			count.add("broken")
			return errBroken
		}, cfg).Run)
		f.Until("it has failed", func() bool { return count.get("broken") == 1 })
		starts, ends := make(chan daemonStart, 2), make(chan error, 2)
		sound := f.run(f.daemon(f.Client("sound"), f.steady("sound", starts, ends), cfg).Run)
		got := receive(f, starts, "the sound replica's start")
		if n := count.get("broken"); n != 2 {
			t.Errorf("the broken replica has started it %d times, want 2", n)
		}
		if got.at > 1100*time.Millisecond {
			t.Errorf("handed over after %v, want right after the second failure", got.at)
		}
		time.Sleep(10 * time.Minute)
		if n := count.get("broken"); n != 2 || f.queued("feed") != 1 {
			t.Errorf("%d starts on the broken replica, %d queued, want 2 and 1", n, f.queued("feed"))
		}
		sound.end()
		f.Until("the broken one has its turn", func() bool { return count.get("broken") == 3 })
		broken.end()
	})
}

// Work that ends, fails, panics or ends its goroutine starts again after growing pauses, which begin anew after a
// life of MaxBackoff. If no other replica waits, it starts here also after HandOverAfter ends, under a new lease.
func TestDaemonIsRestartedWithBackoff(t *testing.T) {
	t.Parallel()
	for _, after := range []int{2, -1} {
		inBubble(t, func(t *testing.T, f *fleet) {
			nothing := func() error { return nil }
			broken := func() error { return errBroken }
			lives := []struct {
				works, pause time.Duration
				how          func() error
				handedOver   bool
			}{
				{0, time.Second, nothing, false},
				{0, 2 * time.Second, broken, true},
				{0, 4 * time.Second, func() error { panic("at the disco") }, false},
				{0, 8 * time.Second, func() error { runtime.Goexit(); return nil }, true}, // FAULT 53
				{0, 10 * time.Second, broken, false},
				{9 * time.Second, 10 * time.Second, nothing, true},
				{10 * time.Second, time.Second, broken, false}, // worked well
				{0, 2 * time.Second, broken, true},
			}
			type life struct {
				began time.Duration
				token uint64
			}
			begins, i := make(chan life, len(lives)+1), 0
			run := f.run(f.daemon(f.Client("a"), func(ctx context.Context) error {
				begins <- life{f.Clock(), lockcore.FromContext(ctx).Token()}
				if i == len(lives) {
					<-ctx.Done()
					return nil
				}
				l := lives[i]
				i++
				time.Sleep(l.works)
				return l.how()
			}, singleton.DaemonConfig{MaxBackoff: 10 * time.Second, HandOverAfter: after}).Run)
			last := receive(f, begins, "the first start")
			for n, l := range lives {
				next := receive(f, begins, "the next start")
				if pause := next.began - last.began - l.works; pause < l.pause*9/10 || pause > l.pause*11/10+10*time.Millisecond {
					t.Errorf("pause %d is %v, want %v within a tenth", n, pause, l.pause)
				}
				if next.token < last.token || next.token > last.token != (l.handedOver && after > 0) {
					t.Errorf("HandOverAfter %d: token %d after %d at start %d", after, next.token, last.token, n+1)
				}
				last = next
			}
			run.cancel()
			if err := run.result(); err != nil {
				t.Error(err)
			}
		})
	}
}
