package singleton_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A catalog is how a test stores and deletes jobs.
type catalog struct {
	*fleet
	client *lockcore.Client
	net    *lockcoretest.Faults
}

func (f *fleet) catalog() *catalog {
	opt, net := f.Link()
	return &catalog{f, f.ClientWith(opt, lockcore.Config{Identity: "ann@host"}), net}
}

// create stores the job draw.
func (c *catalog) create(schedule, payload string, replace bool) error {
	return singleton.CreateJob(c.Context(), c.client, singleton.JobSpec{Name: "draw", Schedule: schedule, Payload: payload, Config: singleton.JobConfig{AllowOverlap: true}}, replace)
}

func (c *catalog) delete() error {
	return singleton.DeleteJob(c.Context(), c.client, "draw", lockcore.Operator{Reason: "old"})
}

// follows makes a replica that follows stored jobs with payloads from the ones that it has code for, and runs.
func (f *fleet) follows(name, code string, work func(context.Context, singleton.Run, string) error, reg ...prometheus.Registerer) *replica {
	f.Helper()
	r := f.replica(name, singleton.Config{Drain: 20 * time.Second}, reg...)
	testenv.Must(f, r.runner.Follow(func(spec singleton.JobSpec) func(context.Context, singleton.Run) error {
		if !strings.HasPrefix(spec.Payload, code) {
			return nil
		}
		return r.noted(func(ctx context.Context, run singleton.Run) error {
			if work == nil {
				return nil
			}
			return work(ctx, run, spec.Payload)
		})
	}))
	r.run()
	return r
}

// outcomes returns the history of draw, oldest first.
func (f *fleet) outcomes() (texts []string) {
	for _, e := range f.runs("draw") {
		texts = append(texts, fmt.Sprint(e.Outcome, " ", e.Error))
	}
	return texts
}

// A stored job runs on the replicas with code for it, changes, and is deleted: its run is canceled, and it catches up nothing
// when it is stored again.
// Mutants: replicas without code count; a deletion waits for the drain; a job that was deleted is ready, or has series; a
// change ends the current run; the same content is a change; a pause of the job is left.
func TestStoredJobs(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		c, reg := f.catalog(), prometheus.NewRegistry()
		ends := make(chan error, 10)
		hangs := func(ctx context.Context, _ singleton.Run, payload string) error {
			if payload != "a long" {
				return nil
			}
			<-ctx.Done()
			ends <- context.Cause(ctx)
			return ctx.Err()
		}
		a := f.follows("a", "a", hangs, reg)
		f.follows("b", "b", nil)
		f.Until("a Runner without jobs is ready", func() bool { return a.runner.Ready() == nil })
		testenv.MustIs(t, c.delete(), singleton.ErrNoJob)
		testenv.Must(t, c.create("@every 1s", "a", false))
		testenv.Must(t, c.create("@every 1s", "a", false))
		testenv.MustIs(t, c.create("@every 2s", "a", false), singleton.ErrExists)
		testenv.MustIs(t, a.runner.Remove("draw"), noonlock.ErrConfig)
		testenv.MustIs(t, a.runner.Follow(func(singleton.JobSpec) func(context.Context, singleton.Run) error { return nil }), singleton.ErrRunning)
		f.begun("draw", 2)
		if st := f.status("draw"); st.Replicas != 1 || st.Schedule != "@every 1s" || len(st.Definitions) != 1 {
			t.Errorf("the status is %+v", st)
		}

		testenv.Must(t, c.create("@every 1s", "a long", true))
		before := len(f.book.all())
		f.Until("the new work hangs", func() bool {
			all := f.book.all()
			return len(all) > before+1 && all[len(all)-1].end.IsZero() && all[len(all)-2].end.IsZero()
		})
		testenv.Must(t, f.job("draw").Pause(f.Context()))
		testenv.Must(t, c.delete())
		testenv.Must(t, c.delete())
		for range 2 {
			testenv.MustIs(t, <-ends, singleton.ErrCanceled)
		}
		f.Until("the job has ended", func() bool {
			st := f.status("draw")
			return len(st.Open) == 0 && st.Removed && st.Replicas == 0 && series(t, reg, "draw") == 0
		})
		testenv.Must(t, a.runner.Ready())
		if h := strings.Join(f.outcomes(), ","); strings.Count(h, "skipped removed") != 1 || strings.Count(h, "canceled by ann@host: the job was deleted: old") != 2 {
			t.Errorf("the history is %q", h)
		}
		_, err := f.job("draw").Trigger(f.Context())
		testenv.MustIs(t, err, singleton.ErrNoLedger)

		// Replicas without code for it claim nothing, nor does one that has no code any more.
		ran := len(f.book.all())
		testenv.Must(t, c.create("@every 1s", "b", false))
		again := time.Now()
		f.begun("draw", ran+2)
		testenv.Must(t, c.create("@every 1s", "nobody", true))
		f.Until("no replica runs it", func() bool { st := f.status("draw"); return st.Replicas == 0 && len(st.Open) == 0 })
		for _, e := range f.book.all()[ran:] {
			if e.replica != "b" || e.run.Tick.Before(again.Add(-100*time.Millisecond)) {
				t.Errorf("after it was stored again at %v: %+v", again, e)
			}
		}

		// A job of the Runner's own stays.
		f.all["b"].stop()
		own := f.replica("own", singleton.Config{})
		testenv.Must(t, own.runner.Follow(func(singleton.JobSpec) func(context.Context, singleton.Run) error { panic("no code") }))
		testenv.Must(t, singleton.CreateJob(f.Context(), c.client, singleton.JobSpec{Name: "poison", Schedule: "@daily"}, false))
		own.add("draw", "@every 1h", nil, singleton.JobConfig{})
		own.run()
		f.Until("it is ready", func() bool { return own.runner.Ready() == nil })
		if err := own.runner.Follow(nil); err == nil || strings.Count(f.log.String(), "stored job not followed") != 2 {
			t.Errorf("%v; the log:\n%s", err, f.log.String())
		}
	})
}

