package readiness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A State whose Run has ended is not ready from the moment end returns, whether its
// context has ended or not. A late end does not affect the next Run.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	var s readiness.State
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		end := s.Run(ctx)
		s.Works(1 << 62)
		testenv.Must(t, s.Err())
		if i%2 == 0 {
			cancel()
		}
		end()
		if s.Err() == nil {
			t.Fatal("ready after the end")
		}
		cancel()
	}
}

// Unrecorded work keeps the error although requests succeed, until work of that time or later is recorded. A failed
// request is reported first.
func TestUnrecorded(t *testing.T) {
	t.Parallel()
	var s readiness.State
	defer s.Run(t.Context())()
	s.Works(time.Hour)
	at, refused, failed := time.Unix(1000, 0), errors.New("refused"), errors.New("failed")
	want := func(when string, err error) {
		t.Helper()
		if got := s.Err(); !errors.Is(got, err) {
			t.Errorf("%s: %v, want %v", when, got, err)
		}
	}
	want("at first", nil)
	s.Unrecorded(at, refused)
	want("unrecorded", refused)
	s.Works(time.Hour)
	want("after a request", refused)
	s.Failed(new(readiness.Reports), logr.Discard(), failed, true)
	want("after a failure", failed)
	s.Works(time.Hour)
	s.Recorded(at.Add(-1))
	want("earlier work was recorded", refused)
	s.Recorded(at)
	want("this work was recorded", nil)
	for _, upTo := range []time.Time{at.Add(time.Hour), {}} {
		s.Unrecorded(at, refused)
		s.Recorded(upTo)
		want("later work was recorded", nil)
	}
}

// Blocked work keeps the error although requests succeed, until Blocked(nil). A later Run begins without the error.
func TestBlocked(t *testing.T) {
	t.Parallel()
	var s readiness.State
	ahead := errors.New("ahead")
	end := s.Run(t.Context())
	if s.Blocked(nil) {
		t.Error("nothing has changed")
	}
	if !s.Blocked(ahead) || s.Blocked(ahead) {
		t.Error("changed once")
	}
	s.Works(time.Hour)
	if err := s.Err(); !errors.Is(err, ahead) {
		t.Errorf("blocked: %v", err)
	}
	if !s.Blocked(nil) || s.Err() != nil {
		t.Errorf("afterwards: %v", s.Err())
	}
	s.Blocked(ahead)
	end()
	defer s.Run(t.Context())()
	s.Works(time.Hour)
	testenv.Must(t, s.Err())
}

// Workers log a failure together, each kind once. What is short is logged with its end, and what another kind replaces
// at once. A worker that stops has not recovered.
func TestReports(t *testing.T) {
	t.Parallel()
	const away, back, refused = `"msg"="away" "workers"=3 "err"="a: no answer"`, `"msg"="back" "workers"=3 "after"=`, `"msg"="away" "error"="refused" "workers"=1`
	for name, test := range map[string]struct {
		end   func(workers []*readiness.State)
		waits time.Duration // before that
		want  []string      // further lines
	}{
		"long":     {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Works(0) }, 2 * time.Second, []string{away, back}},
		"short":    {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Works(0) }, time.Second / 2, []string{away, back}},
		"one left": {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0) }, 2 * time.Second, []string{away}},
		"one ends": {func(w []*readiness.State) { w[0].Works(0); w[1].Works(0); w[2].Stop() }, 2 * time.Second, []string{away, back}},
		"all end":  {func(w []*readiness.State) { w[0].Stop(); w[1].Stop(); w[2].Stop() }, time.Second / 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testenv.Log
				logger := log.Info("")
				all := &readiness.Reports{Log: logger, Workers: "workers", Message: "away", Again: "back"}
				workers := []*readiness.State{{}, {}, {}}
				for _, text := range []string{"a: no answer", "b: no answer", "c: no answer"} { // each again and again
					for _, w := range workers {
						w.Failed(all, logger, errors.New(text), true)
					}
				}
				time.Sleep(test.waits)
				test.end(workers)
				time.Sleep(2 * time.Second)
				total := len(test.want)
				for _, line := range test.want {
					log.Lines(t, 1, line)
				}
				log.Lines(t, total, "")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var log testenv.Log
		all, w := &readiness.Reports{Workers: "workers", Message: "away"}, readiness.State{}
		for _, text := range []string{"a: no answer", "refused", "a: no answer"} {
			w.Failed(all, log.Info("w: "), errors.New(text), text != "refused")
		}
		log.Lines(t, 1, "w: ", refused)
		log.Lines(t, 1, "w: ", "no answer")
	})
}
