package wire_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// batch sends a batch and waits for its answers for that long.
func batch(t *testing.T, s wire.Renewals, within time.Duration, requests ...wire.Request) []wire.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), within, wire.NoAnswer(within))
	defer cancel()
	answers := s.Send(ctx, requests)
	if len(answers) != len(requests) {
		t.Fatalf("%d answers to %d requests", len(answers), len(requests))
	}
	return answers
}

// pings asserts that the stream works.
func pings(t *testing.T, s wire.Renewals) {
	t.Helper()
	if a := batch(t, s, time.Second, wire.Command("ping"))[0]; a.Err != nil || a.Value != "PONG" {
		t.Fatalf("PING: %v, %v", a.Value, a.Err)
	}
}

// Each request of a batch has its own answer, also if the server refuses another one or
// does not know a script.
func TestStreamAnswersEachRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		scripts := wire.NewLoader(fstest.MapFS{"lua/echo.lua": {Data: []byte("return ARGV[1]\n")}})
		echo := scripts.Script("echo")
		if err := scripts.Err(); err != nil {
			t.Fatal(err)
		}
		answers := batch(t, e.Renewals("any", 0), time.Second,
			echo.Call(wire.Keys("k"), "first"), wire.Command("set", "k", "v"), wire.Command("hget", "k", "f"),
			wire.Command("get", "none"), echo.Call(wire.Keys("k"), "second"), wire.Command("incr", "n"))
		for i, want := range []any{"first", "OK", nil, nil, "second", int64(1)} {
			if i == 2 {
				if wire.OutcomeOf(answers[i].Err) != wire.Refused {
					t.Errorf("HGET of a string: %v, %v", answers[i].Value, answers[i].Err)
				}
			} else if answers[i].Err != nil || answers[i].Value != want {
				t.Errorf("answer %d is %v, %v; want %v", i, answers[i].Value, answers[i].Err, want)
			}
		}
		if e.Renewals("any", 0) != e.Renewals("another", 0) {
			t.Error("two names of one server have two streams")
		}
	})
}

// A connection that broke is used after all others, and is replaced when its turn comes.
func TestStreamReplacesABrokenConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Renewals("", 0)
		for range 3 {
			pings(t, s)
		}
		if n := e.dials.Load(); n != 1 {
			t.Fatalf("%d dials for batches that follow each other", n)
		}
		e.faults.Cut()
		if a := batch(t, s, time.Second, wire.Command("ping"))[0]; !errors.Is(a.Err, wire.ErrUnknown) {
			t.Errorf("a batch on a connection that broke: %v", a.Err)
		}
		for range 3 {
			pings(t, s)
		}
		if n := e.dials.Load(); n != 2 {
			t.Errorf("%d dials, want one for the next connection", n)
		}
	})
}

// Batches that are not answered delay no other batch, up to the width of the stream. They
// end with their contexts, and the outcome is unknown. Then all connections are replaced.
func TestStreamIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Renewals("", 0)
		pings(t, s)
		held := e.faults.Partition()
		outcomes := make(chan wire.Outcome, width)
		begun := time.Now()
		for range width {
			go func() { outcomes <- wire.OutcomeOf(batch(t, s, 2*time.Second, wire.Command("ping"))[0].Err) }()
			synctest.Wait()
		}
		if a := batch(t, s, 2*time.Second, wire.Command("ping"))[0]; wire.OutcomeOf(a.Err) != wire.Unsent || time.Since(begun) != 0 {
			t.Errorf("one batch too many: %v after %v", a.Err, time.Since(begun))
		}
		found := map[wire.Outcome]int{}
		for range width {
			found[<-outcomes]++
		}
		// Only the first batch had a connection.
		if took := time.Since(begun); found[wire.Unknown] != 1 || found[wire.Unsent] != width-1 || took != 2*time.Second {
			t.Errorf("%v after %v", found, took)
		}
		held.Lift()
		pings(t, s)
	})
}

// Doubt replaces the connections that were not answered since the mark, and no others.
func TestStreamDoubt(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Renewals("", 0)
		pings(t, s)
		time.Sleep(time.Second)
		mark := s.Mark()
		time.Sleep(time.Second)
		pings(t, s)
		s.Doubt(mark)
		pings(t, s)
		if n := e.dials.Load(); n != 1 {
			t.Errorf("%d dials; the connection was answered since the mark", n)
		}
		time.Sleep(time.Second)
		s.Doubt(s.Mark())
		s.Doubt(mark) // an earlier mark changes nothing
		pings(t, s)
		pings(t, s)
		if n := e.dials.Load(); n != 2 {
			t.Errorf("%d dials; the connection was not answered since the mark", n)
		}
	})
}
