package lockcore_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The subscription's connection is up, but no messages arrive. The first waiter that
// acquires its lock by a look has the subscription tested. From then on the values of new
// attempts are not trusted, and the Client reconnects until messages arrive again.
//
// Caught mutant: an answered ping is enough.
func TestFault73_DeafSubscription(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		opt, faults := e.Link()
		a, b := e.ClientWith(opt, lockcore.Config{Identity: "a"}), e.Client("b")
		cfg := ttl(2 * time.Second)
		claims := func() string {
			e.Helper()
			holder := e.try(e.mutex(b, "other", cfg))
			waiter := e.queued(e.mutex(a, "other", cfg))
			value := e.Raw.ZRange(e.Context(), e.key("other", "queue"), 0, -1).Val()[0]
			waiter.cancel()
			_, _ = waiter.wait()
			e.WaitIdle()
			e.unlock(holder)
			if strings.Contains(value, ".t") {
				return "proved"
			}
			return "not proved"
		}
		if got := claims(); got != "proved" {
			e.Fatalf("a waiter at first is %s", got)
		}
		deaf := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
		holder := e.try(e.mutex(b, "orders", cfg))
		waiter := e.queued(e.mutex(a, "orders", cfg))
		e.unlock(holder)
		lease := waiter.granted() // at its look
		e.Pass(3 * time.Second)
		if got := claims(); got != "not proved" {
			e.Errorf("a waiter of a deaf process is %s", got)
		}
		e.Pass(time.Minute)
		deaf.Lift()
		e.Pass(3 * time.Minute)
		if got := claims(); got != "proved" {
			e.Errorf("a waiter after that is %s", got)
		}
		e.unlock(lease)
	})
}

// The self-test gets no answer at first, for example because connections are killed. It is
// repeated until it gets one.
func TestFault73_SelfTestWithoutAnswer(t *testing.T) {
	inBubble(t, func(e *env) {
		opt, faults := e.Link()
		a, b := e.ClientWith(opt, lockcore.Config{Identity: "a"}), e.Client("b")
		lost := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: lockcoretest.Command("PUBLISH"), Count: 5})
		cfg := ttl(time.Hour)
		holder := e.try(e.mutex(b, "orders", cfg))
		e.queued(e.mutex(a, "orders", cfg)).cancel()
		e.Pass(time.Minute)
		if lost.Fired() != 5 {
			e.Fatalf("%d tests were made", lost.Fired())
		}
		e.queued(e.mutex(a, "orders", cfg))
		queue := e.Raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
		if len(queue) != 1 || !strings.Contains(queue[0], ".t/") {
			e.Errorf("the queue is %q", queue)
		}
		e.unlock(holder)
	})
}

// Eight waiters of a process that receives no messages are queued before one of a healthy
// process. Together they delay it by one lapsed grant, like the waiters of a frozen
// process.
func TestFault73_DeafWaitersAhead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		for _, lease := range []time.Duration{3 * time.Second, 10 * time.Second} {
			opt, faults := e.Link()
			a, b, c := e.ClientWith(opt, lockcore.Config{}), e.Client("b"), e.Client("c")
			cfg := ttl(lease)
			name := "orders" + lease.String()
			holder := e.try(e.mutex(c, name, cfg))
			for range 8 {
				e.queued(e.mutex(a, name, cfg))
			}
			healthy := e.queued(e.mutex(b, name, cfg))
			deaf := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
			began := e.Clock()
			e.unlock(holder)
			next := healthy.granted()
			if took := e.Clock() - began; took > 1200*time.Millisecond {
				e.Errorf("TTL %v: a healthy waiter behind waited %v", lease, took)
			}
			e.unlock(next)
			lockcoretest.MustFire(e, deaf)
			deaf.Lift()
		}
	})
}

// All connections of a process are killed repeatedly, over TLS, where connecting takes
// longer. Its waiters are soon counted as receivers again.
func TestFault73_KilledOverTLS(t *testing.T) {
	t.Parallel()
	e, secure, ours := tlsEnv(t, time.Hour, "tls-auth-clients no")
	opt := testenv.Options(secure)
	opt.TLSConfig = &tls.Config{RootCAs: ours.Pool, MinVersion: tls.VersionTLS12}
	a, b := e.ClientWith(opt, lockcore.Config{}), e.Client("b")
	cfg := ttl(time.Minute)
	holder := e.try(e.mutex(b, "orders", cfg))
	for range 5 {
		must(e, e.Raw.Do(e.Context(), "client", "kill", "type", "pubsub").Err())
		must(e, e.Raw.Do(e.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
		e.Until("a waiter counts as a receiver", func() bool {
			waiter := e.queued(e.mutex(a, "orders", cfg))
			queue := e.Raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
			waiter.cancel()
			_, _ = waiter.wait()
			e.Until("it has left", func() bool { return e.queueLength("orders") == 0 })
			return len(queue) == 1 && strings.Contains(queue[0], ".t/")
		})
	}
	e.unlock(holder)
}
