package logqueue

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// A fallback is the sink of a Queue whose user gives no logger. It writes only errors, to the logger that is the
// default of package slog at that time.
type fallback struct {
	silent bool // whether New discards all lines, see Discard
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

// A line is one call of a logger.
type line struct {
	from   *node
	level  int // level of logr; -1 for an error
	err    error
	text   string
	values []any
	at     time.Time
	notice bool // whether the line reports dropped lines
}

// delayShown is the delay from which on a line has the value "delayed", because the logger
// adds the time of writing and not the time of the call.
const delayShown = 100 * time.Millisecond

// A node is a logger derived from another one by values or a name. The user's sink is
// derived in the same way, once, when the first line is written.
type node struct {
	parent *node
	name   string
	values []any
	sink   logr.LogSink // used only by the writing goroutine
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

// plain converts values to text if loggers would format them differently or on several lines.
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

// oneLine returns err, with a text that has no line breaks.
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

// joined is an error with another text.
type joined struct {
	error
	text string
}

func (j joined) Error() string { return j.text }

func (j joined) Unwrap() error { return j.error }
