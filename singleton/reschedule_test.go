package singleton_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// scheduled returns a replica that runs the job with that schedule.
func (f *fleet) scheduled(name, schedule string, cfg singleton.JobConfig) *replica {
	f.Helper()
	r := f.replica(name, singleton.Config{})
	r.add("draw", schedule, nil, cfg)
	r.run()
	f.Pass(10 * time.Millisecond)
	return r
}

// A version that differs only in other settings catches up missed ticks.
// Mutant: every new definition begins now.
func TestOtherSettingsCatchUp(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		cfg := singleton.JobConfig{CatchUp: singleton.CatchUpAll}
		a := f.scheduled("old", "0 * * * *", cfg)
		f.recorded("draw", 1)
		a.stop()
		f.Pass(3*time.Hour + time.Minute)
		cfg.Timeout = time.Minute
		f.scheduled("new", "0 * * * *", cfg)
		f.Pass(time.Second)
		entries := f.book.all()
		if len(entries) != 4 {
			t.Fatalf("%d runs after the deploy, want 3", len(entries)-1)
		}
		for i, e := range entries {
			if want := entries[0].run.Tick.Add(time.Duration(i) * time.Hour); !e.run.Tick.Equal(want) {
				t.Errorf("run %d is of %v, want %v", i, e.run.Tick, want)
			}
		}
	})
}

// The server loses its data. The newest version, whose schedule differs from that of the
// first replica afterwards, continues from what it remembers: its own ticks are caught up.
// Mutants: it begins now, as after a deployment; the version that comes back first takes over.
func TestFault15_ClassD_AnotherScheduleAfterALoss(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.scheduled("old", "@every 1h", singleton.JobConfig{})
		b := f.scheduled("new", "@every 10m", singleton.JobConfig{CatchUp: singleton.CatchUpAll})
		f.begun("draw", 2)
		f.Pass(10*time.Minute - 5*time.Second)
		cut := b.net.Partition()
		f.Raw.FlushAll(t.Context())
		f.Pass(3 * time.Second)
		b.net.Heal()
		f.Pass(20 * time.Second)
		n := 0
		for _, e := range f.book.all() {
			if e.replica == "new" {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d runs of the newest version, want 2 before the loss and 1 after it: %+v", n, f.runs("draw"))
		}
		lockcoretest.MustFire(t, cut)
	})
}
