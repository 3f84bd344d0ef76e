package ticks

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/input"
)

// The ledger of a job stores the active schedule as text, so that a later version with
// another schedule can name the ticks that were not run. The text is an interval, a cron
// expression with its zone or, for a schedule that has neither form, the next ticks:
//
//	@every 1m30s
//	0 12 * * * in Europe/Berlin, gap skip
//	0 12 * * * in +28800
//	ticks 1767225600000+60000*100 1767312000000+0*1 and more

const (
	writtenTicks = 1000

	andMore = " and more"  // after a list that is not complete
	gapSkip = ", gap skip" // after the zone of an expression that skips ticks in gaps
)

// A Written is a schedule as text, for Read.
type Written struct {
	Text string
	// Half is when half of the listed ticks are in the past, so that the schedule should
	// be written again. Zero if the text has all ticks.
	Half time.Time

	until time.Time // the last tick of the list; zero if the text has all ticks
}

// Write returns s as text. fingerprint is the Fingerprint of s. For a schedule that is
// not from Parse or Every it lists the next thousand ticks after now.
func Write(s Schedule, fingerprint string, now time.Time) Written {
	switch s := s.(type) {
	case everySchedule:
		return Written{Text: s.String()}
	case *cronSchedule:
		gap := ""
		if s.skipGaps {
			gap = gapSkip
		}
		zones := []string{s.loc.String()}
		if periods := zonePeriods(s.loc); len(periods) == 1 {
			zones = append(zones, fmt.Sprintf("%+d", periods[0].offset))
		}
		for _, zone := range zones {
			text := s.fields + " in " + zone + gap
			if same, err := Read(text); err == nil && Fingerprint(same) == fingerprint {
				return Written{Text: text}
			}
		}
	}
	return writeTickList(s, now)
}

func writeTickList(s Schedule, now time.Time) Written {
	var b strings.Builder
	b.WriteString("ticks")
	var all []time.Time
	for at := now; len(all) < writtenTicks; {
		if at = s.Next(at); at.IsZero() {
			break
		}
		all = append(all, at)
	}
	for n := 0; n < len(all); {
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
	w := Written{Text: b.String()}
	if len(all) == writtenTicks {
		w.Text += andMore
		w.until, w.Half = all[writtenTicks-1], all[writtenTicks/2]
	}
	return w
}

// Read returns the schedule that Write has written.
func Read(text string) (Schedule, error) {
	refused := refuse("the written schedule", text, "an interval, an expression with its zone, or a list of ticks")
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
		return Parse(text, Config{})
	}
	cfg := Config{}
	zone, cfg.SkipGaps = strings.CutSuffix(zone, gapSkip)
	offset, err := strconv.Atoi(zone)
	if err == nil {
		cfg.TimeZone = time.FixedZone(zone, offset)
	} else {
		var rule string
		if cfg.TimeZone, rule = input.Zone(zone); rule != "" {
			return nil, refuse("the time zone of the written schedule", zone, rule)
		}
	}
	return Parse(fields, cfg)
}

// A tickList is a schedule that lists its ticks in order.
type tickList struct {
	rows []tickRow
	more bool // the schedule has later ticks, which are not listed
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

// End returns the last tick of a list whose schedule goes on, so that later ticks are not known.
func End(s Schedule) (last time.Time, ok bool) {
	list, ok := s.(tickList)
	if !ok || !list.more || len(list.rows) == 0 {
		return time.Time{}, false
	}
	r := list.rows[len(list.rows)-1]
	return time.UnixMilli(r.first + r.step*(r.count-1)).UTC(), true
}

// A Span is a number of consecutive ticks.
type Span struct {
	First, Last time.Time
	Count       int
}

// Between returns the ticks of s in (after, upto].
func Between(s Schedule, after, upto time.Time) Span {
	first := s.Next(after)
	if first.IsZero() || first.After(upto) {
		return Span{}
	}
	span := Span{First: first, Last: first, Count: 1}
	if every, ok := s.(everySchedule); ok { // there may be millions
		n := upto.Sub(first).Milliseconds() / every.millis
		span.Count += int(n)
		span.Last = first.Add(time.Duration(n*every.millis) * time.Millisecond)
		return span
	}
	for tick := s.Next(first); !tick.IsZero() && !tick.After(upto); tick = s.Next(tick) {
		span.Last = tick
		span.Count++
	}
	return span
}
