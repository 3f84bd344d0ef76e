// Package output reports lost output of a program, for example because the disk is full. It also has
// the version that programs print.
package output

import (
	"io"
	"sync"
)

// A Writer writes to a stream until a write fails. Code that prints need not
// check each error: the program calls Err at its end.
type Writer struct {
	stream io.Writer

	mu  sync.Mutex
	err error
}

// To returns a Writer to a stream.
func To(stream io.Writer) *Writer { return &Writer{stream: stream} }

func (w *Writer) Write(p []byte) (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		n, w.err = w.stream.Write(p)
	}
	return n, w.err
}

// Err returns the first error of a write, or nil.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
