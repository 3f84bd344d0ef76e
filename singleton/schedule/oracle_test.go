package schedule_test

import (
	"math/bits"
	"slices"
	"testing"
	"time"
	_ "time/tzdata" // for machines that have no time zone data

	"github.com/noonlock/noonlock/singleton/schedule"
)

// oracleSpec pairs a spec with its meaning, which was written by hand and not by a parser.
type oracleSpec struct {
	spec  string
	wild  bool // the hour field starts with "*"
	dense bool // too many ticks to ask for all of them
	clock func(h, m int) bool
	day   func(mon time.Month, d int, wd time.Weekday) bool
}

func oracleSpecs() []oracleSpec {
	at := func(h, m int) func(int, int) bool { return func(hh, mm int) bool { return hh == h && mm == m } }
	daily := func(time.Month, int, time.Weekday) bool { return true }
	return []oracleSpec{
		{"30 2 * * *", false, false, at(2, 30), daily},
		{"0 0 * * *", false, false, at(0, 0), daily},
		{"@daily", false, false, at(0, 0), daily},
		{"0 12 * * *", false, false, at(12, 0), daily},
		{"0 3 * * *", false, false, at(3, 0), daily},
		{"30 23 * * *", false, false, at(23, 30), daily},
		{
			"0,15,30,45 0-3 * * *", false, true,
			func(h, m int) bool { return h <= 3 && m%15 == 0 }, daily,
		},
		{
			"*/10 1,2 * * *", false, true,
			func(h, m int) bool { return (h == 1 || h == 2) && m%10 == 0 }, daily,
		},
		{
			"59,0 23,0 * * *", false, false,
			func(h, m int) bool { return (h == 23 || h == 0) && (m == 0 || m == 59) }, daily,
		},
		{"15 2 * * SUN", false, false, at(2, 15), func(_ time.Month, _ int, wd time.Weekday) bool { return wd == time.Sunday }},
		{
			"45 1 1-7,25-31 3,APR,10,Nov *", false, false, at(1, 45),
			func(mon time.Month, d int, _ time.Weekday) bool {
				return (mon == time.March || mon == time.April || mon == time.October || mon == time.November) && (d <= 7 || d >= 25)
			},
		},
		{ // both restricted: either
			"0 0 13 * FRI", false, false, at(0, 0),
			func(_ time.Month, d int, wd time.Weekday) bool { return d == 13 || wd == time.Friday },
		},
		{ // one starts with a star: both
			"0 6 */2 * MON", false, false, at(6, 0),
			func(_ time.Month, d int, wd time.Weekday) bool { return d%2 == 1 && wd == time.Monday },
		},
		{ // and the other way round
			"0 6 1-7 * */3", false, false, at(6, 0),
			func(_ time.Month, d int, wd time.Weekday) bool {
				return d <= 7 && (wd == time.Sunday || wd == time.Wednesday || wd == time.Saturday)
			},
		},
		{"59 23 * * 7", false, false, at(23, 59), func(_ time.Month, _ int, wd time.Weekday) bool { return wd == time.Sunday }},
		{"5 0 29 2 *", false, false, at(0, 5), func(mon time.Month, d int, _ time.Weekday) bool { return mon == time.February && d == 29 }},
		{"0 * * * *", true, true, func(_, m int) bool { return m == 0 }, daily},
		{"45 * * * *", true, true, func(_, m int) bool { return m == 45 }, daily},
		{"30 */2 * * *", true, true, func(h, m int) bool { return h%2 == 0 && m == 30 }, daily},
		{"0 */3 * * *", true, false, func(h, m int) bool { return h%3 == 0 && m == 0 }, daily},
		{
			"20 * * 3,4,9-11 FRI-SUN", true, false, func(_, m int) bool { return m == 20 },
			func(mon time.Month, _ int, wd time.Weekday) bool {
				return slices.Contains([]time.Month{3, 4, 9, 10, 11}, mon) && slices.Contains([]time.Weekday{5, 6, 0}, wd)
			},
		},
		{"*/5 * * * *", true, true, func(_, m int) bool { return m%5 == 0 }, daily},
		{"* * * * *", true, true, func(_, _ int) bool { return true }, daily},
		{"*/7 0-4 * * *", false, true, func(h, m int) bool { return h <= 4 && m%7 == 0 }, daily},
		{"* 2 * * *", false, true, func(h, _ int) bool { return h == 2 }, daily},
	}
}

