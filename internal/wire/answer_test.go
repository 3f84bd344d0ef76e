package wire_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// An echo returns a request and the value that only its own reply has, or the text of its refusal.
type echo func(i int) (wire.Request, string)

func echoes(t *testing.T) map[string]echo {
	t.Helper()
	scripts := wire.NewLoader(fstest.MapFS{
		"lua/echo.lua":   {Data: []byte("return ARGV[1]\n")},
		"lua/refuse.lua": {Data: []byte("return redis.call('GET', ARGV[1], 'too many')\n")},
	})
	script, refuse := scripts.Script("echo"), scripts.Script("refuse")
	testenv.Must(t, scripts.Err())
	text := func(i int) string { return fmt.Sprint("value ", i) }
	return map[string]echo{
		"script": func(i int) (wire.Request, string) { return script.Call(nil, text(i)), text(i) },
		"refused": func(i int) (wire.Request, string) { // each second one
			if i%2 == 1 {
				return script.Call(nil, text(i)), text(i)
			}
			return refuse.Call(nil, text(i)), ""
		},
	}
}

// One reply is delivered twice, each in turn. No request gets the reply to another one, and a connection on which
// that is noticed is not used again.
func TestFault119_ReplyIsRepeated(t *testing.T) {
	for name, echo := range echoes(t) {
		for skip := range 7 {
			t.Run(fmt.Sprint(name, " ", skip), func(t *testing.T) {
				inBubble(t, func(t *testing.T, e *env) {
					hello := skip == 6 // the first one
					match := func(cmd []string) bool { return strings.EqualFold(cmd[0], "hello") == hello }
					e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.RepeatReply, Match: match, Skip: skip % 6, Count: 1})
					send := func(i int) wire.Answer {
						r, _ := echo(i)
						value, err := e.Send(t.Context(), "", r, time.Second)
						return wire.Answer{Value: value, Err: err}
					}
					renewals := e.Renewals("")
					renew := func(i int) wire.Answer {
						r, _ := echo(i)
						return batch(t, renewals, time.Second, r)[0]
					}
					failed := 0
					for i := range 10 {
						for _, do := range []func(int) wire.Answer{send, renew} {
							_, want := echo(i)
							a := do(i)
							switch {
							case a.Err == nil && a.Value != want:
								t.Errorf("request %d got %v", i, a.Value)
							case want == "" && wire.OutcomeOf(a.Err) == wire.Refused:
							case a.Err != nil && wire.OutcomeOf(a.Err) != wire.Unknown && !hello:
								t.Errorf("request %d: %v", i, a.Err)
							case a.Err != nil:
								failed++
							}
						}
					}
					if failed > 1 {
						t.Errorf("%d requests failed", failed)
					}
				})
			})
		}
	}
}

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
