package singleton

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// at is an instant of these tests: so many seconds after a fixed one.
func at(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second))).UTC()
}

func seconds(d time.Duration) Schedule { return everySchedule{d.Milliseconds()} }

// What is run and what is skipped of the ticks that are due.
// Mutants: choosing the oldest for latest; a count that is one off; a limit that
// is inclusive the wrong way; the reason of another kind.
func TestPlan(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name      string
		cfg       JobConfig
		last, now float64
		busy      float64 // 0: never
		resumed   float64 // 0: never
		run       float64 // 0: none
		until     float64 // 0: whenever
		skip      [2]float64
		count     int
		reason    string
		next      float64
	}{
		{name: "nothing is due", last: 10, now: 14.9, next: 15},
		{name: "one is due", last: 10, now: 15, run: 15, next: 20},
		{name: "a little late", last: 10, now: 15.2, run: 15, next: 20},
		{name: "latest of three", last: 10, now: 26, run: 25, skip: [2]float64{15, 20}, count: 2, reason: skipMissed, next: 30},
		{name: "latest after a long run", last: 10, now: 26, busy: 21, run: 25, skip: [2]float64{15, 20}, count: 2, reason: skipOverlap, next: 30},
		{name: "latest after a run that ended before", last: 10, now: 26, busy: 19, run: 25, skip: [2]float64{15, 20}, count: 2, reason: skipMissed, next: 30},
		{name: "latest after a pause", last: 10, now: 26, busy: 21, resumed: 26, run: 25, skip: [2]float64{15, 20}, count: 2, reason: skipPaused, next: 30},
		{name: "overlapping", cfg: JobConfig{Overlap: OverlapAllow}, last: 10, now: 26, busy: 21, run: 25, skip: [2]float64{15, 20}, count: 2, reason: skipMissed, next: 30},
		{name: "all of three", cfg: JobConfig{CatchUp: CatchUpAll}, last: 10, now: 26, run: 15, next: 30},
		{
			name: "all but too many", cfg: JobConfig{CatchUp: CatchUpAll}, last: 0, now: 5 * 103,
			run: 5 * 4, skip: [2]float64{5, 15}, count: 3, reason: skipMissed, next: 5 * 104,
		},
		{name: "all within the deadline", cfg: JobConfig{CatchUp: CatchUpAll, StartingDeadline: 6 * s}, last: 10, now: 26, run: 20, until: 26, skip: [2]float64{15, 15}, count: 1, reason: skipDeadline, next: 30},
		{name: "none on time", cfg: JobConfig{CatchUp: CatchUpNone}, last: 10, now: 16, run: 15, until: 25, next: 20},
		{name: "none, and an older one", cfg: JobConfig{CatchUp: CatchUpNone}, last: 5, now: 16, run: 15, until: 25, skip: [2]float64{10, 10}, count: 1, reason: skipMissed, next: 20},
		{name: "latest at the deadline", cfg: JobConfig{StartingDeadline: 2 * s}, last: 10, now: 17, run: 15, until: 17, next: 20},
		{name: "latest after the deadline", cfg: JobConfig{StartingDeadline: 2 * s}, last: 10, now: 17.001, skip: [2]float64{15, 15}, count: 1, reason: skipDeadline, next: 20},
		{name: "clock set back", last: 100, now: 20, next: 105},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := &job{name: "j", schedule: seconds(5 * s), cfg: c.cfg}
			if c.last == 0 {
				c.last = 0.001
			}
			busy := time.Time{}
			if c.busy != 0 {
				busy = at(c.busy)
			}
			resumed := time.Time{}
			if c.resumed != 0 {
				resumed = at(c.resumed)
			}
			p := j.plan(lockcore.LedgerState{Last: at(c.last), Freed: busy, Resumed: resumed}, at(c.now))
			want := func(what string, got time.Time, seconds float64) {
				t.Helper()
				if seconds == 0 && !got.IsZero() || seconds != 0 && !got.Equal(at(seconds)) {
					t.Errorf("%s is %v, want second %v", what, got, seconds)
				}
			}
			want("run", p.run, c.run)
			want("until", p.until, c.until)
			want("next", p.next, c.next)
			switch {
			case c.count == 0 && p.skip != nil:
				t.Errorf("skip is %+v, want none", p.skip)
			case c.count > 0 && p.skip == nil:
				t.Errorf("nothing is skipped")
			case c.count > 0:
				want("first skipped", p.skip.First, c.skip[0])
				want("last skipped", p.skip.Last, c.skip[1])
				if p.skip.Count != c.count || p.skip.Reason != c.reason {
					t.Errorf("skip is %+v, want %d for %s", p.skip, c.count, c.reason)
				}
			}
		})
	}
	t.Run("none, too late", func(t *testing.T) {
		j := &job{name: "j", schedule: seconds(time.Minute), cfg: JobConfig{CatchUp: CatchUpNone}}
		p := j.plan(lockcore.LedgerState{Last: at(-1000)}, at(-1000).Truncate(time.Minute).Add(time.Minute+11*s))
		if !p.run.IsZero() || p.skip == nil || p.skip.Count != 1 || p.skip.Reason != skipMissed {
			t.Errorf("plan is %+v, want the tick skipped", p)
		}
	})
}