// walkDay is the length of a day in the walk's unit, the minute.
const walkDay = 24 * 60

// minuteWalk walks through ten years of one zone minute by minute and records when each
// spec is due. Specs are bits of a mask. Times are minutes since origin, those of the wall
// clock as if it were UTC.
type minuteWalk struct {
	specs  []oracleSpec
	origin int64 // UTC minute at midnight
	length int

	clock [walkDay]uint32 // the specs that mean this time of day
	days  []uint32        // the specs that mean this day

	run, skip     [][]int64 // due, by spec: Unix minutes, under GapRun and GapSkip
	changes       []int     // where the offset is a new one
	gaps, repeats int       // times of specs that were never shown, and that were shown again
}

// walkZone walks between two midnights in UTC, and a few days beyond.
func walkZone(t *testing.T, loc *time.Location, specs []oracleSpec, from, to time.Time) *minuteWalk {
	t.Helper()
	const margin = 3 // days, at either end
	w := &minuteWalk{
		specs:  specs,
		origin: from.Unix()/60 - margin*walkDay,
		length: int(to.Sub(from).Minutes()) + 2*margin*walkDay,
		run:    make([][]int64, len(specs)),
		skip:   make([][]int64, len(specs)),
	}
	offsets := w.offsets(t, loc)
	w.mark()
	w.collect(offsets)
	return w
}

// offsets returns the offset in minutes of every quarter of an hour, after checking that it
// never changes within one.
func (w *minuteWalk) offsets(t *testing.T, loc *time.Location) []int {
	t.Helper()
	offsets := make([]int, w.length/15)
	for i := range offsets {
		at := (w.origin + int64(i)*15) * 60
		_, seconds := time.Unix(at, 0).In(loc).Zone()
		offsets[i] = seconds / 60
		if seconds%60 != 0 {
			t.Fatalf("%v has an offset of %d s: the walk knows minutes only", loc, seconds)
		}
		if i == 0 || offsets[i] == offsets[i-1] {
			continue
		}
		w.changes = append(w.changes, i*15)
		if _, before := time.Unix(at-1, 0).In(loc).Zone(); before != offsets[i-1]*60 {
			t.Fatalf("%v changes its offset within the quarter before %v", loc, time.Unix(at, 0).UTC())
		}
	}
	return offsets
}

// compared reports whether dense specs are compared on this day: three days around every
// change of the clock, and one day of every seventh week.
func (w *minuteWalk) compared(date int) bool {
	return date%49 == 0 || slices.ContainsFunc(w.changes, func(change int) bool {
		return change/walkDay-3 <= date && date <= change/walkDay+3
	})
}

// mark fills clock and days.
func (w *minuteWalk) mark() {
	for i := range w.clock {
		for bit, spec := range w.specs {
			if spec.clock(i/60, i%60) {
				w.clock[i] |= 1 << bit
			}
		}
	}
	w.days = make([]uint32, w.length/walkDay)
	for i := range w.days {
		date := time.Unix((w.origin+int64(i)*walkDay)*60, 0).UTC()
		// For dense specs, one day more on either side is recorded than is compared.
		dense := w.compared(i-1) || w.compared(i) || w.compared(i+1)
		for bit, spec := range w.specs {
			if (dense || !spec.dense) && spec.day(date.Month(), date.Day(), date.Weekday()) {
				w.days[i] |= 1 << bit
			}
		}
	}
}

