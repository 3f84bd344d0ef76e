package singleton

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netresearch/go-cron"
)

const cronFieldCount = 5

// cronField is one of the five fields of a cron expression.
type cronField struct {
	name     string
	min, max int
	names    []string // of the values from min on; nil if there are none
	option   cron.ParseOption
	bits     func(*cron.SpecSchedule) uint64
}

func cronFields() [cronFieldCount]cronField {
	return [cronFieldCount]cronField{
		{"minute", 0, 59, nil, cron.Minute, func(s *cron.SpecSchedule) uint64 { return s.Minute }},
		{"hour", 0, 23, nil, cron.Hour, func(s *cron.SpecSchedule) uint64 { return s.Hour }},
		{"day of month", 1, 31, nil, cron.Dom, func(s *cron.SpecSchedule) uint64 { return s.Dom }},
		{
			"month", 1, 12,
			[]string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"},
			cron.Month, func(s *cron.SpecSchedule) uint64 { return s.Month },
		},
		{
			"day of week", 0, 7,
			[]string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"},
			cron.Dow, func(s *cron.SpecSchedule) uint64 { return s.Dow },
		},
	}
}

// parseCronFields reads the five fields. The parser takes more than cron's classic language (ranges that wrap around,
// "?", "*-5", "+5", empty list items, and its own rule for days), so each field is checked before the parser turns it
// into a set, and of the parser's answer only the sets are used.
func parseCronFields(fields []string) (cronCalendar, error) {
	var sets [cronFieldCount]uint64
	for i, f := range cronFields() {
		var err error
		if sets[i], err = f.parse(fields[i]); err != nil {
			return cronCalendar{}, err
		}
	}
	return cronCalendar{
		minute: sets[0], hour: sets[1], dom: sets[2], month: sets[3], dow: sets[4],
		eitherDay: !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*"),
	}, nil
}

// parse returns the set of values that text stands for. Sunday is 0 in it, never 7.
func (f *cronField) parse(text string) (uint64, error) {
	items := strings.Split(text, ",")
	for i, item := range items {
		plain, rule := f.check(item)
		if rule != "" {
			return 0, &ScheduleError{f.name, text, rule}
		}
		items[i] = plain
	}
	// A parser of this one field alone: then an error can only be about it.
	parser, err := cron.TryNewParser(f.option)
	if err != nil {
		return 0, &ScheduleError{f.name, text, "the parser could not be made: " + err.Error()}
	}
	parsed, err := parser.Parse(strings.Join(items, ","))
	if err != nil {
		return 0, &ScheduleError{f.name, text, "it must be accepted by the parser, which says: " + err.Error()}
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return 0, &ScheduleError{f.name, text, fmt.Sprintf("it must be a field of times, not a %T", parsed)}
	}
	return f.bits(spec) & (1<<(f.max+1) - 1), nil // without the parser's mark for "*"
}

// check returns one item of a list in plain form (a number instead of SUN where Sunday ends a range),
// or the rule that it breaks.
func (f *cronField) check(item string) (plain, rule string) {
	values, step, stepped := strings.Cut(item, "/")
	low, high, ranged := strings.Cut(values, "-")
	from, to := f.min, f.max
	if values != "*" {
		if from, rule = f.value(low); rule != "" {
			return "", rule
		}
		to = from
		if ranged {
			if to, rule = f.value(high); rule != "" {
				return "", rule
			}
			if from > to && strings.EqualFold(high, "SUN") {
				to = f.max // FRI-SUN: as the end of a range, Sunday is 7
			}
		}
		switch {
		case from > to:
			return "", fmt.Sprintf("the range %s must not end before it begins: write it as two", values)
		case stepped && !ranged:
			return "", fmt.Sprintf("a step must follow * or a range: write %s-%d/%s, as crons do not agree on what %s means", low, f.max, step, item)
		}
		if ranged {
			values = fmt.Sprintf("%d-%d", from, to)
		}
	}
	if !stepped {
		return values, ""
	}
	if n, ok := digits(step); !ok || n < 1 || n > max(1, to-from) {
		return "", fmt.Sprintf("the step %q must be a number from 1 to %d in %s", step, max(1, to-from), values)
	}
	return values + "/" + step, ""
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
		return 0, fmt.Sprintf("it must be *, numbers %s, ranges a-b, steps */n or a-b/n, or a list of these with commas; "+
			"%q is none of them (? L W # H and other extensions are not supported)", words, text)
	case n < f.min || n > f.max:
		return 0, fmt.Sprintf("%s must be from %d to %d", text, f.min, f.max)
	}
	return n, ""
}

// digits reads a number of decimal digits alone, without a sign. One too large to matter is returned as -1.
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
