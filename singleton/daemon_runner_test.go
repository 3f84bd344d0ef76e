package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
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

func TestDaemonIsRestartedWithBackoff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const never = time.Duration(1<<63 - 1)
		// How long the function works, and how it ends.
		ends := []struct {
			after time.Duration
			how   func() error
			pause time.Duration // that follows
		}{
			{0, func() error { return nil }, time.Second},
			{0, func() error { return errBroken }, 2 * time.Second},
			{0, func() error { panic("at the disco") }, 4 * time.Second},
			{0, func() error { runtime.Goexit(); return nil }, 8 * time.Second}, // FAULT 53
			{0, func() error { return nil }, 10 * time.Second},
			{9 * time.Second, func() error { return nil }, 10 * time.Second},
			{10 * time.Second, func() error { return errBroken }, time.Second}, // worked well
			{0, func() error { return errBroken }, 2 * time.Second},
			{never, nil, 0},
		}
		type life struct {
			began, ended time.Duration
			token        uint64
		}
		lives := make(chan life, len(ends))
		i := 0
		s := f.daemon(f.Client("a"), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			e, began := ends[i], f.Clock()
			i++
			if e.after == never {
				lives <- life{began, 0, token}
				<-ctx.Done()
				return nil
			}
			time.Sleep(e.after)
			lives <- life{began, f.Clock(), token}
			return e.how()
		}, singleton.DaemonConfig{Backoff: time.Second, MaxBackoff: 10 * time.Second, HandOverAfter: -1})
		run := f.run(s.Run)
		var last life
		for n := range ends {
			l := receive(f, lives, fmt.Sprintf("start %d", n))
			if n > 0 {
				pause, want := l.began-last.ended, ends[n-1].pause
				if pause < want*9/10 || pause > want*11/10 {
					t.Errorf("pause %d is %v, want %v within a tenth", n, pause, want)
				}
				if l.token != last.token {
					t.Errorf("start %d has token %d, want %d still", n, l.token, last.token)
				}
			}
			last = l
		}
		run.cancel()
		if err := run.result(); err != nil {
			t.Errorf("Run: %v", err)
		}
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

// If no other replica waits, it runs here again: after its pause, under a new lease. A run
// that worked for a while resets the count of failures.
func TestDaemonDoesNotQueueDuringItsPause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const well = time.Minute // the longest pause
		// How long the function works before it fails, and the pause that follows.
		lives := []struct {
			works, pause time.Duration
			handedOver   bool
		}{
			{0, time.Second, false},
			{0, 2 * time.Second, true},
			{0, 4 * time.Second, false},
			{well, time.Second, false},
			{0, 2 * time.Second, true},
			{0, 4 * time.Second, false},
		}
		type life struct {
			began time.Duration
			token uint64
		}
		begins := make(chan life, len(lives)+1)
		i := 0
		run := f.run(f.daemon(f.Client("a"), func(ctx context.Context) error {
			token := lockcore.FromContext(ctx).Token()

			begins <- life{f.Clock(), token}
			if i++; i <= len(lives) {
				time.Sleep(lives[i-1].works)
			}
			return errBroken
		}, singleton.DaemonConfig{HandOverAfter: 2}).Run)
		last := receive(f, begins, "the first start")
		for n, l := range lives {
			next := receive(f, begins, "the next start")
			pause := next.began - last.began - l.works
			if pause < l.pause*9/10 || pause > l.pause*11/10+10*time.Millisecond {
				t.Errorf("pause %d is %v, want %v within a tenth", n, pause, l.pause)
			}
			if next.token < last.token || next.token > last.token != l.handedOver {
				t.Errorf("token %d after %d at start %d", next.token, last.token, n+1)
			}
			last = next
		}
		run.end()
	})
}

func TestDaemonRefusals(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.Client("a")
		work := func(context.Context) error { return nil }
		for _, r := range []struct {
			client *lockcore.Client
			name   string
			work   func(context.Context) error
			cfg    singleton.DaemonConfig
			want   string
		}{
			{nil, "feed", work, singleton.DaemonConfig{}, "client is nil"},
			{c, "feed", nil, singleton.DaemonConfig{}, "work is nil"},
			{c, "", work, singleton.DaemonConfig{}, `name is ""`},
			{c, "a b", work, singleton.DaemonConfig{}, `name is "a b"`},
			{c, strings.Repeat("n", 194), work, singleton.DaemonConfig{}, "(194 bytes); it must be 1 to 193 bytes"},
			{c, "feed", work, singleton.DaemonConfig{TTL: time.Millisecond}, "DaemonConfig.TTL is 1ms"},
			{c, "feed", work, singleton.DaemonConfig{Backoff: -1}, "DaemonConfig.Backoff is -1ns"},
			{c, "feed", work, singleton.DaemonConfig{Backoff: time.Minute, MaxBackoff: time.Second}, "DaemonConfig.MaxBackoff is 1s; it must be 0 (1m) or at least Backoff, 1m0s"},
		} {
			s, err := singleton.NewDaemonRunner(r.client, r.name, r.work, r.cfg)
			refused := errors.Is(err, noonlock.ErrConfig)
			if s != nil || !refused || !strings.Contains(err.Error(), r.want) {
				t.Errorf("error %v, want a refusal with %q", err, r.want)
			}
		}
		if _, err := singleton.NewDaemonRunner(c, strings.Repeat("n", 193), work, singleton.DaemonConfig{}); err != nil {
			t.Errorf("the longest name: %v", err)
		}
		s := f.daemon(c, work, singleton.DaemonConfig{Backoff: 2 * time.Hour})
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(done); err != nil {
			t.Errorf("Run with a context that is over: %v", err)
		}
	})
}
