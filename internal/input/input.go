// Package input has the rules for texts that users give to this module, and quotes what
// was refused.
package input

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Fault returns the rule that s breaks, or nothing: s must be 1 to longest bytes of UTF-8
// without control characters. A name has no spaces and no braces either.
func Fault(s string, longest int, name bool) string {
	rule := fmt.Sprintf("1 to %d bytes of UTF-8 without control characters", longest)
	if name {
		rule += ", spaces and braces"
	}
	if s == "" || len(s) > longest || !utf8.ValidString(s) {
		return rule
	}
	for _, r := range s {
		if unicode.IsControl(r) || name && (unicode.IsSpace(r) || r == '{' || r == '}') {
			return rule
		}
	}
	return ""
}

// Quote quotes a value for an error, and cuts a long one.
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