// Stored jobs that break a rule, or that a replica cannot read.
func TestStoredJobsAreChecked(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		c := f.catalog()
		create := func(spec singleton.JobSpec) error { return singleton.CreateJob(f.Context(), c.client, spec, false) }
		for what, err := range map[string]error{
			"a name":          create(singleton.JobSpec{Name: "once/x", Schedule: "@daily"}),
			"a schedule":      create(singleton.JobSpec{Name: "x", Schedule: "@dayly"}),
			"a zone":          create(singleton.JobSpec{Name: "x", Schedule: "0 1 * * * in Mars/North"}),
			"a payload":       create(singleton.JobSpec{Name: "x", Schedule: "@daily", Payload: strings.Repeat("x", 4097)}),
			"other bytes":     create(singleton.JobSpec{Name: "x", Schedule: "@daily", Payload: "\xff"}),
			"a setting":       create(singleton.JobSpec{Name: "x", Schedule: "@daily", Config: singleton.JobConfig{MaxAttempts: -1}}),
			"no client":       singleton.CreateJob(f.Context(), nil, singleton.JobSpec{Name: "x", Schedule: "@daily"}, false),
			"no name":         singleton.DeleteJob(f.Context(), c.client, "", lockcore.Operator{}),
			"a reason":        singleton.DeleteJob(f.Context(), c.client, "x", lockcore.Operator{Reason: strings.Repeat("x", 2000)}),
			"without a Redis": singleton.DeleteJob(f.Context(), nil, "x", lockcore.Operator{}),
		} {
			testenv.MustIs(t, err, noonlock.ErrConfig)
			if err != nil && strings.Contains(err.Error(), "xxxxxxxxxx") && what == "a payload" {
				t.Errorf("%s: %v", what, err)
			}
		}
		if keys := f.Raw.Keys(f.Context(), "*").Val(); len(keys) != 0 {
			t.Errorf("something was written: %v", keys)
		}
		a := f.follows("a", "", nil)
		testenv.Must(t, create(singleton.JobSpec{
			Name: "draw", Schedule: "*/10 3 * * * in Asia/Tokyo", Config: singleton.JobConfig{StartingDeadline: 3000 * time.Hour, CatchUp: singleton.CatchUpAll},
		}))
		f.Until("it runs", func() bool { return f.status("draw").Replicas == 1 })
		stored := f.Raw.HGetAll(f.Context(), "noonlock:{job/}:specs").Val()["draw"]
		if !strings.Contains(stored, `"Config":{"CatchUp":1,"StartingDeadline":10800000000000000}`) || !strings.Contains(f.status("draw").Schedule, "Asia/Tokyo") {
			t.Errorf("stored is %s with %s", stored, f.status("draw").Schedule)
		}
		// A field of a newer version may say something about how the job runs.
		newest, _ := f.Raw.ZScore(f.Context(), "noonlock:{job/}:live", "draw").Result()
		f.Raw.HSet(f.Context(), "noonlock:{job/}:specs", "draw", strings.Replace(stored, `"Config":{`, `"Config":{"Newer":1,`, 1))
		f.Raw.Do(f.Context(), "zadd", "noonlock:{job/}:live", fmt.Sprintf("%.0f", newest+1), "draw")
		f.Until("it runs no more", func() bool { return f.status("draw").Replicas == 0 })
		if err := a.runner.Ready(); err != nil || !strings.Contains(f.log.String(), "unknown field") {
			t.Errorf("%v; the log:\n%s", err, f.log.String())
		}
		a.stop()
		testenv.MustIs(t, a.runner.Ready(), singleton.ErrNotReady)
	})
}

