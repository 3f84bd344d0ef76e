package lockcore_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The subscription's connection is up and carries no message. The first waiter that gets
// its lock by looking has it tested; from then on waiters do not claim to hear, and the
// connection is made anew until messages arrive again.
//
// Caught mutant: a ping that is answered is enough.
func TestFault73_DeafSubscription(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		opt, faults := e.link()
		a, b := e.clientWith(opt, lockcore.Config{Identity: "a"}), e.client("b")
		cfg := ttl(2 * time.Second)
		claims := func() string {
			e.Helper()
			holder := e.try(e.mutex(b, "other", cfg))
			waiter := e.inLine(e.mutex(a, "other", cfg))
			value := e.raw.ZRange(e.Context(), e.key("other", "queue"), 0, -1).Val()[0]
			waiter.cancel()
			_, _ = waiter.wait()
			e.settle()
			e.unlock(holder)
			if strings.Contains(value, ".t") {
				return "heard"
			}
			return "unheard"
		}
		if got := claims(); got != "heard" {
			e.Fatalf("a waiter at first is %s", got)
		}
		deaf := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
		holder := e.try(e.mutex(b, "orders", cfg))
		waiter := e.inLine(e.mutex(a, "orders", cfg))
		e.unlock(holder)
		lease := waiter.granted() // at its look
		e.pass(3 * time.Second)
		if got := claims(); got != "unheard" {
			e.Errorf("a waiter of a deaf process is %s", got)
		}
		e.pass(time.Minute)
		deaf.Lift()
		e.pass(3 * time.Minute)
		if got := claims(); got != "heard" {
			e.Errorf("a waiter after that is %s", got)
		}
		e.unlock(lease)
	})
}

// The self-test is not answered at first, as where connections are killed: it is made
// again until it is.
func TestFault73_SelfTestWithoutAnswer(t *testing.T) {
	inBubble(t, func(e *env) {
		opt, faults := e.link()
		a, b := e.clientWith(opt, lockcore.Config{Identity: "a"}), e.client("b")
		lost := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.ResetBefore, Match: lockcoretest.Command("PUBLISH"), Count: 5})
		cfg := ttl(time.Hour)
		holder := e.try(e.mutex(b, "orders", cfg))
		e.inLine(e.mutex(a, "orders", cfg)).cancel()
		e.pass(time.Minute)
		if lost.Fired() != 5 {
			e.Fatalf("%d tests were made", lost.Fired())
		}
		e.inLine(e.mutex(a, "orders", cfg))
		line := e.raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
		if len(line) != 1 || !strings.Contains(line[0], ".t/") {
			e.Errorf("the line is %q", line)
		}
		e.unlock(holder)
	})
}

// Eight waiters of a deaf process stand ahead of a healthy one. They cost it one grant
// that lapses, in all, as those of a frozen process do.
func TestFault73_DeafWaitersAhead(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		for _, lease := range []time.Duration{3 * time.Second, 10 * time.Second} {
			opt, faults := e.link()
			a, b, c := e.clientWith(opt, lockcore.Config{}), e.client("b"), e.client("c")
			cfg := ttl(lease)
			name := "orders" + lease.String()
			holder := e.try(e.mutex(c, name, cfg))
			for range 8 {
				e.inLine(e.mutex(a, name, cfg))
			}
			healthy := e.inLine(e.mutex(b, name, cfg))
			deaf := faults.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage})
			began := e.clock()
			e.unlock(holder)
			next := healthy.granted()
			if took := e.clock() - began; took > 1200*time.Millisecond {
				e.Errorf("TTL %v: a healthy waiter behind waited %v", lease, took)
			}
			e.unlock(next)
			lockcoretest.MustFire(e, deaf)
			deaf.Lift()
		}
	})
}

// All connections of a process are killed, again and again, over TLS, where a new one
// takes longer. Its waiters are soon known to hear again.
func TestFault73_KilledOverTLS(t *testing.T) {
	t.Parallel()
	e, secure, ours := tlsEnv(t, time.Hour, "tls-auth-clients no")
	opt := e.options(secure)
	opt.TLSConfig = &tls.Config{RootCAs: ours.pool, MinVersion: tls.VersionTLS12}
	a, b := e.clientWith(opt, lockcore.Config{}), e.client("b")
	cfg := ttl(time.Minute)
	holder := e.try(e.mutex(b, "orders", cfg))
	for range 5 {
		must(e, e.raw.Do(e.Context(), "client", "kill", "type", "pubsub").Err())
		must(e, e.raw.Do(e.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
		e.until("a waiter is known to hear", func() bool {
			waiter := e.inLine(e.mutex(a, "orders", cfg))
			line := e.raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Val()
			waiter.cancel()
			_, _ = waiter.wait()
			e.until("it has left", func() bool { return e.lineLength("orders") == 0 })
			return len(line) == 1 && strings.Contains(line[0], ".t/")
		})
	}
	e.unlock(holder)
}
