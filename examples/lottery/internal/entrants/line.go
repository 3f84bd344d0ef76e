package entrants

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxID is the maximum length of an id in bytes.
const MaxID = 200

// parse parses one line without its line ending. column is the position of a problem, counted from 1.
//
// encoding/csv is not used: with it, a quote that is never closed reads the rest of the file into memory, since fields may
// contain line breaks. An id may not.
func parse(line []byte) (e Entrant, problem string, column int) {
	if len(line) == 0 {
		return e, "the line is empty", 1
	}
	id, rest, problem, column := field(line, 0)
	if problem != "" {
		return e, problem, column
	}
	if rest == len(line) {
		return e, "the line has one field; it must have two, id and eligible", rest + 1
	}
	second := rest + 1
	eligible, rest, problem, column := field(line, second)
	switch {
	case problem != "":
		return e, problem, column
	case rest != len(line):
		return e, "the line has more than two fields; it must have two, id and eligible", rest + 2
	}
	if problem := checkID(id); problem != "" {
		return e, problem, 1
	}
	switch string(eligible) {
	case "true":
		return Entrant{string(id), true}, "", 0
	case "false":
		return Entrant{string(id), false}, "", 0
	}
	return e, fmt.Sprintf("eligible is %s; it must be true or false", excerpt(string(eligible))), second + 1
}

// field returns the field that begins at start, and the index of the next comma or the end of the line.
func field(line []byte, start int) (value []byte, next int, problem string, column int) {
	if start == len(line) || line[start] != '"' {
		next = len(line)
		if i := bytes.IndexByte(line[start:], ','); i >= 0 {
			next = start + i
		}
		value = line[start:next]
		if i := bytes.IndexByte(value, '"'); i >= 0 {
			return nil, 0, "the field contains a quote but does not begin with one", start + i + 1
		}
		return value, next, "", 0
	}
	for i := start + 1; i < len(line); i++ {
		switch {
		case line[i] != '"':
			value = append(value, line[i])
		case i+1 < len(line) && line[i+1] == '"':
			value = append(value, '"')
			i++
		case i+1 < len(line) && line[i+1] != ',':
			return nil, 0, "there is text after the closing quote of the field", i + 2
		default:
			return value, i + 1, "", 0
		}
	}
	return nil, 0, "the quote is not closed in this line", start + 1
}

func checkID(id []byte) (problem string) {
	switch text := string(id); {
	case text == "":
		return "the id is empty"
	case len(text) > MaxID:
		return fmt.Sprintf("the id %s is %d bytes long; it must be at most %d", excerpt(text), len(text), MaxID)
	case !utf8.ValidString(text):
		return fmt.Sprintf("the id %s is not UTF-8", excerpt(text))
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Sprintf("the id %s contains a control character", excerpt(text))
	case strings.TrimSpace(text) != text:
		// MySQL's collations ignore trailing spaces.
		return fmt.Sprintf("the id %s begins or ends with a space", excerpt(text))
	}
	return ""
}

func excerpt(s string) string {
	const shown = 60
	if len(s) <= shown {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:shown]) + "…"
}
