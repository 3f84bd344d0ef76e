// Package input checks names and texts that users pass to this module, and makes errors about them.
package input

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Fault returns the rule that s breaks, or "". s must be 1 to longest bytes of UTF-8
// without control characters. If s is a name, it must also have no spaces and braces.
func Fault(s string, longest int, name bool) string {
	isBad := func(r rune) bool {
		return unicode.IsControl(r) || name && (unicode.IsSpace(r) || r == '{' || r == '}')
	}
	if s != "" && len(s) <= longest && utf8.ValidString(s) && !strings.ContainsFunc(s, isBad) {
		return ""
	}
	rule := fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", longest)
	if name {
		rule += ", spaces and braces"
	}
	return rule
}

const longestRemark = 200 // in bytes

// Remark returns the rule that a remark breaks, or "". A remark is the name or the reason of an operator. It may be
// empty.
func Remark(s string) string {
	if len(s) > longestRemark || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Sprintf("up to %d bytes of UTF-8 without control characters", longestRemark)
	}
	return ""
}

// Quote quotes a value for an error and truncates a long one.
func Quote(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(s[:cut]), len(s))
}

// Operation wraps the errors of an operation of a package on a lock, a job or an election. If all errors are nil, it
// returns nil.
func Operation(pkg, op, name string, errs ...error) error {
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s %q: %w", pkg, op, name, err)
}

// Zone returns the time zone of a name, or the rule that the name breaks. Local is refused, because
// it differs between machines.
func Zone(name string) (loc *time.Location, rule string) { return zone(name, time.LoadLocation) }

func zone(name string, load func(string) (*time.Location, error)) (loc *time.Location, rule string) {
	switch name {
	case "Local": // not time.Local.String(), which is UTC where /etc/localtime is missing
		return nil, "a time zone that is the same on each machine, such as Europe/Paris or UTC"
	case "":
		return nil, zoneRule
	}
	loc, err := load(name)
	if err == nil {
		return loc, ""
	}
	for _, known := range []string{"Etc/UTC", "Europe/Paris"} {
		if _, err := load(known); err == nil { // there is time zone data, so the name is wrong
			return nil, zoneRule
		}
	}
	return nil, "UTC, because the time zone data is missing here; install tzdata, or import time/tzdata in the program"
}

const zoneRule = "a name in the time zone data (IANA), such as Europe/Paris or UTC"