// However many ticks were missed, and wherever the bound of one plan falls, each
// one is either chosen or skipped, and the newest are not skipped with the rest.
// Mutant: skipping everything that one plan looked at.
func TestPlanOfVeryManyTicks(t *testing.T) {
	for _, missed := range []int{
		1, 99, 100, 101, 102, 201, 202, 203, 1000, mostTicks - 1, mostTicks, mostTicks + 1,
		mostTicks + kept, 2*mostTicks - kept, 1_000_000,
	} {
		for _, catchUp := range []CatchUp{CatchUpLatest, CatchUpAll} {
			j := &job{name: "j", schedule: seconds(100 * time.Millisecond), cfg: JobConfig{CatchUp: catchUp}}
			last, now := at(0), at(float64(missed)/10+0.05)
			skipped, plans := 0, 0
			p := j.plan(lockcore.LedgerState{Last: last}, now)
			for ; p.run.IsZero(); p = j.plan(lockcore.LedgerState{Last: last}, now) {
				if plans++; plans > 20 || p.skip == nil {
					t.Fatalf("%d missed: no end, plan is %+v", missed, p)
				}
				if !p.skip.First.Equal(j.schedule.Next(last)) {
					t.Fatalf("%d missed: the skip begins at %v", missed, p.skip.First)
				}
				skipped += p.skip.Count
				last = p.skip.Last
			}
			if p.skip != nil {
				skipped += p.skip.Count
				last = p.skip.Last
			}
			want := missed - 1
			if catchUp == CatchUpAll {
				want = max(0, missed-catchUpMost)
			}
			if skipped != want || !p.run.Equal(j.schedule.Next(last)) {
				t.Errorf("%d missed, %d: %d skipped, want %d; run %v", missed, catchUp, skipped, want, p.run)
			}
		}
	}
}

// The jitter of a tick is the same everywhere, spreads, and keeps the order.
// Mutants: a random delay; one that reaches the next tick.
func TestJitter(t *testing.T) {
	j := &job{name: "j", cfg: JobConfig{Jitter: time.Minute}}
	other := &job{name: "k", cfg: JobConfig{Jitter: time.Minute}}
	seen := map[time.Duration]bool{}
	same := 0
	var longest time.Duration
	for i := range 1000 {
		tick := at(float64(i) * 3600)
		d := j.delay(tick, tick.Add(time.Hour))
		if d < 0 || d > time.Minute || d%time.Millisecond != 0 {
			t.Fatalf("delay is %v", d)
		}
		if again := (&job{name: "j", cfg: j.cfg}).delay(tick.In(time.FixedZone("x", 3600)), tick.Add(time.Hour)); again != d {
			t.Fatalf("another replica delays by %v, not by %v", again, d)
		}
		if other.delay(tick, tick.Add(time.Hour)) == d {
			same++
		}
		seen[d] = true
		longest = max(longest, d)
		if short := j.delay(tick, tick.Add(time.Second)); short >= time.Second {
			t.Fatalf("delay %v goes beyond the next tick", short)
		}
	}
	if len(seen) < 900 || same > 10 || longest < 59*time.Second {
		t.Errorf("%d different delays of 1000, %d the same as another job's, the longest %v", len(seen), same, longest)
	}
	if d := j.delay(at(0), time.Time{}); d > time.Minute {
		t.Errorf("the last tick's delay is %v", d)
	}
	if d := (&job{name: "j"}).delay(at(0), at(1)); d != 0 {
		t.Errorf("delay without jitter is %v", d)
	}
}

// A golden delay: a new version must not move the ticks of a job.
func TestJitterIsStable(t *testing.T) {
	j := &job{name: "report", cfg: JobConfig{Jitter: 10 * time.Minute}}
	if d := j.delay(at(0), at(86400)); d != 335_108*time.Millisecond {
		t.Errorf("delay is %v", d)
	}
}

// A tick waits for its delay, and those after it for it.
func TestPlanWithJitter(t *testing.T) {
	j := &job{name: "j", schedule: seconds(time.Minute), cfg: JobConfig{Jitter: 30 * time.Second}}
	tick := j.schedule.Next(at(0))
	d := j.delay(tick, tick.Add(time.Minute))
	if d == 0 {
		t.Fatal("this tick has no delay, choose another")
	}
	if p := j.plan(lockcore.LedgerState{Last: at(0)}, tick.Add(d-time.Millisecond)); !p.run.IsZero() || !p.next.Equal(tick.Add(d)) {
		t.Errorf("before its delay is over: %+v", p)
	}
	if p := j.plan(lockcore.LedgerState{Last: at(0)}, tick.Add(d)); !p.run.Equal(tick) {
		t.Errorf("when its delay is over: %+v", p)
	}
}

func TestRetentionIsBeyondTheLongestInterval(t *testing.T) {
	leap, err := ParseSchedule("0 0 29 2 *", ScheduleConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if r := retention(leap); r < 8*365*24*time.Hour {
		t.Errorf("retention of the 29th of February is %v", r)
	}
	if r := retention(seconds(time.Second)); r < 30*24*time.Hour || r > 31*24*time.Hour {
		t.Errorf("retention of each second is %v", r)
	}
}
