package wire_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// publish publishes a message and waits until it was handled.
func (e *env) publish(t *testing.T, to string) (receivers int64) {
	t.Helper()
	n := testenv.Call(e.raw.Publish(t.Context(), to, "m").Result()).Must(t)
	synctest.Wait()
	return n
}

// state asserts whether the subscription is up.
func state(t *testing.T, s wire.Messages, up bool) {
	t.Helper()
	synctest.Wait()
	testenv.Equal(t, "up", s.Up(), up)
}

// Start connects, and returns when messages arrive, or in its time if no connection is made.
func TestSubscriptionStart(t *testing.T) {
	for _, away := range []bool{false, true} {
		t.Run(fmt.Sprint("away ", away), func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *env) {
				s := e.Messages("any")
				if away {
					e.faults.Partition()
				}
				begun := time.Now()
				s.Start(t.Context())
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("Start took %v", took)
				}
				state(t, s, !away)
				e.faults.Heal()
				time.Sleep(10 * time.Second)
				state(t, s, true)
				if n := e.publish(t, channel); n != 1 || e.messages.Load() != 1 || e.missed.Load() != 1 {
					t.Errorf("%d receivers, %d messages, Missed was called %d times", n, e.messages.Load(), e.missed.Load())
				}
				e.Close()
				state(t, s, false)
			})
		})
	}
}

// All watches of a channel share one subscription to it, and get an empty message at the beginning. A watch that was
// stopped is not called again, and the last one ends the subscription.
func TestWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		var got [2]string
		watch := func(i int) (stop func()) {
			return s.Watch("news", func(message string) { got[i] += "[" + message + "]" })
		}
		stopFirst, stopSecond := watch(0), watch(1)
		s.Start(t.Context())
		expect := func(when string, receivers int64, first, second string) {
			t.Helper()
			synctest.Wait()
			if n := e.publish(t, "news"); n != receivers || got != [2]string{first, second} {
				t.Errorf("%s: %d receivers, %q; want %d, %q, %q", when, n, got, receivers, first, second)
			}
			got = [2]string{}
		}
		expect("two watches", 1, "[][m]", "[][m]")
		stopFirst()
		expect("one watch", 1, "", "[m]")
		stopSecond()
		expect("no watch", 0, "", "")
		defer watch(0)()
		expect("watched again", 1, "[][m]", "")
		if e.messages.Load() != 0 {
			t.Error("a message of another channel was taken for one to this process")
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
		state(t, s, false)
		refused.Lift()
		calls.Store(0)
		missed := e.missed.Load()
		time.Sleep(5 * time.Second)
		state(t, s, true)
		if e.missed.Load() == missed || calls.Swap(0) == 0 {
			t.Error("missed messages were not reported")
		}
		if e.publish(t, "news"); calls.Load() != 1 {
			t.Errorf("%d calls for a message", calls.Load())
		}
	})
}

// If a subscription carries no messages, its connection is replaced until a self-test succeeds.
func TestFault73_DeafSubscriptionIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		deaf := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
		s.Start(t.Context()) // the connection is then replaced at once
		dials := e.dialed()
		time.Sleep(time.Minute)
		if n := e.dialed() - dials; n < 2 || n > 10 {
			t.Errorf("%d connections in a minute", n)
		}
		deaf.Lift()
		time.Sleep(3 * time.Minute)
		state(t, s, true)
		dials = e.dialed()
		time.Sleep(10 * time.Minute)
		testenv.Equal(t, "more connections", e.dialed()-dials, 0)
	})
}

// A subscription costs a PING every 10 s. If nothing arrives for 5 s more, its connection is replaced.
func TestSilentSubscriptionIsReplaced(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		isPing := lockcoretest.Command("PING")
		var pings atomic.Int64
		_, err := e.faults.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			if isPing(cmd) {
				pings.Add(1)
			}
			return false
		}})
		testenv.Must(t, err)
		e.Messages("").Start(t.Context())
		time.Sleep(10*time.Minute + time.Second)
		testenv.Equal(t, "pings in 10 minutes", pings.Load(), 60)
		testenv.Equal(t, "subscriptions", e.missed.Load(), 1)
		lost := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: isPing, Count: 1})
		time.Sleep(13 * time.Second)
		testenv.Equal(t, "subscriptions 4 s after a lost answer", e.missed.Load(), 1)
		time.Sleep(2 * time.Second)
		testenv.Equal(t, "subscriptions 6 s after it", e.missed.Load(), 2)
		lockcoretest.MustFire(t, lost)
	})
}

// If the server refuses a request because it is a replica, the subscription is restored,
// since it may be on the same server.
func TestSubscriptionLeavesAReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		s.Start(t.Context())
		state(t, s, true)
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
			state(t, s, true)
			testenv.Equal(t, "new subscriptions", e.missed.Load()-missed, 1)
		}
	})
}

// A new connection for requests may lead to another server than the subscription, so the subscription is tested
// again. The first connections need no such test.
func TestReplacedConnectionIsATest(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		s := e.Messages("")
		s.Start(t.Context())
		state(t, s, true)
		var tests atomic.Int64
		e.answers(func(_ *server.Peer, _ string, args ...string) bool {
			if slices.Contains(args, "publish") {
				tests.Add(1)
			}
			return false
		})
		send := func() error {
			_, err := e.Send(t.Context(), "", wire.Command("echo", "x"), time.Minute)
			time.Sleep(time.Minute)
			return err
		}
		testenv.Must(t, send())
		testenv.Equal(t, "tests after the first connection", tests.Load(), 0)
		e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Count: 1, Match: testenv.Command("echo")})
		if err := send(); !errors.Is(err, wire.ErrUnknown) {
			t.Errorf("on a connection that was reset: %v", err)
		}
		testenv.Must(t, send())
		testenv.Equal(t, "tests after the connection was replaced", tests.Load(), 1)
	})
}
