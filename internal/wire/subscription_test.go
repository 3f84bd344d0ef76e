package wire_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// publish publishes a message and waits until it was handled.
func (e *env) publish(t *testing.T, to string) (receivers int64) {
	t.Helper()
	n, err := e.raw.Publish(t.Context(), to, "m").Result()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return n
}

// state asserts whether the subscription is up and trusted.
func state(t *testing.T, s wire.Messages, up, trusted bool) {
	t.Helper()
	synctest.Wait()
	if s.Up() != up || s.Trusted() != trusted {
		t.Errorf("up %v, trusted %v; want %v, %v", s.Up(), s.Trusted(), up, trusted)
	}
}

// Start connects, and returns after the self-test. Then messages arrive.
func TestSubscriptionStart(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("any")
		state(t, s, false, false)
		s.Start(t.Context())
		state(t, s, true, true)
		if n := e.publish(t, channel); n != 1 || e.messages.Load() != 1 || e.missed.Load() != 1 {
			t.Errorf("%d receivers, %d messages, Missed was called %d times", n, e.messages.Load(), e.missed.Load())
		}
		e.Close()
		state(t, s, false, false)
	})
}

// If no connection is made, Start returns in its time.
func TestSubscriptionStartIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		held := e.faults.Partition()
		begun := time.Now()
		e.Messages("").Start(t.Context())
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Start took %v", took)
		}
		state(t, e.Messages(""), false, false)
		held.Lift()
		time.Sleep(10 * time.Second)
		state(t, e.Messages(""), true, true)
	})
}

// All watches of a channel share one subscription to it. A watch that was stopped is not
// called again, and the last one ends the subscription.
func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		var first, second atomic.Int64
		stopFirst := s.Watch("news", func(string) { first.Add(1) })
		stopSecond := s.Watch("news", func(string) { second.Add(1) })
		s.Start(t.Context())
		synctest.Wait()
		if first.Swap(0) == 0 || second.Swap(0) == 0 {
			t.Error("a watch was not called at the beginning")
		}
		if n := e.publish(t, "news"); n != 1 || first.Swap(0) != 1 || second.Swap(0) != 1 {
			t.Errorf("a message for two watches had %d receivers", n)
		}
		stopFirst()
		if n := e.publish(t, "news"); n != 1 || first.Load() != 0 || second.Swap(0) != 1 {
			t.Errorf("with one watch: %d receivers, the stopped one was called %d times", n, first.Load())
		}
		stopSecond()
		synctest.Wait()
		if n := e.publish(t, "news"); n != 0 || second.Load() != 0 {
			t.Errorf("without a watch: %d receivers, %d calls", n, second.Load())
		}
		defer s.Watch("news", func(string) { first.Add(1) })()
		synctest.Wait()
		first.Store(0)
		if n := e.publish(t, "news"); n != 1 || first.Load() != 1 {
			t.Errorf("watched again: %d receivers, %d calls", n, first.Load())
		}
		if e.messages.Load() != 0 {
			t.Error("a message of another channel was taken for one to this process")
		}
	})
}

// A watch gets each message, and an empty one after a new subscription.
func TestWatchedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		messages := make(chan string, 3)
		defer s.Watch("news", func(message string) { messages <- message })()
		s.Start(t.Context())
		for _, m := range []string{"first", "second"} {
			if err := e.raw.Publish(t.Context(), "news", m).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"", "first", "second"} {
			if got := <-messages; got != want {
				t.Errorf("the message is %q, want %q", got, want)
			}
		}
	})
}

// A lost subscription is restored with all its channels, and callers are notified that
// messages may have been missed.
func TestSubscriptionIsRestored(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		var calls atomic.Int64
		defer s.Watch("news", func(string) { calls.Add(1) })()
		s.Start(t.Context())
		refused := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		e.faults.CutSubscriptions()
		time.Sleep(time.Second)
		state(t, s, false, false)
		refused.Lift()
		calls.Store(0)
		missed := e.missed.Load()
		time.Sleep(5 * time.Second)
		state(t, s, true, true)
		if e.missed.Load() == missed || calls.Swap(0) == 0 {
			t.Error("missed messages were not reported")
		}
		if e.publish(t, "news"); calls.Load() != 1 {
			t.Errorf("%d calls for a message", calls.Load())
		}
	})
}

// If a subscription carries no messages, the count of receivers is not trusted. The
// connection is replaced until a self-test succeeds.
func TestDeafSubscriptionIsNotTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		deaf := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
		s.Start(t.Context()) // the connection is then replaced at once
		dials := e.dials.Load()
		time.Sleep(time.Minute)
		if n := e.dials.Load() - dials; n < 2 || n > 10 {
			t.Errorf("%d connections in a minute", n)
		}
		if s.Trusted() {
			t.Error("trusted, although no message arrives")
		}
		deaf.Lift()
		time.Sleep(3 * time.Minute)
		state(t, s, true, true)
		dials = e.dials.Load()
		time.Sleep(10 * time.Minute)
		if n := e.dials.Load() - dials; n != 0 {
			t.Errorf("%d more connections", n)
		}
	})
}

// If the server refuses a request because it is a replica, the subscription is restored,
// since it may be on the same server.
func TestSubscriptionLeavesAReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		s.Start(t.Context())
		state(t, s, true, true)
		for _, send := range map[string]func() error{
			"Send": func() error {
				_, err := e.Send(t.Context(), "", wire.Command("set", "k", "v"), time.Second)
				return err
			},
			"Stream": func() error { return batch(t, e.Renewals(""), time.Second, wire.Command("set", "k", "v"))[0].Err },
		} {
			missed := e.missed.Load()
			e.redis.Server().SetError("READONLY You can't write against a read only replica.")
			if err := send(); !wire.HasCode(err, "READONLY") {
				t.Fatalf("a replica answered %v", err)
			}
			e.redis.Server().SetError("")
			time.Sleep(5 * time.Second)
			state(t, s, true, true)
			if n := e.missed.Load() - missed; n != 1 {
				t.Errorf("%d new subscriptions, want 1", n)
			}
		}
	})
}

// A new connection for requests may lead to another server than the subscription, so the count of
// receivers is tested again. The first connections need no such test.
//
// Caught mutants: a replacement is no reason for a test; each first connection is one.
func TestReplacedConnectionIsATest(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		s.Start(t.Context())
		state(t, s, true, true)
		var tests atomic.Int64
		e.redis.Server().Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if cmd == "PUBLISH" {
				tests.Add(1)
			}
			return false
		})
		send := func(command ...any) error {
			_, err := e.Send(t.Context(), "", wire.Command(command...), time.Minute)
			return err
		}
		useAll := func() {
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if err := send("blpop", "none", 1); err != nil {
						t.Errorf("BLPOP: %v", err)
					}
				})
				synctest.Wait() // so that each request uses a connection of its own
			}
			all.Wait()
			time.Sleep(time.Minute) // a test waits for a connection, too
		}
		useAll()
		if n := tests.Load(); n != 0 {
			t.Errorf("%d tests after the first connections", n)
		}
		e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Count: 1, Match: func(cmd []string) bool { return strings.EqualFold(cmd[0], "echo") }})
		if err := send("echo", "x"); !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("on a connection that was reset: %v", err)
		}
		useAll()
		// After the reset, the other connections are replaced before their next use, too. Tests that
		// are requested during a test are one test.
		if n := tests.Load(); n < 1 || n > 4 {
			t.Errorf("%d tests after the connections were replaced", n)
		}
	})
}
