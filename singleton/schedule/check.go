package schedule

import (
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// probeSteps is the number of ticks that are followed from each start. A few reveal every violation, and a schedule
// that takes a millisecond per call is still checked in about a second.
const probeSteps = 12

// Check calls Next of s for some 600 instants from 1970 to a little after 2100, and for the present. It returns a
// *ConfigError for the first result that breaks one of these rules:
//
//   - Next returns a time after its argument, in whole milliseconds;
//   - Next returns the first tick: for every instant up to a tick, from the tick before it, it returns that tick
//     (unlike "the argument plus five minutes");
//   - the result does not depend on the location or the monotonic reading of the argument;
//   - the result is the same in a second call, in another order;
//   - there is a tick, and after Next has returned the zero Time for an instant, it does so for all later ones;
//   - Next does not panic.
//
// Check is a test, not a proof. It cannot detect a schedule that differs only between processes, such as one that counts
// from the start of the process. It makes no concurrent calls and ignores the location of the results.
func Check(s Schedule) (err error) {
	if s == nil {
		return &ConfigError{Field: "schedule", Value: "nil", Rule: "a Schedule"}
	}
	defer func() {
		if r := recover(); r != nil {
			err = &ConfigError{Field: "the result of Next", Value: input.Quote("panic: " + fmt.Sprint(r)), Rule: "an instant"}
		}
	}()
	p := prober{schedule: s}
	for _, start := range probeStarts() {
		if err := p.follow(start); err != nil {
			return err
		}
	}
	if err := p.probeNow(); err != nil {
		return err
	}
	return p.repeat()
}

// probeStarts returns instants with and without fractions, at and between round times, in ascending order. They are
// within the range of UnixNano, which a user's schedule may use.
func probeStarts() []time.Time {
	return []time.Time{
		time.Date(1970, time.January, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1987, time.June, 5, 4, 3, 2, 100_000_000, time.UTC),
		time.Date(1999, time.December, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(2008, time.February, 29, 12, 0, 0, 0, time.UTC),
		time.Date(2024, time.March, 31, 0, 59, 30, 1, time.UTC),
		time.Date(2024, time.October, 27, 0, 30, 0, 0, time.UTC),
		time.Date(2026, time.July, 14, 17, 42, 11, 345_678_901, time.UTC),
		time.Date(2031, time.November, 2, 5, 15, 0, 0, time.UTC),
		time.Date(2048, time.December, 31, 7, 0, 0, 500_000, time.UTC),
		time.Date(2100, time.February, 28, 23, 59, 0, 0, time.UTC),
	}
}

// prober calls Next of a schedule and records every call with its result.
type prober struct {
	schedule Schedule
	probes   []probe
	// none is the earliest instant for which Next returned the zero Time; zero if there is none.
	none time.Time
}

type probe struct{ at, tick time.Time }

// follow follows the ticks from start on.
func (p *prober) follow(start time.Time) error {
	zones := [...]*time.Location{
		time.FixedZone("ahead", 14*60*60),
		time.FixedZone("behind", -11*60*60-30*60),
		time.FixedZone("odd", 19*60+32),
	}
	at := start
	for range probeSteps {
		tick := p.next(at)
		switch {
		case tick.IsZero() && len(p.probes) == 1:
			return refuse(at, tick, "a tick, as a schedule has at least one")
		case tick.IsZero():
			if p.none.IsZero() || at.Before(p.none) {
				p.none = at
			}
		case !p.none.IsZero() && !at.Before(p.none):
			return refuse(at, tick, "the zero Time, as Next("+tickText(p.none)+") found no later tick")
		case !tick.After(at):
			return refuse(at, tick, "later than the argument")
		case tick.Nanosecond()%int(time.Millisecond) != 0:
			return refuse(at, tick, "in whole milliseconds")
		}
		// The same instant in another location, then instants that must have the same next tick.
		instants := []time.Time{at}
		if !tick.IsZero() {
			instants = append(instants, at.Add(1), at.Add(tick.Sub(at)/2), tick.Add(-1))
		}
		for i, q := range instants {
			if q.Before(at) || !tick.IsZero() && !q.Before(tick) {
				continue
			}
			q = q.In(zones[(i+len(p.probes))%len(zones)])
			if again := p.next(q); !again.Equal(tick) {
				return refuse(q, again, "the first tick after the argument in any location; Next("+tickText(at)+") returned "+tickText(tick))
			}
		}
		if tick.IsZero() {
			return nil
		}
		at = tick
	}
	return nil
}

// probeNow calls Next with and without a monotonic reading, which only time.Now provides.
func (p *prober) probeNow() error {
	now := time.Now()
	with, without := p.next(now), p.next(now.Round(0))
	if !with.Equal(without) {
		return refuse(now, with, "independent of the monotonic reading of the argument; without it, it was "+tickText(without))
	}
	return nil
}

// repeat repeats every call, the last one first.
func (p *prober) repeat() error {
	for _, before := range slices.Backward(p.probes) {
		if tick := p.schedule.Next(before.at); !tick.Equal(before.tick) {
			return refuse(before.at, tick, "the same in every call; it was "+tickText(before.tick)+" before")
		}
	}
	return nil
}

func (p *prober) next(at time.Time) time.Time {
	tick := p.schedule.Next(at)
	p.probes = append(p.probes, probe{at, tick})
	return tick
}

func refuse(at, tick time.Time, rule string) *ConfigError {
	return &ConfigError{Field: "Next(" + tickText(at) + ")", Value: tickText(tick), Rule: rule}
}

func tickText(t time.Time) string {
	if t.IsZero() {
		return "the zero Time"
	}
	return t.Format(time.RFC3339Nano)
}