// collect fills run and skip. A spec with a wildcard hour is due at every instant that
// shows one of its times. Any other spec is due at the first instant of each time. A time
// that does not exist counts as the next time that does.
func (w *minuteWalk) collect(offsets []int) {
	var wild uint32
	for bit, spec := range w.specs {
		if spec.wild {
			wild |= 1 << bit
		}
	}
	note := func(list [][]int64, mask uint32, at int) {
		for ; mask != 0; mask &= mask - 1 {
			bit := bits.TrailingZeros32(mask)
			list[bit] = append(list[bit], w.origin+int64(at))
		}
	}

	first := make([]int, w.length) // the first instant of each wall minute; 0 if it is never shown
	for at := walkDay; at < w.length-walkDay; at++ {
		wall := at + offsets[at/15]
		mask := w.clock[wall%walkDay] & w.days[wall/walkDay]
		note(w.run, mask&wild, at)
		if first[wall] == 0 {
			first[wall] = at
		} else {
			w.repeats += bits.OnesCount32(mask)
		}
	}

	following := 0
	for wall := w.length - 1; wall >= 2*walkDay; wall-- {
		mask := w.clock[wall%walkDay] & w.days[wall/walkDay] &^ wild
		if first[wall] != 0 {
			following = first[wall]
			note(w.skip, mask, following)
		} else if following != 0 {
			w.gaps += bits.OnesCount32(mask)
		}
		if following != 0 {
			note(w.run, mask, following)
		}
	}
	for bit, spec := range w.specs {
		if spec.wild {
			w.skip[bit] = w.run[bit]
			continue
		}
		slices.Reverse(w.run[bit])
		slices.Reverse(w.skip[bit])
		w.run[bit] = slices.Compact(w.run[bit])
	}
}

// compare follows s from tick to tick, starting at a tick, through all compared days of
// [from, to).
func (w *minuteWalk) compare(t *testing.T, s schedule.Schedule, ticks []int64, dense bool, from, to time.Time) (asked int) {
	t.Helper()
	at, walked := from, false
	for i, minute := range ticks {
		want := time.Unix(minute*60, 0).UTC()
		if !want.After(from) || !want.Before(to) {
			continue
		}
		if dense && !w.compared(int(minute-w.origin)/walkDay) {
			walked = false
			continue
		}
		if !walked && i > 0 && dense {
			at = time.Unix(ticks[i-1]*60, 0)
			if want.Sub(at) > 24*time.Hour {
				at = want.Add(-time.Minute)
			}
		}
		walked = true
		questions := []time.Time{at}
		if asked%16 == 0 {
			questions = append(questions, at.Add(want.Sub(at)/2), want.Add(-1))
		}
		for _, q := range questions {
			if got := s.Next(q); !got.Equal(want) {
				t.Fatalf("%v: Next(%v) = %v, the oracle says %v", s, q.UTC(), got, want)
			}
		}
		asked++
		at = want
	}
	return asked
}

// TestFault55And56_TenYearsAgainstMinuteByMinuteOracle catches, for example: mapping by time.Date alone (which moves a
// skipped time by the length of the gap), keeping the offset of the argument, and taking the second of two occurrences.
func TestFault55And56_TenYearsAgainstMinuteByMinuteOracle(t *testing.T) {
	t.Parallel()
	// Cairo has four changes in 2014, none from 2015 to 2022, and a new rule from 2023 on.
	from := time.Date(2014, time.January, 1, 0, 0, 0, 0, time.UTC)
	to := time.Date(2024, time.January, 1, 0, 0, 0, 0, time.UTC)
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Santiago", "Australia/Lord_Howe"} {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			loc := mustZone(t, zone)
			w := walkZone(t, loc, oracleSpecs(), from, to)
			var asked int
			for bit, spec := range w.specs {
				run := mustSchedule(t, spec.spec, schedule.Config{TimeZone: loc})
				skip := mustSchedule(t, spec.spec, schedule.Config{TimeZone: loc, Gap: schedule.GapSkip})
				n := w.compare(t, run, w.run[bit], spec.dense, from, to)
				n += w.compare(t, skip, w.skip[bit], spec.dense, from, to)
				if n == 0 {
					t.Errorf("%q: no tick was compared", spec.spec)
				}
				asked += n
			}
			t.Logf("%d changes of the clock; of the specs' times %d were skipped and %d shown again; %d ticks compared",
				len(w.changes), w.gaps, w.repeats, asked)
			if len(w.changes) == 0 || w.gaps == 0 || w.repeats == 0 {
				t.Error("the faults were not met")
			}
		})
	}
}
