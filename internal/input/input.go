// Package input checks names and texts that users pass to this module, and quotes invalid ones
// for errors.
package input

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fault returns the rule that s breaks, or "". s must be 1 to longest bytes of UTF-8
// without control characters, and as a name without spaces and braces.
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

// longestRemark limits the bytes of a remark.
const longestRemark = 200

// Remark returns the rule that the name or the reason of an operator breaks, or "". A remark may be empty.
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
