package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// hinted waits until a hint says that a replica runs the daemon; "": none does.
func hinted(t *testing.T, d *singleton.Daemon, hints <-chan struct{}, holder string) {
	t.Helper()
	for late := time.After(patience); ; {
		select {
		case <-hints:
		case <-late:
			t.Fatalf("no hint that %q runs it", holder)
		}
		seen, err := d.Inspect(t.Context())
		testenv.Must(t, err)
		var now string
		for _, h := range seen.Holders {
			now = h.Identity
		}
		if seen.Name == "feed" && now == holder {
			return
		}
	}
}

// Any process sees when a daemon begins and stops, and when a replica takes over from one that has died.
//
// Mutants: no hint at the beginning, or at the end; the channel of another database.
func TestDaemonIsWatched(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		d, err := singleton.NewDaemon(f.Client("reader"), "feed")
		testenv.Must(t, err)
		ctx, cancel := context.WithCancel(f.Context())
		hints := d.Watch(ctx)
		hinted(t, d, hints, "")
		starts, cfg := make(chan daemonStart, 3), singleton.DaemonConfig{TTL: f.ttl(time.Second)}
		c, faults := f.Linked("dies")
		run := f.run(f.daemon(c, f.steady("dies", starts, nil), cfg).Run)
		hinted(t, d, hints, "dies")
		run.end()
		hinted(t, d, hints, "")
		f.run(f.daemon(c, f.steady("dies", starts, nil), cfg).Run)
		hinted(t, d, hints, "dies")
		f.run(f.daemon(f.Client("next"), f.steady("next", starts, nil), cfg).Run)
		f.Until("the next one waits", func() bool {
			seen, err := d.Inspect(ctx)
			return err == nil && len(seen.Waiters) == 1 && seen.Waiters[0].Identity == "next"
		})
		f.kill(faults)
		hinted(t, d, hints, "next")
		cancel()
		for range hints { // until it is closed
		}
	})
}

func (f *fleet) daemon(c *lockcore.Client, work func(context.Context) error, cfg singleton.DaemonConfig) *singleton.DaemonRunner {
	f.Helper()
	s, err := singleton.NewDaemonRunner(c, "feed", work, cfg)
	testenv.Must(f, err)
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

// Check fails when work goes on past its drain or its lease. Such work is not begun again here meanwhile.
func TestCheckFindsWorkThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	const tolerance, drain = 5 * time.Second, 3 * time.Second
	for name, c := range map[string]struct {
		daemon, lost bool
		ends         time.Duration // the work must have stopped after it
		cause        error         // nil: it may go on
	}{
		"a run past its drain":    {ends: drain, cause: singleton.ErrStopping},
		"a run past its lease":    {lost: true, ends: 10 * time.Second, cause: lockcore.ErrLeaseExpired},
		"a daemon past its lease": {daemon: true, lost: true, ends: 10 * time.Second, cause: lockcore.ErrLeaseExpired},
		"a daemon that stops":     {daemon: true, ends: drain}, // its lease is renewed until the work returns
	} {
		inBubble(t, func(t *testing.T, f *fleet) {
			client, faults := f.Linked("a")
			began, leave := make(chan struct{}, 2), make(chan struct{})
			work := func(context.Context) error {
				began <- struct{}{}
				<-leave
				return nil
			}
			d := f.daemon(client, work, singleton.DaemonConfig{})
			check, start := d.Check, d.Run
			if !c.daemon {
				r, err := singleton.NewRunner(client, singleton.Config{Drain: drain})
				testenv.Must(t, err)
				testenv.Must(t, r.Add("draw", "@every 1h", func(ctx context.Context, _ singleton.Run) error { return work(ctx) }, singleton.JobConfig{}))
				check, start = r.Check, r.Run
			}
			checks := func(when string, want error) {
				t.Helper()
				if err := check(tolerance); (err == nil) != (want == nil) || want != nil && (!errors.Is(err, singleton.ErrOverrun) || !errors.Is(err, want)) {
					t.Errorf("%s, %s: %v, want %v", name, when, err, want)
				}
			}
			checks("before Run", nil)
			run := f.run(start)
			receive(f, began, "the work")
			f.Pass(10 * time.Minute)
			checks("at work", nil)
			if c.lost {
				f.kill(faults)
			} else {
				run.cancel()
			}
			f.Pass(tolerance - time.Millisecond)
			checks("within the tolerance", nil)
			f.Pass(c.ends + time.Second)
			checks("after the tolerance", c.cause)
			testenv.MustIs(t, start(t.Context()), singleton.ErrRunning)
			faults.Heal()
			f.Pass(time.Minute)
			if len(began) > 0 {
				t.Errorf("%s: it was begun again", name)
			}
			run.cancel()
			close(leave)
			testenv.Must(t, run.result())
			checks("after Run", nil)
		})
	}
}
