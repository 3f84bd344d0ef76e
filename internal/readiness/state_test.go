package readiness_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/testenv"
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

// A doubt about the work lasts although requests succeed, until work of that time or a later
// one is settled. A failed request is reported first.
func TestDoubt(t *testing.T) {
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
	s.Doubt(at, refused)
	want("in doubt", refused)
	s.Works(time.Hour)
	want("after a request", refused)
	s.Failed(new(readiness.Reports), logr.Discard(), failed, true)
	want("after a failure", failed)
	s.Works(time.Hour)
	s.Settle(at.Add(-1))
	want("earlier work was settled", refused)
	s.Settle(at)
	want("this work was settled", nil)
	for _, settles := range []time.Time{at.Add(time.Hour), {}} {
		s.Doubt(at, refused)
		s.Settle(settles)
		want("later work was settled", nil)
	}
}

// What hinders the work lasts although requests succeed, until it is taken back. A later Run
// begins without it.
func TestHindered(t *testing.T) {
	t.Parallel()
	var s readiness.State
	ahead := errors.New("ahead")
	end := s.Run(t.Context())
	if s.Hindered(nil) {
		t.Error("nothing has changed")
	}
	if !s.Hindered(ahead) || s.Hindered(ahead) {
		t.Error("changed once")
	}
	s.Works(time.Hour)
	if err := s.Err(); !errors.Is(err, ahead) {
		t.Errorf("hindered: %v", err)
	}
	if !s.Hindered(nil) || s.Err() != nil {
		t.Errorf("afterwards: %v", s.Err())
	}
	s.Hindered(ahead)
	end()
	defer s.Run(t.Context())()
	s.Works(time.Hour)
	testenv.Must(t, s.Err())
}
