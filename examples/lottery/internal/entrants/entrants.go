// Package entrants reads the list of those who may win: a CSV file with the header "id,eligible".
//
// An id is 1 to 200 bytes of UTF-8 without control characters and without space at either end, and stands in the file
// once; eligible is true or false. Nothing else is guessed at: what does not fit is refused with file, line and column.
// A byte order mark of UTF-8 at the beginning, which spreadsheets write, is passed over.
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

// maxLine bounds a line, and with it memory; no proper line comes near.
const maxLine = 64 << 10

// ErrMalformed is what every *Error Is.
var ErrMalformed = errors.New("entrants: malformed")

// Error says what in the list cannot be read, and where. It Is ErrMalformed.
type Error struct {
	File         string
	Line, Column int // from 1; the column counts bytes. 0 where it is the file as a whole.
	Problem      string
}

// Error gives the place as file:line:column.
func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("entrants: %s: %s", e.File, e.Problem)
	}
	return fmt.Sprintf("entrants: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Problem)
}

// Is reports whether target is ErrMalformed.
func (e *Error) Is(target error) bool { return target == ErrMalformed }

// List is a CSV that can be read again and again. It holds no entrants: those are streamed.
// Its methods may be called by several goroutines at once.
type List struct {
	name string
	open func() (io.ReadCloser, error)
}

// File is the list in the file of that name. It is opened when it is read.
func File(name string) List {
	return List{name: name, open: func() (io.ReadCloser, error) { return os.Open(name) }}
}

// FS is the list in a file of fsys, such as an embedded one.
func FS(fsys fs.FS, name string) List {
	return List{name: name, open: func() (io.ReadCloser, error) { return fsys.Open(name) }}
}

// Totals counts a list.
type Totals struct{ Entrants, Eligible int }

// Check reads the list to its end and returns how many it names. Everything is checked, also that no id stands there
// twice and that the list is not empty. It needs 16 bytes of memory per entrant for that.
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
		return Totals{}, &Error{File: l.name, Problem: "the list names no entrant"}
	}
	if err := l.checkTwice(hashes, seed); err != nil {
		return Totals{}, err
	}
	return totals, nil
}

// checkTwice refuses a list in which an id stands twice. Equal hashes only raise the suspicion; a second reading, which
// remembers the few ids that have such a hash, decides.
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
			return &Error{l.name, line, 1, fmt.Sprintf("the id %q stands in line %d already", e.ID, first)}
		}
		lines[e.ID] = line
		return nil
	})
}

// Each calls fn for each entrant in the order of the list and stops at its first error. What is malformed is refused
// when it is come to; that an id stands twice or the list is empty is not noticed, see Check.
func (l List) Each(fn func(Entrant) error) error {
	return l.each(func(e Entrant, _ int) error { return fn(e) })
}

func (l List) each(fn func(e Entrant, line int) error) error {
	if l.open == nil {
		return errors.New("entrants: no list was given; it must be made by File or FS")
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
