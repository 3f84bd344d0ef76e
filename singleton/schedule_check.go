package singleton

import (
	"fmt"
	"slices"
	"time"
)

// probeSteps is the number of ticks followed from each starting point. A few are enough to meet every rule,
// and even a schedule that takes a millisecond to answer is done within a second or so.
const probeSteps = 12

// CheckSchedule asks s about some 600 instants between 1970 and a little after 2100, and about now, and returns a
// *ScheduleError for the first answer that a fixed set of instants cannot give. It requires that
//
//   - Next is after its argument, so ticks strictly increase, and is a whole number of milliseconds;
//   - Next is the first tick: asked anywhere between an instant and the tick after it, it names that same tick
//     (which "the argument plus five minutes" does not);
//   - the answer is the same whatever the location of the argument, and with and without a monotonic reading;
//   - the answer is the same when asked again, in another order;
//   - there are ticks, and once there is none (the zero Time), there is none later;
//   - Next does not panic.
//
// It is a probe, not a proof. It cannot see what stays the same within one process, such as a schedule that counts
// from the start of the process, and it does not ask concurrently. The location of the answers is not looked at.
func CheckSchedule(s Schedule) (err error) {
	if s == nil {
		return &ScheduleError{"schedule", "nil", "it must be a Schedule"}
	}
	defer func() {
		if r := recover(); r != nil {
			err = &ScheduleError{"Next", fmt.Sprint(r), "it must answer instead of panicking"}
		}
	}()
	p := prober{schedule: s}
	for _, start := range probeStarts() {
		if err := p.follow(start); err != nil {
			return err
		}
	}
	if err := p.askNow(); err != nil {
		return err
	}
	return p.askAgain()
}

// probeStarts are instants with and without fractions, at and between round ones, in order, beginning with the
// earliest that may be asked about. They keep within the range of UnixNano, which users' schedules may well use.
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

// prober asks a schedule and remembers every question with its answer.
type prober struct {
	schedule Schedule
	asked    []probe
	// none is the earliest instant after which there was no tick; the zero Time if there was always one.
	none time.Time
}

type probe struct{ at, tick time.Time }

// follow goes from tick to tick, from start on.
func (p *prober) follow(start time.Time) error {
	zones := [...]*time.Location{
		time.FixedZone("ahead", 14*60*60),
		time.FixedZone("behind", -11*60*60-30*60),
		time.FixedZone("odd", 19*60+32),
	}
	at := start
	for range probeSteps {
		tick := p.ask(at)
		switch {
		case tick.IsZero() && len(p.asked) == 1:
			return refuse(at, tick, "a schedule must have at least one tick")
		case tick.IsZero():
			if p.none.IsZero() || at.Before(p.none) {
				p.none = at
			}
		case !p.none.IsZero() && !at.Before(p.none):
			return refuse(at, tick, "there must be no more ticks, as the answer for "+tickText(p.none)+" was that there are none")
		case !tick.After(at):
			return refuse(at, tick, "it must be later than the argument")
		case tick.Nanosecond()%int(time.Millisecond) != 0:
			return refuse(at, tick, "it must be a whole number of milliseconds, for so ticks are recorded")
		}
		// The same question from elsewhere, and then questions whose answer follows.
		questions := []time.Time{at}
		if !tick.IsZero() {
			questions = append(questions, at.Add(1), at.Add(tick.Sub(at)/2), tick.Add(-1))
		}
		for i, q := range questions {
			if q.Before(at) || !tick.IsZero() && !q.Before(tick) {
				continue
			}
			q = q.In(zones[(i+len(p.asked))%len(zones)])
			if again := p.ask(q); !again.Equal(tick) {
				return refuse(q, again, "it must be the first tick after the argument, whatever its location, and that was "+
					tickText(tick)+" when asked for "+tickText(at))
			}
		}
		if tick.IsZero() {
			return nil
		}
		at = tick
	}
	return nil
}

// askNow asks with and without a monotonic reading. Only the real clock gives one.
func (p *prober) askNow() error {
	now := time.Now()
	with, without := p.ask(now), p.ask(now.Round(0))
	if !with.Equal(without) {
		return refuse(now, with, "it must not depend on the monotonic reading of the argument, and was "+tickText(without)+" without it")
	}
	return nil
}

// askAgain repeats every question, the last one first.
func (p *prober) askAgain() error {
	for _, before := range slices.Backward(p.asked) {
		if tick := p.schedule.Next(before.at); !tick.Equal(before.tick) {
			return refuse(before.at, tick, "it must be the same whenever it is asked, and was "+tickText(before.tick)+" before")
		}
	}
	return nil
}

func (p *prober) ask(at time.Time) time.Time {
	tick := p.schedule.Next(at)
	p.asked = append(p.asked, probe{at, tick})
	return tick
}

func refuse(at, tick time.Time, rule string) *ScheduleError {
	return &ScheduleError{"Next(" + tickText(at) + ")", tickText(tick), rule}
}

func tickText(t time.Time) string {
	if t.IsZero() {
		return "the zero Time"
	}
	return t.Format(time.RFC3339Nano)
}
