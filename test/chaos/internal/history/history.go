// Package history has the events of a chaos run, and the files that they are in.
package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// What an event says. A lease has Ask, then Granted or Failed. After Granted, it has Until, and at its end Lost,
// or Release and Released.
const (
	Setup    = "setup"    // the harness: the Config of the workers
	Stop     = "stop"     // the harness: a worker process is asked to end
	Exit     = "exit"     // the harness: a worker process ended, with Err if nobody asked it to
	Ask      = "ask"      // the call begins; Mode is "try" if it does not wait
	Failed   = "failed"   // the call returned no lease
	Granted  = "granted"  // the call returned a lease
	Until    = "until"    // the lease is valid until then
	Lost     = "lost"     // the worker noticed the end of its lease
	Release  = "release"  // the work has ended, and the release begins
	Released = "released" // the release returned
	Begin    = "begin"    // the nemesis begins a fault
	End      = "end"      // the fault is over
	Stall    = "stall"    // the harness: the machine ran nothing from T until Until
	Accepted = "accepted" // the resource stored a write
	Refused  = "refused"  // the resource refused the token of a write
	Run      = "run"      // an entry of a job's history, read at the end
	Row      = "row"      // a row that a run wrote, read at the end
	Left     = "left"     // the harness: what a server still has after the end of all workers
)

// The kinds of locks.
const (
	Mutex      = "mutex"
	RW         = "rw"
	Semaphore  = "semaphore"
	Election   = "election"
	Partitions = "partitions"
	Job        = "job"
)

// An Event is one line of a history.
type Event struct {
	T       int64   `json:"t"`           // CLOCK_BOOTTIME in ns
	W       string  `json:"w,omitempty"` // process, such as w2.1 for the first process of worker w2
	Kind    string  `json:"kind,omitempty"`
	What    string  `json:"what"`
	Name    string  `json:"name,omitempty"`
	ID      int     `json:"id,omitempty"` // of the call and its lease in its process; of a fault
	Mode    string  `json:"mode,omitempty"`
	Token   uint64  `json:"token,omitempty"`
	Slot    int     `json:"slot,omitempty"`    // of a semaphore; the index of a partition
	Until   int64   `json:"until,omitempty"`   // CLOCK_BOOTTIME in ns
	Tick    int64   `json:"tick,omitempty"`    // ms
	Count   int     `json:"count,omitempty"`   // number of ticks that a Run has
	Outcome string  `json:"outcome,omitempty"` // of a Run
	Fault   string  `json:"fault,omitempty"`
	Class   string  `json:"class,omitempty"`  // S or D
	Target  string  `json:"target,omitempty"` // of a fault: a worker, or a server
	Err     string  `json:"err,omitempty"`
	Config  *Config `json:"config,omitempty"`
}

// Worker returns the worker of a process.
func Worker(process string) string {
	worker, _, _ := strings.Cut(process, ".")
	return worker
}

// Now returns CLOCK_BOOTTIME in ns, which all processes of the host share.
func Now() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// A Log appends events to a file. Each event is one write, so a SIGKILL neither loses nor splits one.
type Log struct {
	process string
	mu      sync.Mutex
	file    *os.File
}

// Create makes the file of a process in a folder.
func Create(folder, process string) (*Log, error) {
	file, err := os.OpenFile(filepath.Join(folder, process+".jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &Log{process: process, file: file}, err
}

// Add writes an event, with the present time unless it has one.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.T, e.W = cmp.Or(e.T, Now()), cmp.Or(e.W, l.process)
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err)
	}
}

// Read returns the events of all files in a folder, in the order of their times.
func Read(folder string) ([]Event, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []Event
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var e Event
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.T, b.T) })
	return all, nil
}
