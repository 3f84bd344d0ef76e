package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A badError is an error whose methods panic, also if it is a nil pointer.
type badError struct{ text string }

func (e *badError) Error() string          { return e.text }
func (*badError) Unwrap() error            { panic("Unwrap") }
func (*badError) Is(error) bool            { panic("Is") }
func (*badError) OutcomeUnknown() bool     { panic("OutcomeUnknown") }
func (*badError) Permanent() bool          { panic("Permanent") }
func (*badError) TokenSeen() uint64        { panic("TokenSeen") }
func (e *badError) String() string         { panic(e) }
func (e *badError) Format(fmt.State, rune) { panic(e) }

// badWork returns functions that fail with such an error.
func badWork() map[string]func() error {
	return map[string]func() error{
		"a nil pointer": func() error {
			var e *badError
			return e
		},
		"methods that panic":     func() error { return &badError{"as expected"} },
		"a panic with the error": func() error { panic(&badError{"as expected"}) },
		"a panic with nil":       func() error { panic((*badError)(nil)) },
		"joined":                 func() error { return errors.Join(errBroken, (*badError)(nil)) },
	}
}

// The work of a job returns an error whose methods panic, or panics with it. The attempt has
// failed, its text is recorded, and the process continues.
func TestFault63_ErrorsWhoseMethodsPanic(t *testing.T) {
	t.Parallel()
	for name, fail := range badWork() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				a := f.replica("a", singleton.Config{})
				a.add("bad", "@every 1m", func(context.Context, singleton.Run) error { return fail() }, singleton.JobConfig{MaxAttempts: 2})
				a.add("good", "@every 1m", nil, singleton.JobConfig{})
				a.run()
				for _, run := range f.recorded("bad", 2) {
					if run.Outcome != ledger.OutcomeFailed || run.Attempt != 2 || !strings.Contains(run.Error, "panicked") && !strings.Contains(run.Error, "as expected") {
						t.Errorf("recorded %+v", run)
					}
				}
				f.recorded("good", 2)
			})
			inBubble(t, func(t *testing.T, f *fleet) {
				var starts atomic.Int32
				d, err := singleton.NewDaemon(f.Client("a"), "feed", func(context.Context, uint64) error {
					starts.Add(1)
					return fail()
				}, singleton.DaemonConfig{Logger: f.log.Logger()})
				testenv.Must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				f.Until("it was restarted", func() bool { return starts.Load() > 2 })
				cancel()
				testenv.Must(t, <-ended)
			})
			inBubble(t, func(t *testing.T, f *fleet) {
				o, err := singleton.NewOnce(f.Client("a"), "load", singleton.OnceConfig{})
				testenv.Must(t, err)
				err = o.Do(t.Context(), func(context.Context, uint64) error { return fail() })
				failed, ok := errors.AsType[*singleton.OnceError](err)
				if !ok || failed.Outcome != singleton.OutcomeFailed || failed.Reason == "" {
					t.Errorf("Do: %v", err)
				}
			})
		})
	}
}

// A blockingError blocks until its channel is closed.
type blockingError chan struct{}

func (e blockingError) Error() string {
	<-e
	return "late"
}

// The text of an error blocks. The lease is renewed meanwhile, the other job continues, Check
// reports the work, and the text is recorded in the end.
func TestFault63_AnErrorWhoseTextBlocks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		blocked := make(blockingError)
		a, b := f.replica("a", singleton.Config{}), f.replica("b", singleton.Config{})
		for _, r := range []*replica{a, b} {
			r.add("bad", "@every 1m", func(context.Context, singleton.Run) error { return blocked }, singleton.JobConfig{MaxAttempts: 1, Timeout: 10 * time.Second})
			r.add("good", "@every 10s", nil, singleton.JobConfig{})
			r.run()
		}
		f.begun("bad", 1)
		good := len(f.begun("good", 1))
		f.Pass(5 * time.Minute)
		if n := len(f.begun("bad", 1)); n != 1 {
			t.Errorf("%d runs, want 1: its lease must be renewed", n)
		}
		if n := len(f.begun("good", 1)) - good; n < 20 {
			t.Errorf("%d runs of the other job", n)
		}
		if (a.runner.Check(time.Second) == nil) == (b.runner.Check(time.Second) == nil) {
			t.Error("Check fails on neither replica, or on both")
		}
		close(blocked)
		if run := f.recorded("bad", 1)[0]; run.Error == "" || !strings.Contains(run.Error, "late") {
			t.Errorf("recorded %+v", run)
		}
	})
}

// A brittleSchedule ticks every ten seconds, and can fail.
type brittleSchedule struct {
	fail atomic.Pointer[func()]
}

func (s *brittleSchedule) Next(t time.Time) time.Time {
	if fail := s.fail.Load(); fail != nil {
		(*fail)()
	}
	return t.Truncate(10 * time.Second).Add(10 * time.Second)
}

// Next of an application's Schedule panics. The job is not ready, and the other one
// continues. When Next works again, the job continues.
func TestFault63_AScheduleThatFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(){
		"panics":            func() { panic("as expected") },
		"panics with a nil": func() { panic((*badError)(nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fleet) {
				s := &brittleSchedule{}
				a := f.replica("a", singleton.Config{})
				testenv.Must(t, a.runner.AddSchedule("bad", s, a.noted(nil), singleton.JobConfig{}))
				a.add("good", "@every 10s", nil, singleton.JobConfig{})
				a.run()
				f.recorded("bad", 2)
				testenv.Must(t, a.runner.Ready())
				s.fail.Store(&fail)
				f.Pass(2 * time.Minute)
				bad, good := len(f.begun("bad", 1)), len(f.begun("good", 1))
				if err := a.runner.Ready(); err == nil || !strings.Contains(err.Error(), "Next of the job's Schedule") {
					t.Errorf("Ready: %v", err)
				}
				if text := f.log.String(); strings.Count(text, "schedule failed; ticks are delayed") < 1 {
					t.Error("the failure was not logged")
				}
				f.Pass(time.Minute)
				if n := len(f.begun("good", 1)) - good; n < 5 {
					t.Errorf("%d runs of the other job", n)
				}
				s.fail.Store(nil)
				f.Pass(time.Minute)
				if n := len(f.begun("bad", 1)) - bad; n < 3 {
					t.Errorf("%d runs after Next works again", n)
				}
				testenv.Must(t, a.runner.Ready())
			})
		})
	}
}
