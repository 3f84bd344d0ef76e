package wire_test

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
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

// Each request of a batch has its own answer, also if the server refuses another one or has forgotten the scripts.
func TestFault30_BatchesAfterScriptFlush(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		scripts := wire.NewLoader(fstest.MapFS{"lua/echo.lua": {Data: []byte("return ARGV[1]\n")}})
		echo := scripts.Script("echo")
		testenv.Must(t, scripts.Err())
		for n := range int64(3) {
			answers := batch(t, e.Renewals("any"), time.Second,
				echo.Call(wire.Keys("k"), "first"), wire.Command("set", "k", "v"), wire.Command("hget", "k", "f"),
				wire.Command("get", "none"), echo.Call(wire.Keys("k"), "second"), wire.Command("incr", "n"))
			for i, want := range []any{"first", "OK", nil, nil, "second", n + 1} {
				if a := answers[i]; a.Value != want || (i == 2) != (wire.OutcomeOf(a.Err) == wire.Refused) || i != 2 && a.Err != nil {
					t.Errorf("answer %d is %v, %v; want %v", i, a.Value, a.Err, want)
				}
			}
			testenv.Must(t, e.raw.ScriptFlush(t.Context()).Err())
			if value, err := e.Send(t.Context(), "any", echo.Call(wire.Keys("k"), "alone"), time.Second); err != nil || value != "alone" {
				t.Errorf("a call after SCRIPT FLUSH: %v, %v", value, err)
			}
			testenv.Must(t, e.raw.ScriptFlush(t.Context()).Err())
		}
		if e.Renewals("any") != e.Renewals("another") {
			t.Error("two names of one server have two streams")
		}
	})
}
