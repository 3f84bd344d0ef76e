// Package logtest reads the JSON lines that a replica logs, and waits for lines. It is for
// tests.
package logtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Entry is one line of the log. Fields that the line does not have are zero.
type Entry struct {
	Level   string    `json:"level"`
	Message string    `json:"msg"`
	Tick    time.Time `json:"tick"`
	Attempt int       `json:"attempt"`
	Token   uint64    `json:"token"`
	Address string    `json:"address"`
	Error   string    `json:"err"`
}

// Logs is an io.Writer for the standard error of a program. Its methods may be called from
// any goroutine. The zero value is ready to use.
type Logs struct {
	// Hear is called with each entry, one at a time, before Await returns the entry.
	// Set it before the first line.
	Hear func(Entry)

	mu      sync.Mutex
	partial []byte
	entries []Entry
	foreign []string // lines that are not JSON: panics, race reports
}

// Write implements io.Writer.
func (l *Logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, b...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			break
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			l.foreign = append(l.foreign, string(line))
		} else {
			l.entries = append(l.entries, e)
			if l.Hear != nil {
				l.Hear(e)
			}
		}
		l.partial = rest
	}
	return len(b), nil
}

// Entries returns all entries so far.
func (l *Logs) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Entry(nil), l.entries...)
}

// Foreign returns the complete lines that are not JSON.
func (l *Logs) Foreign() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.foreign, "\n")
}

// Count returns the number of entries with this message.
func (l *Logs) Count(message string) int {
	n := 0
	for _, e := range l.Entries() {
		if e.Message == message {
			n++
		}
	}
	return n
}

// Await waits for the nth entry with this message, counted from 1.
func (l *Logs) Await(ctx context.Context, message string, nth int) (Entry, error) {
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		n := 0
		for _, e := range l.Entries() {
			if e.Message != message {
				continue
			}
			if n++; n == nth {
				return e, nil
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("waiting for %q, which was logged %d times of %d: %w\n%s", message, n, nth, context.Cause(ctx), l)
		}
	}
}

// String returns the whole log as text.
func (l *Logs) String() string {
	var b strings.Builder
	for _, e := range l.Entries() {
		fmt.Fprintf(&b, "%+v\n", e)
	}
	return b.String() + l.Foreign()
}
