// Package logqueue keeps the user's logger out of the way: lines are put into a
// bounded queue, and a goroutine of its own hands them to the logger. A logger that
// is slow, blocks for ever or panics delays nothing and ends nothing; the lines
// that found no room are counted.
package logqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
)

const (
	// capacity is how many lines wait for a logger that does not take them. The
	// last of it is kept for what matters most, see room.
	capacity = 10_000

	// flushWithin bounds Flush.
	flushWithin = time.Second

	// delayShown is how late a line must be written for the line to say so: its
	// time is the logger's.
	delayShown = 100 * time.Millisecond
)

// A Queue holds lines for one logger. Its goroutine exists only while there is
// something to write.
type Queue struct {
	root    *node // nil: the logger discards
	dropped prometheus.Counter

	mu      sync.Mutex
	lines   []line
	writing bool
	missed  int           // lines dropped that no line tells of yet
	idle    chan struct{} // closed when everything is written; nil: nobody waits
}

// A line is one call of a logger.
type line struct {
	from   *node
	level  int // below 0: an error
	err    error
	text   string
	values []any
	at     time.Time
	notice bool // it tells of dropped lines
}

// New makes a Queue for a logger. The number of dropped lines is registered, or
// shared with the other Queues of reg. A nil reg is none.
func New(to logr.Logger, reg prometheus.Registerer) (*Queue, error) {
	q := &Queue{dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "noonlock_log_lines_dropped_total",
		Help: "Log lines that were not written, as the logger blocked, was too slow, or panicked.",
	})}
	if sink := to.GetSink(); sink != nil {
		q.root = &node{sink: sink}
	}
	if reg == nil {
		return q, nil
	}
	if err := registry.Share(reg, &q.dropped); err != nil {
		return nil, fmt.Errorf("log lines: %w", err)
	}
	return q, nil
}

// Logger returns a logger that never waits. Its lines are written later, in order.
//
// Durations are written as text with their unit, errors as text of one line. The
// values must not change after the call.
func (q *Queue) Logger() logr.Logger {
	if q.root == nil {
		return logr.Discard()
	}
	return logr.New(queued{q, q.root})
}

// Flush waits until all lines are written, until ctx ends, or for a second.
func (q *Queue) Flush(ctx context.Context) {
	q.mu.Lock()
	if !q.writing {
		q.mu.Unlock()
		return
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	timer := time.NewTimer(flushWithin)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// room is how many lines may be queued for one of that level to get in: errors use
// the whole queue, what is logged for debugging only little of it.
func room(level int) int {
	switch {
	case level < 0:
		return capacity
	case level == 0:
		return capacity * 3 / 4
	}
	return capacity / 4
}

func (q *Queue) put(l line) {
	l.at = time.Now()
	q.mu.Lock()
	if len(q.lines) >= room(l.level) {
		q.missed++
		q.mu.Unlock()
		q.dropped.Inc()
		return
	}
	q.lines = append(q.lines, l)
	start := !q.writing
	q.writing = true
	q.mu.Unlock()
	if start {
		go q.write()
	}
}

// next is the line to be written; false if there is none, and the goroutine ends.
func (q *Queue) next() (line, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) > 0 {
		l := q.lines[0]
		q.lines[0] = line{}
		q.lines = q.lines[1:]
		return l, true
	}
	if n := q.missed; n > 0 {
		q.missed = 0
		return line{from: q.root, text: "log lines dropped", values: []any{"lines", n}, at: time.Now(), notice: true}, true
	}
	q.lines, q.writing = nil, false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return line{}, false
}

// write writes lines until there are none. A line at which the logger panics, or
// ends its goroutine, is dropped.
func (q *Queue) write() {
	var l line
	finished := false
	defer func() {
		if finished {
			return
		}
		_ = recover()
		q.dropped.Inc()
		if !l.notice { // else a logger that always panics would never be left alone
			q.mu.Lock()
			q.missed++
			q.mu.Unlock()
		}
		go q.write()
	}()
	for {
		var more bool
		if l, more = q.next(); !more {
			finished = true
			return
		}
		l.write()
	}
}
