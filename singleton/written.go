package singleton

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The ledger keeps the schedule that is in use as text, so that a later version, which
// has another one, can name the ticks that it leaves behind. It is an interval or a cron
// expression with its zone, or, of a schedule that cannot be written so, the next ticks:
//
//	@every 1m30s
//	0 12 * * * in Europe/Berlin, gap skip
//	0 12 * * * in +28800
//	ticks 1767225600000+60000*100 1767312000000+0*1 and more

const (
	writtenTicks = 1000
	writtenBytes = 2000

	andMore = " and more" // behind ticks that are not all
)

// A written schedule is text that readSchedule reads. It is good until an instant, the
// zero Time if for ever: of later ticks it knows nothing.
type written struct {
	text  string
	until time.Time
	half  time.Time // until when at least half of the ticks are to come
}

// write writes s, whose ticks have that fingerprint.
func write(s Schedule, ticks string, now time.Time) written {
	switch s := s.(type) {
	case everySchedule:
		return written{text: s.String()}
	case *cronSchedule:
		gap := ""
		if s.gap != GapRun {
			gap = ", gap " + s.gap.String()
		}
		zones := []string{s.loc.String()}
		if periods := zonePeriods(s.loc); len(periods) == 1 {
			zones = append(zones, fmt.Sprintf("%+d", periods[0].offset))
		}
		for _, zone := range zones {
			text := s.fields + " in " + zone + gap
			if same, err := readSchedule(text); err == nil && fingerprintTicks(same) == ticks {
				return written{text: text}
			}
		}
	}
	return writeTickList(s, now)
}

func writeTickList(s Schedule, now time.Time) written {
	var b strings.Builder
	b.WriteString("ticks")
	var all []time.Time
	for at := now; len(all) < writtenTicks; {
		if at = s.Next(at); at.IsZero() {
			break
		}
		all = append(all, at)
	}
	n := 0
	for n < len(all) && b.Len() < writtenBytes {
		row := tickRow{first: all[n].UnixMilli(), count: 1}
		if n+1 < len(all) {
			row.step = all[n+1].UnixMilli() - row.first
		}
		for next := n + 1; next < len(all) && all[next].UnixMilli() == row.first+row.step*row.count; next++ {
			row.count++
		}
		fmt.Fprintf(&b, " %d+%d*%d", row.first, row.step, row.count)
		n += int(row.count)
	}
	w := written{text: b.String()}
	if n > 0 && n < len(all) || len(all) == writtenTicks {
		w.text += andMore
		w.until, w.half = all[n-1], all[n/2]
	}
	return w
}

// readSchedule reads what write has written.
func readSchedule(text string) (Schedule, error) {
	refused := &ScheduleError{"written schedule", text, "it must be an interval, an expression with its zone, or a list of ticks"}
	if list, ok := strings.CutPrefix(text, "ticks"); ok {
		var s tickList
		list, s.more = strings.CutSuffix(list, andMore)
		for item := range strings.FieldsSeq(list) {
			var r tickRow
			if n, err := fmt.Sscanf(item, "%d+%d*%d", &r.first, &r.step, &r.count); n != 3 || err != nil || r.count < 1 || r.step < 0 {
				return nil, refused
			}
			s.rows = append(s.rows, r)
		}
		return s, nil
	}
	fields, zone, ok := strings.Cut(text, " in ")
	if !ok {
		return ParseSchedule(text, ScheduleConfig{})
	}
	cfg := ScheduleConfig{}
	zone, gap, _ := strings.Cut(zone, ", gap ")
	if gap == GapSkip.String() {
		cfg.Gap = GapSkip
	}
	offset, err := strconv.Atoi(zone)
	switch {
	case err == nil:
		cfg.TimeZone = time.FixedZone(zone, offset)
	case zone == "" || zone == time.Local.String(): // whatever a machine calls so
		return nil, refused
	default:
		if cfg.TimeZone, err = time.LoadLocation(zone); err != nil {
			return nil, refused
		}
	}
	return ParseSchedule(fields, cfg)
}

// A tickList is the schedule of listed ticks, in order.
type tickList struct {
	rows []tickRow
	more bool // there are later ones
}

// A tickRow is count ticks, step ms apart.
type tickRow struct{ first, step, count int64 }

// Next implements Schedule.
func (l tickList) Next(t time.Time) time.Time {
	at := t.UnixMilli()
	for _, r := range l.rows {
		switch {
		case at < r.first:
			return time.UnixMilli(r.first).UTC()
		case at < r.first+r.step*(r.count-1):
			return time.UnixMilli(r.first + ((at-r.first)/r.step+1)*r.step).UTC()
		}
	}
	return time.Time{}
}

// isShort reports whether s may have ticks up to an instant that are not listed.
func isShort(s Schedule, upto time.Time) bool {
	list, ok := s.(tickList)
	return ok && list.more && list.Next(upto.Add(-time.Millisecond)).IsZero()
}

// owed are the ticks of s after that instant, up to and including the other; nil if
// there are none.
func owed(s Schedule, after, upto time.Time) *ledger.Skip {
	first := s.Next(after)
	if first.IsZero() || first.After(upto) {
		return nil
	}
	skip := &ledger.Skip{First: first, Last: first, Count: 1, Reason: skipRescheduled}
	if every, ok := s.(everySchedule); ok {
		n := upto.Sub(first).Milliseconds() / every.millis
		skip.Count += int(n)
		skip.Last = first.Add(time.Duration(n*every.millis) * time.Millisecond)
		return skip
	}
	for tick := s.Next(first); !tick.IsZero() && !tick.After(upto); tick = s.Next(tick) {
		skip.Last = tick
		skip.Count++
	}
	return skip
}
