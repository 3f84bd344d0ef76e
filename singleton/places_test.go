package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// most returns how many entries there were at a time, of one replica or of all ("").
func most(entries []entry, replica string) (n int) {
	for _, x := range entries {
		at := 0
		for _, y := range entries {
			if (replica == "" || y.replica == replica) && !y.begin.After(x.begin) && (y.end.IsZero() || y.end.After(x.begin)) {
				at++
			}
		}
		n = max(n, at)
	}
	return n
}

// slots returns how many slots of a group are taken, and how many waiters it has.
func (f *fleet) slots(group string) (taken, waiting int) {
	f.Helper()
	f.ledger("draw") // makes the reader
	seen, err := f.reader.Inspect(f.Context(), group)
	if err != nil {
		f.Fatal(err)
	}
	return len(seen.Holders), len(seen.Waiters)
}

// toTick returns the time until a second after the next tick of "*/10 * * * *".
func (f *fleet) toTick() time.Duration {
	now := time.Now()
	return now.Truncate(10 * time.Minute).Add(10*time.Minute + time.Second).Sub(now)
}

func pass(_ context.Context, _ singleton.Run) error {
	time.Sleep(3 * time.Second)
	return nil
}

// Many jobs of a group are due at one time. Each tick runs once, no more run at a time than the group and each replica
// allow, and all replicas take part. In the queue of the group, there is never more than one waiter of each replica. At
// the end, nobody holds or waits for a place.
func TestFault129_ManyJobsOfAGroupAreDueAtOnce(t *testing.T) {
	const jobs, inAll, each = 60, 5, 3
	inBubble(t, func(t *testing.T, f *fleet) {
		for _, name := range []string{"a", "b", "c"} {
			r := f.replica(name, singleton.Config{MaxConcurrentRuns: each})
			for i := range jobs {
				r.add(fmt.Sprint("job-", i), "*/10 * * * *", pass, singleton.JobConfig{Group: singleton.Group{Name: "database", Runs: inAll}})
			}
			r.run()
		}
		f.Pass(f.toTick())
		for range jobs / inAll * 2 {
			if taken, waiting := f.slots("database"); taken > inAll || waiting > 3 {
				t.Errorf("%d slots are taken, and %d wait", taken, waiting)
			}
			f.Pass(3 * time.Second)
		}
		all := f.book.all()
		ran := map[string]int{}
		for _, x := range all {
			ran[x.run.Job+x.run.Tick.String()]++
		}
		if len(ran) < jobs || len(ran) != len(all) {
			t.Errorf("%d ticks of %d jobs had %d runs", len(ran), jobs, len(all))
		}
		if n := most(all, ""); n != inAll {
			t.Errorf("%d runs at a time, want %d", n, inAll)
		}
		for name := range f.all {
			if n := most(all, name); n < 1 || n > each {
				t.Errorf("%d runs at a time on %s, want 1 to %d", n, name, each)
			}
		}
		if taken, waiting := f.slots("database"); taken+waiting > 0 {
			t.Errorf("%d slots are taken at the end, and %d wait", taken, waiting)
		}
	})
}

// A replica without a group runs its jobs in order. Those that wait hold no lease, and other replicas run them.
func TestMaxConcurrentRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		full := f.replica("full", singleton.Config{MaxConcurrentRuns: 1})
		for _, name := range []string{"one", "two", "three"} {
			full.add(name, "*/10 * * * *", pass, singleton.JobConfig{})
		}
		full.run()
		f.Pass(f.toTick() + time.Minute)
		if n := most(f.book.all(), ""); n != 1 || len(f.book.all()) < 3 {
			t.Errorf("%d of %d runs at a time", n, len(f.book.all()))
		}
		full.stop()
		before := len(f.book.all())
		full = f.replica("hangs", singleton.Config{MaxConcurrentRuns: 1})
		free := f.replica("free", singleton.Config{})
		for _, name := range []string{"one", "two", "three"} {
			full.add(name, "*/10 * * * *", func(ctx context.Context, _ singleton.Run) error {
				<-ctx.Done()
				return ctx.Err()
			}, singleton.JobConfig{Timeout: time.Hour})
			free.add(name, "*/10 * * * *", nil, singleton.JobConfig{})
		}
		full.run()
		f.Pass(f.toTick())
		free.run()
		f.Pass(time.Minute)
		if n := most(f.book.all()[before:], "hangs"); n != 1 {
			t.Errorf("%d runs at a time", n)
		}
		others := 0
		for _, x := range f.book.all()[before:] {
			if x.replica == "free" {
				others++
			}
		}
		if others != 2 {
			t.Errorf("the other replica had %d runs, want 2", others)
		}
	})
}

