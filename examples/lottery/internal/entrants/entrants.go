// Package entrants reads the list of entrants: a CSV file with the header "id,eligible".
//
// An id is 1 to 200 bytes of UTF-8 without control characters and without spaces at either end. It must be unique.
// eligible is true or false. Any other content is an error with file, line and column. A UTF-8 byte order mark at the
// beginning, which spreadsheets write, is skipped.
package entrants

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"slices"
)

// Entrant is one line of the list.
type Entrant struct {
	ID       string
	Eligible bool
}

// maxLine limits the length of a line, and with it memory. Valid lines are much shorter.
const maxLine = 64 << 10

// ErrMalformed matches every *Error in errors.Is.
var ErrMalformed = errors.New("entrants: malformed")

// Error reports an error in a list and its position. It matches ErrMalformed in errors.Is.
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

// Is reports whether target is ErrMalformed.
func (e *Error) Is(target error) bool { return target == ErrMalformed }

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
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if number == 1 {
			if header := bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")); string(header) != "id,eligible" {
				return &Error{l.name, 1, 1, fmt.Sprintf(`the header is %s; it must be "id,eligible"`, excerpt(string(header)))}
			}
			continue
		}
		e, problem, column := parse(line)
		if problem != "" {
			return &Error{l.name, number, column, problem}
		}
		if err := fn(e, number); err != nil {
			return err
		}
	}
}
