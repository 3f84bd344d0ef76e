package singleton_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
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

// A handle has no lease, so no limit of the Client on a TTL refuses it.
func TestHandlesHaveNoTTL(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.ClientWith(f.Direct(), lockcore.Config{LockDelay: 5 * time.Second})
		_, err := singleton.NewDaemonRunner(c, "feed", func(context.Context) error { return nil }, singleton.DaemonConfig{})
		if e, ok := errors.AsType[*noonlock.ConfigError](err); !ok || e.Field != "DaemonConfig.TTL" {
			t.Errorf("a runner: %v", err)
		}
		d, err := singleton.NewDaemon(c, "feed")
		testenv.Must(t, err)
		_, err = d.Inspect(t.Context())
		testenv.Must(t, err)
		j, err := singleton.NewJob(c, "draw")
		testenv.Must(t, err)
		_, err = j.Status(t.Context())
		testenv.MustIs(t, err, singleton.ErrNoLedger)
	})
}
