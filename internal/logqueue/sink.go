package logqueue

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// queued is the sink of a Queue's loggers. It never calls the user's sink.
type queued struct {
	q    *Queue
	from *node
}

func (queued) Init(logr.RuntimeInfo) {}

// Enabled always returns true. The user's sink decides when the line is written, since its
// answer may take long.
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

// A fallback is the sink without a logger. It writes errors, and nothing else, to the default logger of
// package slog at the time of the line.
type fallback struct {
	silent bool
	values []any
}

// Discard is a logger that writes nothing, not even errors.
var Discard = logr.New(&fallback{silent: true})

func (*fallback) Init(logr.RuntimeInfo) {}

func (*fallback) Enabled(int) bool { return false }

func (*fallback) Info(int, string, ...any) {}

func (f *fallback) Error(err error, msg string, values ...any) {
	slog.Error(msg, slices.Concat(f.values, values, []any{"err", err})...)
}

func (f *fallback) WithValues(values ...any) logr.LogSink {
	return &fallback{values: slices.Concat(f.values, values)}
}

func (f *fallback) WithName(string) logr.LogSink { return f }

// A node is a logger derived from another one by values or a name. The user's sink is
// derived in the same way, once, when the first line is written.
type node struct {
	parent *node
	name   string
	values []any
	sink   logr.LogSink // belongs to the goroutine that writes
}

func (n *node) derive() logr.LogSink {
	if n.sink != nil {
		return n.sink
	}
	from := n.parent.derive()
	if n.name != "" {
		n.sink = from.WithName(n.name)
	} else {
		n.sink = from.WithValues(plain(n.values)...)
	}
	return n.sink
}

// write passes the line to the user's sink, which may block.
func (l line) write() {
	sink := l.from.derive()
	if l.level >= 0 && !sink.Enabled(l.level) {
		return
	}
	values := plain(l.values)
	if late := time.Since(l.at); late >= delayShown {
		values = append(values, "delayed", late.Round(time.Millisecond).String())
	}
	if l.level < 0 {
		sink.Error(oneLine(l.err), l.text, values...)
	} else {
		sink.Info(l.level, l.text, values...)
	}
}

// plain converts values to text if loggers would format them differently or on several
// lines.
func plain(values []any) []any {
	out := make([]any, len(values), len(values)+2)
	for i, v := range values {
		switch v := v.(type) {
		case error:
			out[i] = oneLine(v).Error()
		case time.Duration:
			out[i] = v.String()
		default:
			out[i] = v
		}
	}
	return out
}

// oneLine joins the lines of an error's text.
func oneLine(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if !strings.Contains(text, "\n") {
		return err
	}
	return joined{err, strings.ReplaceAll(text, "\n", "; ")}
}

// joined is an error whose text is on one line.
type joined struct {
	error
	text string
}

func (j joined) Error() string { return j.text }

func (j joined) Unwrap() error { return j.error }