// The place of a run. In each row, a run of the job "first" has the only place of the group.
func TestFault129_PlacesOfRuns(t *testing.T) {
	group := singleton.Group{Name: "database", Runs: 1}
	for name, row := range map[string]struct {
		first func(f *fleet, holder *replica, ctx context.Context, run singleton.Run) error
		meet  func(f *fleet, holder *replica)
		jobs  singleton.JobConfig // of the second one
		runs  int                 // of the second job, after a minute
		skips int
	}{
		"its holder dies, and the one that takes over needs a place, too": {
			first: func(_ *fleet, _ *replica, ctx context.Context, run singleton.Run) error {
				if run.Attempt == 1 {
					<-ctx.Done()
				}
				return ctx.Err()
			},
			meet: func(_ *fleet, holder *replica) { holder.die() },
			runs: 1,
		},
		"a pause between attempts needs none": {
			first: func(_ *fleet, _ *replica, _ context.Context, _ singleton.Run) error { return errBroken },
			runs:  1,
		},
		"a run that waits begins in time, or never": {
			first: func(_ *fleet, _ *replica, ctx context.Context, _ singleton.Run) error { <-ctx.Done(); return ctx.Err() },
			jobs:  singleton.JobConfig{StartingDeadline: 10 * time.Second},
			skips: 1,
		},
		"its slot is lost, which ends the work": {
			first: func(f *fleet, _ *replica, ctx context.Context, run singleton.Run) error {
				<-ctx.Done()
				if cause := context.Cause(ctx); run.Attempt == 1 && !errors.Is(cause, lockcore.ErrLeaseLost) {
					f.Errorf("the work ended with %v", cause)
				}
				return ctx.Err()
			},
			meet: func(f *fleet, _ *replica) {
				if err := f.Raw.Del(f.Context(), "noonlock:{database}:lock").Err(); err != nil {
					f.Error(err)
				}
			},
			runs: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fleet) {
				holder, other := f.replica("holder", singleton.Config{}), f.replica("other", singleton.Config{})
				cfg := singleton.JobConfig{Retry: time.Hour, Group: group}
				for _, r := range []*replica{holder, other} {
					r.add("first", "*/10 * * * *", func(ctx context.Context, run singleton.Run) error { return row.first(f, holder, ctx, run) }, cfg)
				}
				holder.run()
				f.Pass(f.toTick())
				first := len(f.ticks("first"))
				if taken, _ := f.slots("database"); first != 1 {
					t.Fatalf("%d runs, %d slots are taken", first, taken)
				}
				second := row.jobs
				second.Group = group
				third := f.replica("third", singleton.Config{})
				third.add("second", "*/10 * * * *", nil, second)
				other.run()
				third.run()
				f.Pass(f.toTick())
				if row.meet != nil {
					row.meet(f, holder)
				}
				f.Pass(time.Minute)
				if n := len(f.ticks("second")); n != row.runs {
					t.Errorf("%d runs of the second job, want %d", n, row.runs)
				}
				skips := 0
				for _, h := range f.runs("second") {
					if h.Error == "deadline" {
						skips++
					}
				}
				if skips != row.skips {
					t.Errorf("%d ticks were skipped, want %d", skips, row.skips)
				}
				if n := most(f.book.all(), ""); n > 1 && name[:10] != "its holder" {
					t.Errorf("%d runs at a time", n)
				}
			})
		})
	}
}

func TestGroupsAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("a", singleton.Config{})
		for field, group := range map[string]singleton.Group{
			"JobConfig.Group.Name": {Runs: 2}, "JobConfig.Group.Runs": {Name: "x"},
		} {
			err := r.runner.Add("job", "@daily", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{Group: group})
			if bad, _ := errors.AsType[*noonlock.ConfigError](err); bad == nil || bad.Field != field {
				t.Errorf("%v: %v", group, err)
			}
		}
		_, err := singleton.NewRunner(r.client, singleton.Config{MaxConcurrentRuns: -1})
		if bad, _ := errors.AsType[*noonlock.ConfigError](err); bad == nil || bad.Field != "Config.MaxConcurrentRuns" {
			t.Error(err)
		}
	})
}
