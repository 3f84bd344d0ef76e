package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// A Stretch is a part of a range, Since ≤ noon < Until, with one schedule.
type Stretch struct {
	store.Span
	Known    bool // the ledger records that the schedule was in force
	Schedule schedule.Schedule
	Name     string      // text of the schedule for output
	Noons    []time.Time // of the schedule in the stretch
}

// A Timetable is a range divided by the schedules that were in force, oldest first.
type Timetable []Stretch

// InForce divides a range by the schedules that the job has had.
//
// The schedule in force is unknown before the first change, where this program cannot parse
// a schedule, and after the last noon of a schedule that was stored as a list. Such a
// stretch has the given schedule and Known is false. If the ledger has no changes at all,
// the given schedule is taken as in force.
func InForce(changes []singleton.ScheduleChange, given Stretch) (Timetable, error) {
	if len(changes) == 0 {
		given.Known = true
		return Timetable{given}.fill()
	}
	var t Timetable
	put := func(since, until time.Time, s Stretch) {
		if since.Before(given.Since) {
			since = given.Since
		}
		if since.Before(until) {
			s.Span = store.Span{Since: since, Until: until}
			t = append(t, s)
		}
	}
	end := given.Until
	for _, change := range slices.Backward(changes) {
		begin := change.Since.Add(time.Millisecond) // a tick at the change belongs to the former schedule
		if !begin.Before(end) {
			continue // a later change has an earlier time: the ledger was reset
		}
		s := given
		until := end
		if change.Schedule != nil {
			s = Stretch{Known: true, Schedule: change.Schedule, Name: name(change.Text)}
			if until = ending(change.Schedule, begin, end); until.Before(end) {
				put(until, end, given)
			}
		}
		put(begin, until, s)
		end = begin
	}
	put(given.Since, end, given)
	slices.Reverse(t)
	return t.fill()
}

// ending returns the end of the schedule, at most until.
func ending(s schedule.Schedule, since, until time.Time) time.Time {
	if at := s.Next(until.Add(-1)); !at.IsZero() {
		return until
	}
	end := since
	for at := s.Next(since.Add(-1)); !at.IsZero() && at.Before(until); at = s.Next(at) {
		end = at.Add(time.Millisecond)
	}
	return end
}

// fill lists the noons, and joins adjacent stretches of one schedule.
func (t Timetable) fill() (Timetable, error) {
	var filled Timetable
	for _, s := range t {
		noons, err := noon.Between(s.Schedule, s.Since, s.Until)
		if err != nil {
			return nil, err
		}
		s.Noons = noons
		if n := len(filled) - 1; n >= 0 && filled[n].Known == s.Known && filled[n].Name == s.Name {
			filled[n].Until, filled[n].Noons = s.Until, append(filled[n].Noons, noons...)
			continue
		}
		filled = append(filled, s)
	}
	return filled, nil
}

// name converts the ledger's text of a schedule for output.
func name(text string) string {
	if strings.HasPrefix(text, "ticks") {
		return "a list of noons"
	}
	fields, zone, zoned := strings.Cut(text, " in ")
	if !zoned {
		return fmt.Sprintf("%q", fields)
	}
	return fmt.Sprintf("%q in %s", fields, zone)
}

// Within returns the part of the timetable in a range.
func (t Timetable) Within(since, until time.Time) Timetable {
	var within Timetable
	for _, s := range t {
		if s.Since.Before(since) {
			s.Since = since
		}
		if s.Until.After(until) {
			s.Until = until
		}
		if !s.Since.Before(s.Until) {
			continue
		}
		s.Noons = slices.DeleteFunc(slices.Clone(s.Noons), func(at time.Time) bool { return at.Before(s.Since) || !at.Before(s.Until) })
		within = append(within, s)
	}
	return within
}

// Expect returns want with the ticks of the timetable.
func (t Timetable) Expect(want store.Expected) store.Expected {
	want.Ticks, want.Unscheduled = nil, nil
	for _, s := range t {
		if s.Known {
			want.Ticks = append(want.Ticks, s.Noons...)
		} else {
			want.Unscheduled = append(want.Unscheduled, s.Span)
		}
	}
	return want
}
