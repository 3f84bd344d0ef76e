package logqueue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A recorder keeps the lines that a logger writes. It calls before ahead of each line.
type recorder struct {
	mu     sync.Mutex
	lines  []string
	before func(line string)
}

func (b *recorder) logger(verbosity int) logr.Logger {
	return funcr.New(func(prefix, args string) {
		if b.before != nil {
			b.before(args)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lines = append(b.lines, prefix+" "+args)
	}, funcr.Options{Verbosity: verbosity})
}

func (b *recorder) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}

func queue(t *testing.T, to logr.Logger, reg prometheus.Registerer) *logqueue.Queue {
	t.Helper()
	return testenv.Call(logqueue.New(to, reg)).Must(t)
}

func dropped(t *testing.T, reg prometheus.Gatherer) float64 {
	t.Helper()
	families := testenv.Call(reg.Gather()).Must(t)
	return families[0].GetMetric()[0].GetCounter().GetValue() // the only one
}

// Lines keep their order, names and values. Errors and durations become text of one line.
// The logger's level still applies.
func TestQueue_LogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &recorder{}
		q := queue(t, b.logger(1), nil)
		log := q.Logger()
		job := log.WithName("jobs").WithValues("job", "noon", "every", 90*time.Second)
		job.Info("one", "err", errors.Join(errors.New("first"), errors.New("second")), "took", 1500*time.Millisecond)
		log.Error(errors.Join(errors.New("a"), errors.New("b")), "two", "n", 2)
		log.V(1).Info("three")
		log.V(2).Info("four")
		job.WithValues("tick", 7).Error(nil, "five")
		q.Flush(t.Context())
		want := strings.Join([]string{
			`jobs "level"=0 "msg"="one" "job"="noon" "every"="1m30s" "err"="first; second" "took"="1.5s"`,
			` "msg"="two" "error"="a; b" "n"=2`,
			` "level"=1 "msg"="three"`,
			`jobs "msg"="five" "error"=null "job"="noon" "every"="1m30s" "tick"=7`,
		}, "\n")
		testenv.Equal(t, "the text", b.text(), want)
	})
}

// A logger that blocks delays no caller. Lines that do not fit are counted and reported,
// and errors still fit when other lines do not.
func TestQueue_BlockedLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		b := &recorder{before: func(string) { <-free }}
		reg := prometheus.NewRegistry()
		q := queue(t, b.logger(10), reg)
		log := q.Logger()
		for i := range 9000 {
			log.V(1).Info("detail", "i", i)
			if i == 0 {
				synctest.Wait() // the logger has this line
			}
			log.Info("fact", "i", i)
			log.Error(nil, "trouble", "i", i)
		}
		start := time.Now()
		q.Flush(t.Context())
		testenv.Equal(t, "the time of Flush", time.Since(start), time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		q.Flush(ctx)
		testenv.Equal(t, "the time of Flush, whose context ended", time.Since(start), 1050*time.Millisecond)
		close(free)
		q.Flush(t.Context())
		text := b.text()
		details, facts, troubles := strings.Count(text, `"detail"`), strings.Count(text, `"fact"`), strings.Count(text, `"trouble"`)
		if details+facts+troubles != 10_001 || details >= facts || facts >= troubles {
			t.Errorf("%d, %d and %d lines were written", details, facts, troubles)
		}
		missing := 27_000 - 10_001
		if !strings.Contains(text, fmt.Sprintf(`"log lines dropped" "lines"=%d`, missing)) {
			t.Error("no line reports the dropped lines")
		}
		testenv.Equal(t, "dropped lines", dropped(t, reg), float64(missing))
		if !strings.Contains(text, `"delayed"="1.05s"`) {
			t.Error("delayed lines carry no delay")
		}
	})
}

// Dropped lines are reported while the queue is never empty, because more lines arrive than
// the logger writes.
func TestQueue_SlowLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 40_000
		b := &recorder{before: func(string) { time.Sleep(2 * time.Millisecond) }}
		reg := prometheus.NewRegistry()
		q := queue(t, b.logger(0), reg)
		log := q.Logger()
		for i := range lines {
			log.Info("fact", "i", i)
			time.Sleep(time.Millisecond)
		}
		if text := b.text(); !strings.Contains(text, `"msg"="log lines dropped" "lines"=`) {
			t.Errorf("%g lines were dropped, and no line reports that", dropped(t, reg))
		}
		time.Sleep(time.Minute) // the logger writes the rest
		written := strings.Count(b.text(), `"msg"="fact"`)
		reported := 0
		for _, found := range regexp.MustCompile(`"log lines dropped" "lines"=(\d+)`).FindAllStringSubmatch(b.text(), -1) {
			n := testenv.Call(strconv.Atoi(found[1])).Must(t)
			reported += n
		}
		if written+reported != lines || float64(reported) != dropped(t, reg) {
			t.Errorf("of %d lines, %d were written and %d reported as dropped; the counter is %g", lines, written, reported, dropped(t, reg))
		}
	})
}

// A logger that panics or ends the calling goroutine loses only that line.
func TestQueue_LoggerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := &recorder{before: func(line string) {
			switch {
			case strings.Contains(line, "panics"):
				panic("the logger panics")
			case strings.Contains(line, "exits"):
				runtime.Goexit()
			}
		}}
		q := queue(t, b.logger(0), reg)
		log := q.Logger()
		for _, text := range []string{"one", "panics", "two", "exits", "three"} {
			log.Info(text)
		}
		q.Flush(t.Context())
		synctest.Wait()
		text := b.text()
		for _, want := range []string{`"one"`, `"two"`, `"three"`, `"log lines dropped" "lines"=2`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s is missing:\n%s", want, text)
			}
		}
		testenv.Equal(t, "dropped lines", dropped(t, reg), 2)
	})
}

// A logger that always panics is not called forever. Queues with the same registry share one counter.
func TestQueue_LoggerThatAlwaysPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		b := &recorder{before: func(string) { panic("always") }}
		one, two := queue(t, b.logger(0), reg), queue(t, b.logger(0), reg)
		one.Logger().Info("one")
		two.Logger().Info("two")
		synctest.Wait()
		if n := dropped(t, reg); n != 4 { // the lines and the reports of them
			t.Errorf("%g lines are counted as dropped, want 4", n)
		}
		if n, err := testutil.GatherAndCount(reg); err != nil || n != 1 {
			t.Errorf("%d series, %v", n, err)
		}
	})
}

// Without a logger, errors go to slog's default logger, and other lines nowhere. Discard drops errors, too.
func TestWithoutALogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	for name, c := range map[string]struct {
		to   logr.Logger
		want string
	}{
		"the zero value": {logr.Logger{}, `level=ERROR msg="lease lost" lock=orders token=7 err="no answer"` + "\n"},
		"logr.Discard":   {logr.Discard(), `level=ERROR msg="lease lost" lock=orders token=7 err="no answer"` + "\n"},
		"Discard":        {logqueue.Discard, ""},
	} {
		var out strings.Builder
		q := queue(t, c.to, nil)
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
		log := q.Logger().WithName("noonlock").WithValues("lock", "orders")
		log.Info("lease acquired")
		log.Error(errors.New("no answer"), "lease lost", "token", 7)
		q.Flush(t.Context())
		testenv.Equal(t, name+": slog has", out.String(), c.want)
	}
}
