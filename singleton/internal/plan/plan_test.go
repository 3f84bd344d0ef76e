package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/ticks"
)

// at is an instant of these tests: that many seconds after a fixed one.
func at(seconds float64) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(seconds * float64(time.Second))).UTC()
}

func seconds(d time.Duration) ticks.Schedule {
	s, err := ticks.Parse("@every "+d.String(), ticks.Config{})
	if err != nil {
		panic(err)
	}
	return s
}

// No tick is due until the server's clock has caught up with the ledger.
func TestPlanAfterTheClockWasSetBack(t *testing.T) {
	p := (&Policy{Schedule: seconds(5 * time.Second)}).Plan(&ledger.State{Last: at(100)}, at(20))
	if !p.Run.IsZero() || p.Skip != nil || !p.Next.Equal(at(105)) {
		t.Errorf("the plan is %+v", p)
	}
}

// A counting schedule counts its calls.
type countingSchedule struct {
	ticks.Schedule
	asked *int
}

func (s countingSchedule) Next(after time.Time) time.Time {
	*s.asked++
	return s.Schedule.Next(after)
}

// Whatever happened to a job, each tick that is not run is skipped for its own reason.
// Consecutive ticks with one reason are skipped together within one plan, and no tick is
// examined by several plans. The next check is due at the next tick.
// Mutants: the oldest instead of the latest is chosen; a limit that is inclusive on the wrong side; a stretch ends off by one; a tick that may be run is skipped with a stretch;
// ticks are run before all reasons are recorded; each plan examines all ticks.
func TestPlanOfMixedStretches(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 58)) //nolint:gosec // a test's choices
	mixed := 0
	for range 3000 {
		missed := random.IntN(3*kept + 1)
		if random.IntN(100) == 0 {
			missed = mostTicks - 2*kept + random.IntN(4*kept)
		}
		span := func() ledger.Span {
			a, b := random.IntN(missed+2), random.IntN(missed+2)
			from, to := at(float64(min(a, b))), at(float64(max(a, b)))
			switch random.IntN(5) {
			case 0:
				return ledger.Span{End: to}
			case 1:
				return ledger.Span{}
			}
			return ledger.Span{Begin: from, End: to}
		}
		state := ledger.State{Last: at(0)}
		state.NewestPause, state.NewestRun = span(), span()
		policy := Policy{CatchUpAll: random.IntN(2) == 0, AllowOverlap: random.IntN(2) == 0}
		if random.IntN(2) == 0 {
			policy.StartingDeadline = time.Duration(1+random.IntN(missed+1)) * time.Second
		}
		asked := 0
		policy.Schedule = countingSchedule{seconds(time.Second), &asked}
		now := at(float64(missed) + 0.5*float64(random.IntN(2)))

		// Computed tick by tick.
		type stretch struct {
			first, last int
			reason      string
		}
		var want []stretch
		run := missed // CatchUpLatest
		if policy.CatchUpAll {
			run = missed - MostCatchUp + 1
		}
		run = max(1, run)
		for limit := policy.StartingDeadline; limit > 0 && run <= missed && now.Sub(at(float64(run))) > limit; {
			run++
		}
		for n := 1; n < run; n++ {
			tick, reason := at(float64(n)), "missed"
			switch {
			case tick.Compare(state.NewestPause.Begin) >= 0 && tick.Compare(state.NewestPause.End) <= 0:
				reason = "paused"
			case !policy.AllowOverlap && tick.Compare(state.NewestRun.Begin) >= 0 && tick.Compare(state.NewestRun.End) <= 0:
				reason = "overlap"
			case policy.StartingDeadline > 0 && tick.Add(policy.StartingDeadline).Before(now):
				reason = "deadline"
			}
			if len(want) > 0 && want[len(want)-1].reason == reason {
				want[len(want)-1].last = n
			} else {
				want = append(want, stretch{n, n, reason})
			}
		}
		if len(want) > 1 {
			mixed++
		}

		var got []stretch
		var p Plan
		plans := 0
		for {
			plans++
			p = policy.Plan(&state, now)
			if p.Skip == nil {
				break
			}
			first, last := int(p.Skip.First.Sub(at(0))/time.Second), int(p.Skip.Last.Sub(at(0))/time.Second)
			if p.Skip.Count != last-first+1 {
				t.Fatalf("a skip of %+v", p.Skip)
			}
			if len(got) > 0 && got[len(got)-1].reason == p.Skip.Reason && got[len(got)-1].last == first-1 {
				got[len(got)-1].last = last // as the ledger does
			} else {
				got = append(got, stretch{first, last, p.Skip.Reason})
			}
			state.Last = p.Skip.Last
			if !p.Run.IsZero() || plans > 20 {
				break
			}
		}
		about := fmt.Sprintf("%d ticks, paused %v, held %v, %+v", missed, state.NewestPause, state.NewestRun, policy)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: skipped %v, want %v", about, got, want)
		}
		if p.Run.IsZero() != (run > missed) || !p.Run.IsZero() && !p.Run.Equal(at(float64(run))) {
			t.Fatalf("%s: run %v, want that of second %d of %d", about, p.Run, run, missed)
		}
		var until time.Time
		if policy.StartingDeadline > 0 && !p.Run.IsZero() {
			until = p.Run.Add(policy.StartingDeadline)
		}
		if !p.Until.Equal(until) || !p.Next.Equal(at(float64(missed+1))) {
			t.Fatalf("%s: until %v, next %v, want %v and that of second %d", about, p.Until, p.Next, until, missed+1)
		}
		if most := missed + plans*(kept+2); asked > most {
			t.Fatalf("%s: %d ticks looked at in %d plans, want at most %d", about, asked, plans, most)
		}
	}
	if mixed < 1000 {
		t.Errorf("only %d of these had more than one reason", mixed)
	}
}

// Mutants: only the next ticks are examined, or only the next years; the sum overflows.
func TestFault87_RetentionIsBeyondTheLongestInterval(t *testing.T) {
	const day = 24 * time.Hour
	for spec, least := range map[string]time.Duration{
		"@every 1s":       0,
		"0 12 * * *":      0,
		"* * 1 1 *":       2 * 364 * day,
		"*/5 * * 1 *":     2 * 334 * day,
		"* 12 * 6-8 1":    2 * 270 * day,
		"0 0 29 2 *":      8 * 365 * day,
		"* * 29 2 */7":    50 * 365 * day,
		"@every 20000h":   2 * 20000 * time.Hour,
		"@every 1300000h": 50 * 365 * day,
	} {
		s, err := ticks.Parse(spec, ticks.Config{})
		testenv.Must(t, err)
		r := Retention(s)
		if r < least+30*day-20*day || r > least+60*day || r > 100*365*day {
			t.Errorf("retention of %s is %v, want %v and a month", spec, r, least)
		}
	}
}
