// Package logqueue decouples callers from the user's logger: it puts lines into a bounded
// queue, and one goroutine passes them to the logger. A logger that is slow, blocks
// forever or panics delays no caller. Lines that do not fit are dropped and counted.
package logqueue

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/retry"
)

const (
	// capacity is the number of lines that the queue holds. Its last part is reserved for
	// lines of higher priority; see room.
	capacity = 10_000

	flushTimeout = time.Second
)

// A Queue holds lines for one logger. Its goroutine runs only while lines are queued.
type Queue struct {
	root    *node // nil if the logger discards
	dropped prometheus.Counter

	mu      sync.Mutex
	lines   []line
	writing bool
	missed  int           // number of dropped lines since the last report of them
	taken   int           // number of lines written since that report
	idle    chan struct{} // closed when no line is left, nil if no Flush waits
}

// New returns a Queue for a logger. With the zero Logger, errors are written to slog; with Discard, nothing is written.
// New registers the counter of dropped lines with reg, or shares the counter that another Queue has registered. With
// a nil reg, the counter is not registered.
func New(to logr.Logger, reg prometheus.Registerer) (*Queue, error) {
	set := &registry.Set{Registerer: reg}
	q := &Queue{dropped: set.Counters("noonlock_log_lines_dropped_total",
		"Log lines that were dropped because the logger blocked, was too slow, or panicked.").WithLabelValues()}
	sink := to.GetSink()
	if sink == nil {
		sink = &fallback{}
	}
	if f, ok := sink.(*fallback); !ok || !f.silent {
		q.root = &node{sink: sink}
	}
	return q, set.Err()
}

// Logger returns a logger that never blocks. Its lines are written later, in order.
//
// Durations are written as text with their unit, errors as a single line of text. The
// values must not be modified after the call.
func (q *Queue) Logger() logr.Logger {
	if q.root == nil {
		return logr.Discard()
	}
	return logr.New(queued{q, q.root})
}

// Flush waits until all lines are written, ctx ends, or one second has passed.
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
	retry.Sleep(ctx, flushTimeout, idle)
}

// room returns the length of the queue from which on lines of a level are dropped. Errors (below 0)
// may fill the whole queue, debug lines (above 0) only a quarter.
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
		go q.write() // Flush waits for it
	}
}

// next returns the next line to write, or false if the queue is empty and the
// goroutine must end. Dropped lines are reported when the queue is empty, and after each
// capacity lines: a logger that is too slow for all lines never empties the queue.
func (q *Queue) next() (line, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.missed; n > 0 && (len(q.lines) == 0 || q.taken >= capacity) {
		q.missed, q.taken = 0, 0
		return line{from: q.root, text: "log lines dropped", values: []any{"lines", n}, at: time.Now(), notice: true}, true
	}
	if len(q.lines) > 0 {
		l := q.lines[0]
		q.lines[0] = line{}
		q.lines = q.lines[1:]
		q.taken++
		return l, true
	}
	q.lines, q.writing = nil, false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	return line{}, false
}

// write writes lines until the queue is empty. A line is dropped if the logger panics or calls runtime.Goexit.
func (q *Queue) write() {
	var l line
	finished := false
	defer func() {
		if finished {
			return
		}
		_ = recover()
		q.dropped.Inc()
		if !l.notice { // a lost report is not reported, or a logger that always panics would be called forever
			q.mu.Lock()
			q.missed++
			q.mu.Unlock()
		}
		go q.write() // the other lines, on a new goroutine, as Goexit ends this one
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

// queued is the sink of a Queue's loggers. It never calls the user's sink.
type queued struct {
	q    *Queue
	from *node
}

func (queued) Init(logr.RuntimeInfo) {}

// Enabled always returns true. The user's sink, which may block, is asked when the line is written.
func (queued) Enabled(int) bool { return true }

func (s queued) Info(level int, msg string, values ...any) {
	s.q.put(line{from: s.from, level: level, text: msg, values: values})
}

func (s queued) Error(err error, msg string, values ...any) {
	s.q.put(line{from: s.from, level: -1, err: err, text: msg, values: values})
}

func (s queued) WithValues(values ...any) logr.LogSink {
	return queued{s.q, &node{parent: s.from, values: values}}
}

func (s queued) WithName(name string) logr.LogSink {
	return queued{s.q, &node{parent: s.from, name: name}}
}
