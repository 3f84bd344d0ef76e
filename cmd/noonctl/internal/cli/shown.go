package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// shown returns a text for people. Names, identities and errors come from other programs: characters that
// could move the cursor, reorder the line or are invisible are escaped as in Go.
func shown(s string) string {
	return escaped(s, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// shownJSON returns JSON with the same characters escaped as in JSON. Those between its texts stay.
func shownJSON(s string) string {
	return escaped(s, func(r rune) string {
		if r == '\n' {
			return "\n"
		}
		var b strings.Builder
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		return b.String()
	})
}

// unprintable reports whether a character is escaped.
func unprintable(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

func escaped(s string, form func(r rune) string) string {
	if !strings.ContainsFunc(s, unprintable) { // bytes that are not UTF-8 count as U+FFFD
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			b.WriteString(form(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
