package ticks

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const cronFieldCount = 5

// cronField is one of the five fields of a cron expression.
type cronField struct {
	name     string
	min, max int
	names    []string // names of the values from min on
	maxH     int      // greatest value that H stands for

	// special parses an item with L, W or #. It returns nil for other items, and is nil for fields without them.
	special func(f *cronField, item string) dayRule
}

func cronFields() [cronFieldCount]cronField {
	return [cronFieldCount]cronField{
		{"minute", 0, 59, nil, 59, nil},
		{"hour", 0, 23, nil, 23, nil},
		{"day of month", 1, 31, nil, 28, (*cronField).ruleOfDates}, // each month has 28 days
		{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}, 12, nil},
		{"day of week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}, 6, (*cronField).ruleOfWeekdays},
	}
}

// parseCronFields parses the five fields of classic cron: no ranges that wrap around, no "?", no signs and no empty
// list items.
func parseCronFields(fields []string) (cronCalendar, error) {
	var sets [cronFieldCount]uint64
	var rules [cronFieldCount][]dayRule
	for i, f := range cronFields() {
		for item := range strings.SplitSeq(fields[i], ",") {
			if f.special != nil {
				if day := f.special(&f, strings.ToUpper(item)); day != nil {
					rules[i] = append(rules[i], day)
					continue
				}
			}
			set, rule := f.parse(item)
			if rule != "" {
				return cronCalendar{}, refuse(f.name, fields[i], rule)
			}
			sets[i] |= set
		}
	}
	const sunday = 1 << 7 // 0 is Sunday as well
	return cronCalendar{
		minute: sets[0], hour: sets[1], dom: sets[2], month: sets[3], dow: (sets[4] | sets[4]>>7) &^ sunday,
		domRules: rules[2], dowRules: rules[4],
		eitherDay: !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*"),
	}, nil
}

// ruleOfDates parses L, LW or 15W.
func (f *cronField) ruleOfDates(item string) dayRule {
	switch item {
	case "L":
		return lastDay
	case "LW":
		return nearestWorkday(lastDay)
	}
	if near, found := strings.CutSuffix(item, "W"); found {
		if n, rule := f.value(near); rule == "" {
			return nearestWorkday(func(time.Weekday, int) int { return n })
		}
	}
	return nil
}

// ruleOfWeekdays parses FRI#2 or FRIL.
func (f *cronField) ruleOfWeekdays(item string) dayRule {
	of, nth, numbered := strings.Cut(item, "#")
	number, ok := digits(nth)
	if last, found := strings.CutSuffix(item, "L"); found {
		of, number = last, 0
	} else if !numbered || !ok || len(nth) > 1 || number < 1 || number > 5 {
		return nil
	}
	n, rule := f.value(of)
	if rule != "" {
		return nil
	}
	return nthWeekday(n%7, number)
}

// spread replaces H in the fields. pick chooses the value of a field: its index among the first n values.
func spread(fields []string, pick func(f *cronField, n int) int) (values []string, err error) {
	for i, f := range cronFields() {
		step, found := strings.CutPrefix(fields[i], "H")
		if !found {
			values = append(values, fields[i])
			continue
		}
		every := f.maxH - f.min + 1
		if step != "" {
			n, ok := digits(strings.TrimPrefix(step, "/"))
			if !ok || step[0] != '/' || n < 1 || n > every {
				return nil, refuse(f.name, fields[i], fmt.Sprintf("H, or H/n with n from 1 to %d", every))
			}
			every = n
		}
		if pick == nil {
			return nil, refuse(f.name, fields[i], "without H, as there is no Config.Name that it could follow from")
		}
		first := f.min + pick(&f, every)
		text := strconv.Itoa(first)
		if first+every <= f.maxH {
			text += fmt.Sprintf("-%d/%d", f.maxH, every)
		}
		values = append(values, text)
	}
	return values, nil
}

// pickBy returns the pick for spread that follows from a name, independently for each field. All releases must pick the
// same: schedule.Parse documents the rule.
func pickBy(name string) func(f *cronField, n int) int {
	if name == "" {
		return nil
	}
	return func(f *cronField, n int) int {
		return int(hashOf(f.name, name) % uint64(n)) //nolint:gosec // less than 60
	}
}

// hashOf returns a hash of the name of a job, independent for each purpose.
func hashOf(purpose, name string) uint64 {
	sum := sha256.Sum256([]byte(purpose + " " + name))
	return binary.BigEndian.Uint64(sum[:])
}

// parse returns the set of values of an item of a list, or the rule that the item breaks.
func (f *cronField) parse(item string) (set uint64, rule string) {
	values, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(values, "-")
	if ranged && (low == "" || high == "") {
		low, ranged = values, false // so the error shows the whole item
	}
	from, to := f.min, f.max
	if values != "*" {
		if from, rule = f.value(low); rule != "" {
			return 0, rule
		}
		to = from
		if ranged {
			if to, rule = f.value(high); rule != "" {
				return 0, rule
			}
			if from > to && strings.EqualFold(high, "SUN") {
				to = f.max // FRI-SUN: as the end of a range, Sunday is 7
			}
		}
		switch {
		case from > to:
			return 0, fmt.Sprintf("without the range %s, which ends before it begins; write two ranges", values)
		case stepped && !ranged:
			return 0, fmt.Sprintf("without a step after a single number; write %s-%d/%s instead of %s", low, f.max, step, item)
		}
		if ranged {
			values = fmt.Sprintf("%d-%d", from, to)
		}
	}
	every := 1
	if stepped {
		n, ok := digits(step)
		if !ok || n < 1 || n > max(1, to-from) {
			return 0, fmt.Sprintf("with a step from 1 to %d in %s, not %q", max(1, to-from), values, step)
		}
		every = n
	}
	for n := from; n <= to; n += every {
		set |= 1 << n
	}
	return set, ""
}

// value returns the number that text, a number or a name, stands for, or the rule that text breaks.
func (f *cronField) value(text string) (n int, rule string) {
	n, ok := digits(text)
	if !ok && f.names != nil {
		i := slices.IndexFunc(f.names, func(name string) bool { return strings.EqualFold(name, text) })
		n, ok = i+f.min, i >= 0
	}
	switch {
	case !ok:
		words := fmt.Sprintf("from %d to %d", f.min, f.max)
		if f.names != nil {
			words += fmt.Sprintf(" or names from %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		return 0, fmt.Sprintf("*, numbers %s, ranges a-b, steps */n or a-b/n, or a list of these with commas; "+
			"%q is none of them (and L, W and # are for days, H is for a whole field, and ? is not supported)", words, text)
	case n < f.min || n > f.max:
		return 0, fmt.Sprintf("from %d to %d, not %s", f.min, f.max, text)
	}
	return n, ""
}

// digits parses decimal digits without a sign. It returns -1 for a number that overflows an int.
func digits(text string) (n int, ok bool) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1, true
	}
	return n, true
}
