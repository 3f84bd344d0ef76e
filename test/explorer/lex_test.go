package explorer

import (
	"fmt"
	"regexp"
)

// A word is a part of a script. begin and end are its position in the text.
type word struct {
	kind       kind
	text       string
	begin, end int
	depth      int  // numeral of open brackets around it
	first      bool // first word of its line
}

type kind uint8

const (
	name kind = iota
	keyword
	numeral
	str
	symbol
)

var (
	keywords = regexp.MustCompile(`^(and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while)$`)
	patterns = []struct {
		kind kind
		re   *regexp.Regexp
	}{
		{name, regexp.MustCompile(`^[A-Za-z_]\w*`)},
		{numeral, regexp.MustCompile(`^\d[\w.]*`)},
		{str, regexp.MustCompile(`^('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")`)},
		{symbol, regexp.MustCompile(`^(\.\.\.|\.\.|==|~=|<=|>=|[-+*/%^#<>=(){}\[\];:,.])`)},
	}
	skipped = regexp.MustCompile(`^(--[^\n]*|[ \t\r\n]+)`)
)

// lex splits a script into tokens. It does not support long strings and long comments, which the
// scripts do not contain.
func lex(text string) ([]word, error) {
	var all []word
	depth, fresh := 0, true
next:
	for at := 0; at < len(text); {
		if s := skipped.FindString(text[at:]); s != "" {
			for i := range s {
				fresh = fresh || s[i] == '\n'
			}
			at += len(s)
			continue
		}
		for _, p := range patterns {
			s := p.re.FindString(text[at:])
			if s == "" {
				continue
			}
			t := word{kind: p.kind, text: s, begin: at, end: at + len(s), first: fresh}
			if t.kind == name && keywords.MatchString(s) {
				t.kind = keyword
			}
			switch s {
			case ")", "}", "]":
				depth--
			}
			t.depth = depth
			switch s {
			case "(", "{", "[":
				depth++
			}
			all = append(all, t)
			at, fresh = t.end, false
			continue next
		}
		return nil, fmt.Errorf("what is at %.20q?", text[at:])
	}
	if depth != 0 {
		return nil, fmt.Errorf("%d brackets are left open", depth)
	}
	return all, nil
}
