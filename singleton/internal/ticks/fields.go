package ticks

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const cronFieldCount = 5

// cronField is one of the five fields of a cron expression.
type cronField struct {
	name     string
	min, max int
	names    []string // of the values from min on; nil if there are none
}

func cronFields() [cronFieldCount]cronField {
	return [cronFieldCount]cronField{
		{"minute", 0, 59, nil},
		{"hour", 0, 23, nil},
		{"day of month", 1, 31, nil},
		{"month", 1, 12, []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
		{"day of week", 0, 7, []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
	}
}

// parseCronFields parses the five fields of classic cron: no ranges that wrap around, no "?", no signs and no empty
// list items.
func parseCronFields(fields []string) (cronCalendar, error) {
	var sets [cronFieldCount]uint64
	for i, f := range cronFields() {
		for item := range strings.SplitSeq(fields[i], ",") {
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
		eitherDay: !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*"),
	}, nil
}

// parse returns the set of values of one item of a list, or the rule that the item breaks.
func (f *cronField) parse(item string) (set uint64, rule string) {
	values, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(values, "-")
	if ranged && (low == "" || high == "") {
		low, ranged = values, false // an error that shows what was written
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

// value returns the number that a number or a name stands for, or the rule that it breaks.
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
			"%q is none of them (extensions such as ? L W # H are not supported)", words, text)
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
