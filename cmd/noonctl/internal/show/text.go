// Package show prints texts, tables, JSON and YAML for people. Names, identities and errors come from other
// programs: characters that could move the cursor, reorder the line or are invisible are escaped.
package show

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// Text returns a text with its unprintable characters escaped as in Go.
func Text(s string) string {
	return escape(s, func(r rune) string {
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	})
}

// escapeJSON returns JSON with its unprintable characters escaped as in JSON, except line ends between texts.
func escapeJSON(s string) string {
	return escape(s, func(r rune) string {
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

func unprintable(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

func escape(s string, form func(r rune) string) string {
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
