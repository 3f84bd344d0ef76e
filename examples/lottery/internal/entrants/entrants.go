// Package entrants reads the list of entrants: a CSV file with the header "id,eligible".
//
// An id is 1 to 200 bytes of UTF-8 without control characters and without spaces at either end. It must be unique.
// eligible is true or false. Any other content is an error with file, line and column. A UTF-8 byte order mark at the
// beginning, which spreadsheets write, is skipped.
package entrants

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/noonlock/noonlock/examples/internal/inputs"
)

// Entrant is one line of the list.
type Entrant struct {
	ID       string
	Eligible bool
}

// maxLine limits the length of a line, and with it memory. Valid lines are much shorter.
const maxLine = 64 << 10

// Error reports an error in a list and its position.
type Error struct {
	File         string
	Line, Column int // counted from 1; columns are bytes. 0 for the file as a whole.
	Problem      string
}

// Error returns a text that begins with file:line:column.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("entrants: %s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("entrants: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
}

// List is a CSV file that can be read repeatedly. It does not hold entrants in memory. Its methods are safe for
// concurrent use.
type List struct {
	name string
	open func() (io.ReadCloser, error)
}

// File returns the list in a file. The file is opened at each read.
func File(name string) List {
	return List{name: name, open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

// FS returns the list in a file of fsys, for example an embedded file.
func FS(fsys fs.FS, name string) List {
	return List{name: name, open: func() (io.ReadCloser, error) { return fsys.Open(name) }}
}

// Totals are the numbers of entrants in a list.
type Totals struct{ Entrants, Eligible int }

// Check reads the whole list, validates it, and returns its totals. It also checks that no id occurs twice and that the
// list is not empty, which needs 16 bytes of memory per entrant.
func (l List) Check() (Totals, error) {
	var totals Totals
	var hashes []uint64
	seed := maphash.MakeSeed()
	err := l.each(func(e Entrant, _ int) error {
		totals.Entrants++
		if e.Eligible {
			totals.Eligible++
		}
		hashes = append(hashes, maphash.String(seed, e.ID))
		return nil
	})
	if err != nil {
		return Totals{}, err
	}
	if totals.Entrants == 0 {
		return Totals{}, &Error{File: l.name, Problem: "the list has no entrants"}
	}
	if err := l.checkTwice(hashes, seed); err != nil {
		return Totals{}, err
	}
	return totals, nil
}

// checkTwice returns an error if an id occurs twice. Equal hashes are only candidates. A second pass, which stores the
// ids with these hashes, decides.
func (l List) checkTwice(hashes []uint64, seed maphash.Seed) error {
	slices.Sort(hashes)
	suspects := map[uint64]bool{}
	for i := 1; i < len(hashes); i++ {
		if hashes[i] == hashes[i-1] {
			suspects[hashes[i]] = true
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	lines := map[string]int{}
	return l.each(func(e Entrant, line int) error {
		if !suspects[maphash.String(seed, e.ID)] {
			return nil
		}
		if first, ok := lines[e.ID]; ok {
			return &Error{l.name, line, 1, fmt.Sprintf("the id %q is already in line %d", e.ID, first)}
		}
		lines[e.ID] = line
		return nil
	})
}

// Each calls fn for each entrant in the order of the list, and stops at the first error of fn. It returns an error at the
// first malformed line. It does not detect duplicate ids or an empty list; see Check.
func (l List) Each(fn func(Entrant) error) error {
	return l.each(func(e Entrant, _ int) error { return fn(e) })
}

func (l List) each(fn func(e Entrant, line int) error) error {
	if l.open == nil {
		return errors.New("entrants: the List is empty; it must come from File or FS")
	}
	file, err := l.open()
	if err != nil {
		return fmt.Errorf("entrants: %w", err)
	}
	defer file.Close()
	r := bufio.NewReaderSize(file, maxLine)
	p := newParser()
	for number := 1; ; number++ {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return &Error{l.name, number, 1, fmt.Sprintf("the line is longer than %d bytes", maxLine)}
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("entrants: %s: %w", l.name, err)
		case err != nil && len(line) == 0 && number == 1:
			return &Error{File: l.name, Problem: `the file is empty; it must begin with the header "id,eligible"`}
		case err != nil && len(line) == 0:
			return nil
		}
		if number == 1 {
			header := string(bytes.TrimRight(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), "\r\n"))
			if header != "id,eligible" {
				return &Error{l.name, 1, 1, fmt.Sprintf(`the header is %s; it must be "id,eligible"`, inputs.Excerpt(header))}
			}
			continue
		}
		e, column, problem := p.parse(line)
		if problem != "" {
			return &Error{l.name, number, column, problem}
		}
		if err := fn(e, number); err != nil {
			return err
		}
	}
}

// A parser parses one line at a time. If it had the whole file, a quote that is never closed would read
// the rest of the file into memory, since a field may contain line breaks.
type parser struct {
	line   bytes.Reader
	fields *csv.Reader
}

func newParser() *parser {
	p := &parser{}
	p.fields = csv.NewReader(&p.line)
	p.fields.FieldsPerRecord, p.fields.ReuseRecord = -1, true
	return p
}

// parse returns the entrant of a line, or a problem and its column.
func (p *parser) parse(line []byte) (e Entrant, column int, problem string) {
	p.line.Reset(line)
	record, err := p.fields.Read()
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		return e, wrong.Column, fmt.Sprintf("the quotes are not closed or not doubled: %v; a field with a quote or a comma must be in quotes, and a quote in it must be doubled", wrong.Err)
	}
	switch {
	case err != nil:
		return e, 1, "the line is empty; it must have two fields, id and eligible"
	case len(record) != 2:
		return e, 1, fmt.Sprintf("the number of fields is %d; it must be two, id and eligible", len(record))
	}
	if rule := ruleOfID(record[0]); rule != "" {
		return e, 1, fmt.Sprintf("the id is %s; it must %s", inputs.Excerpt(record[0]), rule)
	}
	if record[1] != "true" && record[1] != "false" {
		_, column = p.fields.FieldPos(1)
		return e, column, fmt.Sprintf("eligible is %s; it must be true or false", inputs.Excerpt(record[1]))
	}
	return Entrant{ID: record[0], Eligible: record[1] == "true"}, 0, ""
}

// MaxID is the maximum length of an id in bytes.
const MaxID = 200

// ruleOfID returns the rule that an id breaks.
func ruleOfID(id string) (rule string) {
	switch {
	case id == "":
		return "not be empty"
	case len(id) > MaxID:
		return fmt.Sprintf("have at most %d bytes, not %d", MaxID, len(id))
	case !utf8.ValidString(id):
		return "be UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		return "not contain a control character"
	case strings.TrimSpace(id) != id:
		return "not begin or end with a space" // MySQL's collations ignore trailing spaces
	}
	return ""
}
