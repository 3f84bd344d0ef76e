// Package output reports lost output of a program: output is lost if the disk is full, for example. It
// also has the version that programs print.
package output

import (
	"cmp"
	"io"
	"runtime"
	"runtime/debug"
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

// linked and commit are the version and the commit that scripts/program.sh has set.
var linked, commit string

// A Build is the origin of a program.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"` // with -dirty for changed files
	Go      string `json:"go"`
}

// Built returns the Build of this program. Without scripts/program.sh, Version is the version of the main
// module, which is (devel) in a clone.
func Built() Build {
	b := Build{Version: cmp.Or(linked, "unknown"), Commit: commit, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = cmp.Or(linked, info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Commit = cmp.Or(commit, s.Value)
		case s.Key == "vcs.modified" && s.Value == "true":
			b.Commit += "-dirty"
		}
	}
	return b
}

// Version returns the versions of the program and of Go.
func Version() string {
	b := Built()
	return b.Version + " " + b.Go
}
