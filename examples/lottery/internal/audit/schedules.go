package audit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
)

// A Stretch is a part of a range, Since ≤ noon < Until, with one schedule in force.
type Stretch struct {
	store.Span
	Known    bool // the ledger says that the schedule was in force
	Schedule singleton.Schedule
	Name     string      // of the schedule, for people
	Noons    []time.Time // of the schedule, in the stretch
}

// A Timetable is a range, divided by the schedules that were in force, oldest first.
type Timetable []Stretch

// InForce divides a range by the schedules that the job has had. Where the ledger does not
// say which one was in force, it is not known: before the first change, where a schedule
// cannot be read here, and after the last noon of one that was kept as a list. Such a
// stretch has the given schedule, and nothing is judged by it. A ledger that knows no
// change at all says nothing against the given schedule, which is in force then.
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
		begin := change.Since.Add(time.Millisecond) // a tick at the change is the former schedule's
		if !begin.Before(end) {
			continue // a later change came before it: the ledger was set back
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

// ending is where the schedule ends, at the latest at until.
func ending(s singleton.Schedule, since, until time.Time) time.Time {
	if at := s.Next(until.Add(-1)); !at.IsZero() {
		return until
	}
	end := since
	for at := s.Next(since.Add(-1)); !at.IsZero() && at.Before(until); at = s.Next(at) {
		end = at.Add(time.Millisecond)
	}
	return end
}

// fill lists the noons, and joins stretches of one schedule.
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

// name is how people see a schedule that the ledger keeps as text.
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

// Within is the part of the timetable that lies in a range.
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

// Expect sets what is expected by the timetable.
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