// A message about a change is lost, late or repeated, and a process dies between the catalog and the ledger.
func TestFault130_ChangesOfStoredJobs(t *testing.T) {
	t.Parallel()
	remove := func(cmd []string) bool { // the request to the ledger about the deletion
		return len(cmd) > 14 && strings.HasPrefix(cmd[9], "removed@")
	}
	for name, test := range map[string]func(t *testing.T, f *fleet, c *catalog, a *replica){
		"messages are lost": func(t *testing.T, f *fleet, c *catalog, a *replica) {
			lost := a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
			testenv.Must(t, c.create("@every 1s", "", false))
			f.begun("draw", 1)
			testenv.Must(t, c.delete())
			f.Pass(31 * time.Second)
			n := len(f.book.all())
			f.Pass(time.Minute)
			if m := len(f.book.all()); m != n || f.status("draw").Replicas != 0 {
				t.Errorf("%d runs, then %d", n, m)
			}
			lockcoretest.MustFire(t, lost)
		},
		"messages are late and repeated": func(t *testing.T, f *fleet, c *catalog, a *replica) {
			a.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayMessage})
			for range 5 {
				testenv.Must(t, c.create("@every 1s", "", false))
				f.Pass(time.Second)
				testenv.Must(t, c.delete())
			}
			for range 100 {
				f.Raw.Publish(f.Context(), "noonlock:job:0:", "1")
			}
			f.Pass(time.Minute)
			if st := f.status("draw"); !st.Removed || st.Replicas != 0 || a.runner.Ready() != nil {
				t.Errorf("the status is %+v", st)
			}
		},
		"the process dies after it has stored the job": func(t *testing.T, f *fleet, c *catalog, _ *replica) {
			dies := c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: request("open")})
			if err := c.create("@every 1s", "", false); err == nil {
				t.Error("it did not die")
			}
			f.begun("draw", 1)
			dies.Lift()
			testenv.Must(t, c.create("@every 1s", "", false))
			if n := f.Raw.ZCard(f.Context(), "noonlock:{job/}:live").Val(); n != 1 {
				t.Errorf("%d jobs are stored", n)
			}
		},
		"the process dies after it has deleted the job": func(t *testing.T, f *fleet, c *catalog, _ *replica) {
			testenv.Must(t, c.create("@every 1s", "", false))
			f.begun("draw", 1)
			c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: remove})
			if err := c.delete(); err == nil {
				t.Error("it did not die")
			}
			f.Until("a replica tells the ledger", func() bool { return f.status("draw").Removed })
			if acts, err := f.job("draw").Actions(f.Context(), 1); err != nil || acts[0].Verb != "delete" || acts[0].By != "ann@host" || acts[0].Reason != "old" {
				t.Errorf("%+v, %v", acts, err)
			}
		},
		"the same without replicas": func(t *testing.T, f *fleet, c *catalog, a *replica) {
			testenv.Must(t, c.create("@every 1s", "", false))
			f.begun("draw", 1)
			a.stop()
			dies := c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: remove})
			if err := c.delete(); err == nil {
				t.Error("it did not die")
			}
			dies.Lift()
			f.Pass(time.Minute)
			testenv.Must(t, c.create("@every 1s", "", false)) // it tells the ledger first
			if h := f.outcomes(); h[len(h)-1] != "skipped removed" || f.status("draw").Removed {
				t.Errorf("the history is %q", h)
			}
		},
		"the answer is lost": func(t *testing.T, f *fleet, c *catalog, _ *replica) {
			testenv.Must(t, c.create("@every 1s", "", false))
			f.begun("draw", 1)
			c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.ResetAfter, Count: 2, Match: lockcoretest.Command("EVALSHA")})
			testenv.Must(t, c.delete())
			if h := f.outcomes(); strings.Count(strings.Join(h, ","), "removed") != 1 {
				t.Errorf("the history is %q", h)
			}
		},
		// The run of a replica that dies is recorded, although nobody claims it any more.
		"the holder dies": func(t *testing.T, f *fleet, c *catalog, _ *replica) {
			f.follows("b", "", nil)
			hold := f.replica("hold", singleton.Config{})
			testenv.Must(t, hold.runner.Follow(func(singleton.JobSpec) func(context.Context, singleton.Run) error {
				return hold.noted(sleep(time.Hour))
			}))
			hold.run()
			testenv.Must(t, c.create("@every 1s", "", false))
			f.Until("it holds a run", func() bool {
				for _, e := range f.book.all() {
					if e.replica == "hold" {
						return true
					}
				}
				return false
			})
			hold.die()
			testenv.Must(t, c.delete())
			f.Until("the run is recorded", func() bool {
				h := f.outcomes()
				return strings.HasPrefix(h[len(h)-1], "unknown removed; its holder died") && len(f.status("draw").Open) == 0
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				c, a := f.catalog(), f.follows("a", "", nil)
				f.Until("a is ready", func() bool { return a.runner.Ready() == nil })
				test(t, f, c, a)
			})
		})
	}
}

// A late replica revives nothing, however late, and a loss of data deletes nothing.
func TestFault131_ClassD_LateReplicasAndLostCatalogs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, f *fleet, c *catalog, late *replica){
		"an old revision": func(t *testing.T, f *fleet, c *catalog, late *replica) {
			cut := late.net.Partition()
			testenv.Must(t, c.delete())
			deleted := time.Now()
			f.Pass(time.Hour)
			cut.Lift()
			f.Pass(time.Minute)
			for _, e := range f.book.all() {
				if e.begin.After(deleted) {
					t.Errorf("after the deletion: %+v", e)
				}
			}
			if h := f.outcomes(); h[len(h)-1] != "skipped removed" || late.runner.Ready() != nil {
				t.Errorf("the history is %q, and the replica %v", h, late.runner.Ready())
			}
		},
		// The ledger has expired, and the deletion is not kept.
		"a very old revision": func(t *testing.T, f *fleet, c *catalog, late *replica) {
			cut := late.net.Partition()
			testenv.Must(t, c.delete())
			deleted, score := time.Now(), f.Raw.ZScore(f.Context(), "noonlock:{job/}:gone", "draw").Val()
			f.Raw.Del(f.Context(), "noonlock:{job/}:gone", "noonlock:{job/}:specs")
			f.Raw.Do(f.Context(), "zadd", "noonlock:{job/}:gone", fmt.Sprintf("%.0f", score), "")
			f.Raw.Del(f.Context(), f.Raw.Keys(f.Context(), "noonlock:{job/draw}:*").Val()...)
			late.clock.Advance(25 * time.Hour)
			// First, only the catalog does not answer.
			away := late.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
				return len(cmd) > 3 && strings.HasSuffix(cmd[3], ":specs")
			}})
			late.net.Cut() // no network delivers a request after a day
			cut.Lift()
			f.Pass(time.Minute)
			if keys := f.Raw.Keys(f.Context(), "noonlock:{job/draw}:*").Val(); len(keys) != 0 {
				t.Errorf("it has written %v", keys)
			}
			away.Lift()
			f.Until("it has noticed", func() bool { return late.runner.Ready() == nil })
			f.Pass(time.Minute)
			for _, e := range f.book.all() {
				if e.begin.After(deleted) {
					t.Errorf("after the deletion: %+v", e)
				}
			}
		},
		"a job that was stored again": func(t *testing.T, f *fleet, c *catalog, late *replica) {
			cut := late.net.Partition()
			testenv.Must(t, c.delete())
			f.Pass(time.Hour)
			testenv.Must(t, c.create("@every 1m", "", false))
			again := time.Now()
			cut.Lift()
			f.Pass(2 * time.Minute)
			n := 0
			for _, e := range f.book.all() {
				if e.begin.After(again) {
					if n++; e.run.Tick.Before(again) {
						t.Errorf("a tick of before: %+v", e)
					}
				}
			}
			if n != 2 {
				t.Errorf("%d runs", n)
			}
		},
		// The ledger of before has expired: its pause and its ticks are over.
		"a job that was stored again much later": func(t *testing.T, f *fleet, c *catalog, late *replica) {
			testenv.Must(t, f.job("draw").Pause(f.Context()))
			f.Pass(time.Minute)
			cut := late.net.Partition()
			testenv.Must(t, c.delete())
			f.Raw.Del(f.Context(), f.Raw.Keys(f.Context(), "noonlock:{job/draw}:*").Val()...)
			late.clock.Advance(25 * time.Hour)
			late.net.Cut()
			testenv.Must(t, c.create("@every 1m", "", false))
			again := time.Now()
			n := len(f.book.all())
			cut.Lift()
			f.Pass(5 * time.Minute)
			if all := f.book.all()[n:]; len(all) < 4 || all[0].run.Tick.Before(again) {
				t.Errorf("after %v: %+v", again, all)
			}
		},
		// The catalog loses a change, and the ledger does not. A replica that comes later has the former revision.
		"the newest change is lost": func(t *testing.T, f *fleet, c *catalog, _ *replica) {
			for what, change := range map[string]func() error{
				"a change":   func() error { return c.create("@every 2m", "", true) },
				"a deletion": c.delete,
			} {
				testenv.Must(t, c.create("@every 1m", "", true))
				f.Pass(time.Minute)
				score, spec := f.Raw.ZScore(f.Context(), "noonlock:{job/}:live", "draw").Val(), f.Raw.HGet(f.Context(), "noonlock:{job/}:specs", "draw").Val()
				testenv.Must(t, change())
				f.Raw.Del(f.Context(), "noonlock:{job/}:gone")
				f.Raw.HSet(f.Context(), "noonlock:{job/}:specs", "draw", spec)
				f.Raw.Do(f.Context(), "zadd", "noonlock:{job/}:live", fmt.Sprintf("%.0f", score), "draw")
				next := f.follows("after "+what, "", nil)
				f.Pass(2 * time.Minute)
				if err := next.runner.Ready(); err == nil || !strings.Contains(err.Error(), "CreateJob") {
					t.Errorf("%s: %v", what, err)
				}
				testenv.Must(t, c.create("@every 1m", "", false))
				n := len(f.book.all())
				f.Pass(5 * time.Minute)
				if m := len(f.book.all()); m < n+4 || m > n+6 || next.runner.Ready() != nil {
					t.Errorf("%s: %d runs, then %d; %v", what, n, m, next.runner.Ready())
				}
			}
		},
		"all data is lost": func(t *testing.T, f *fleet, c *catalog, late *replica) {
			f.Raw.FlushAll(f.Context())
			n := len(f.book.all())
			f.Pass(5 * time.Minute)
			if m := len(f.book.all()); m < n+4 || late.runner.Ready() != nil || strings.Count(f.log.String(), "Redis lost stored jobs") != 1 {
				t.Errorf("%d runs, then %d; %v", n, m, late.runner.Ready())
			}
			if keys := f.Raw.Keys(f.Context(), "noonlock:{job/}:*").Val(); len(keys) != 0 {
				t.Errorf("replicas wrote %v", keys)
			}
			testenv.Must(t, c.create("@every 30s", "", false))
			f.Until("it is followed again", func() bool { st := f.status("draw"); return st.Schedule == "@every 30s" && st.Replicas == 1 })
			testenv.Must(t, c.delete())
			f.Until("it is deleted", func() bool { st := f.status("draw"); return st.Removed && st.Replicas == 0 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				c := f.catalog()
				testenv.Must(t, c.create("@every 1m", "", false))
				late := f.follows("late", "", nil)
				f.begun("draw", 2)
				test(t, f, c, late)
			})
		})
	}
}
