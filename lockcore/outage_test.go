package lockcore_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A lease with a TTL of 200 ms or more outlives an outage of 0.62 TTL of every kind, whenever
// it begins. A lease does not outlive an outage that begins right before a renewal and lasts
// longer than the remaining validity.
//
// Caught mutants: a try of a third of the TTL, whatever is left; a pause of a twelfth of
// the TTL after a failure; one dial of a connection at a time.
func TestFault72_OutageTolerance(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		for _, given := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second, 0, time.Minute, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s, TTL %v", name, given), func(t *testing.T) {
				t.Parallel()
				full := given
				if full == 0 {
					full = 10 * time.Second // the default
				}
				renew := full / 3
				tolerated := full * 62 / 100
				for _, before := range []time.Duration{time.Millisecond, renew / 20, renew / 4, renew / 2, renew * 3 / 4, renew - time.Millisecond} {
					if !outlives(t, outage, given, 2*renew-before, tolerated) {
						t.Errorf("the lease was lost in an outage of %v that began %v before a renewal", tolerated, before)
					}
				}
				tooLong := full - renew - time.Millisecond
				if outlives(t, outage, given, 2*renew-time.Millisecond, tooLong) {
					t.Errorf("the lease outlived an outage of %v", tooLong)
				}
			})
		}
	}
}

// Lock waits through an outage that has begun before its first request, until ctx ends. The Client is
// new, or its subscription is up, so that Lock queues at once.
//
// Caught mutants: before it is queued, a waiter has only one TTL; a waiter that joins has only one TTL.
func TestFault72_LockDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, outage := range testenv.Outages() {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, warm %v", name, warm), func(t *testing.T) {
				inBubble(t, func(e *env) {
					o := outage(e.Env)
					c := e.ClientWith(o.Options, lockcore.Config{})
					m := e.mutex(c, "orders", ttl(time.Second))
					if warm {
						e.subscribes(c, m.Name())
					}
					o.Begin()
					go func() {
						time.Sleep(20 * time.Second)
						o.End()
					}()
					patient, cancel := context.WithTimeout(e.Context(), 10*time.Second)
					defer cancel()
					_, err := m.Lock(patient)
					mustIs(e, err, context.DeadlineExceeded)
					lease, err := m.Lock(e.Context())
					must(e, err)
					e.unlock(lease)
				})
			})
		}
	}
}

// subscribes makes the subscription of a Client to the messages about a name.
func (e *env) subscribes(c *lockcore.Client, name string) {
	e.Helper()
	held := e.try(e.mutex(c, name, ttl(20*time.Second)))
	waiter := e.queued(e.mutex(c, name, ttl(20*time.Second)))
	e.unlock(held)
	e.unlock(waiter.granted())
}

// The primary was just killed, and no replica is promoted. A Lock of a Client that was in use waits
// until its context ends. Nothing was sent, so its error is not "unknown". The next Lock waits until
// a replica is promoted.
func TestFault72_LockWhileThePrimaryIsDead(t *testing.T) {
	onReplicated(t, func(r *replicated) {
		c := r.client(lockcore.Config{Identity: "waiter"})
		m := r.mutex(c, firstName, ttl(300*time.Millisecond))
		r.subscribes(c, firstName)
		r.primary.Kill()
		patient, cancel := context.WithTimeout(r.Context(), time.Second) // a cluster needs two for a failover
		defer cancel()
		_, err := m.Lock(patient)
		mustIs(r, err, context.DeadlineExceeded, lockcore.ErrNotAcquired)
		mustNotBe(r, err, lockcore.ErrUnknown)
		waiter := r.goLock(m)
		r.promoted()
		r.unlock(waiter.granted())
	})
}

// outlives reports whether a lease outlives an outage that begins at the given time.
func outlives(t *testing.T, outage func(*testenv.Env) *testenv.Outage, ttl, at, lasts time.Duration) (yes bool) {
	t.Helper()
	inBubble(t, func(e *env) {
		o := outage(e.Env)
		lease := e.try(e.mutex(e.ClientWith(o.Options, lockcore.Config{}), "orders", lockcore.LeaseConfig{TTL: ttl}))
		e.Pass(at)
		o.Last(lasts)
		e.Pass(max(3*time.Second, ttl))
		if yes = lease.Context().Err() == nil; yes {
			e.unlock(lease)
		}
		o.Faults.Heal()
	})
	return yes
}

// A real server is killed right before a renewal, and is away for more than nine tenths of the
// time that a lease outlives. The lease continues.
func TestFault72_RealRestartBeforeARenewal(t *testing.T) {
	if testing.Short() {
		t.Skip("a server is away for ten seconds")
	}
	onServerAllKinds(t, func(e *env) {
		const full = 18 * time.Second
		const tolerated = full * 62 / 100 // what the documents say
		lease := e.try(e.mutex(e.Client("a"), "orders", ttl(full)))
		before := lease.Remaining() + e.Clock()
		e.Pass(full/3 - 500*time.Millisecond)
		began := e.Clock()
		e.Real.Kill()
		<-time.After(tolerated * 9 / 10)
		e.Real.Restart(e)
		away := e.Clock() - began
		ended := func() bool { return lease.Context().Err() != nil }
		e.Until("it is renewed, or has ended", func() bool { return ended() || lease.Remaining()+e.Clock() > before+time.Second })
		e.Logf("a lease outlives %v; the server was away for %v", tolerated, away)
		switch {
		case !ended():
			e.unlock(lease)
		case away <= tolerated:
			e.Errorf("the lease was lost: %v", context.Cause(lease.Context()))
		}
	}, "appendonly yes", "appendfsync always")
}

// All leases survive a server that hangs for half of their TTL, over TLS. go-redis's Dialer
// ignores its context during a handshake, and dials 30 s if the user says so.
//
// Caught mutant: a dial on the goroutine of the renewals.
func TestFault72_StallOverTLS(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		s := &stalling{certificate: e.certificate(time.Hour).Load(e), running: make(chan struct{})}
		close(s.running)
		opt := e.Bubble.Options()
		opt.DialTimeout = 30 * time.Second
		s.next, opt.Dialer = opt.Dialer, s.dial
		c := e.ClientWith(opt, lockcore.Config{})
		var leases []*lockcore.Lease
		for i := range 5 {
			leases = append(leases, e.try(e.mutex(c, fmt.Sprint("m", i), ttl(6*time.Second))))
			e.Pass(370 * time.Millisecond)
		}
		for i := range 10 {
			e.Pass(10*time.Second + time.Duration(i)*210*time.Millisecond)
			s.stall(3 * time.Second)
		}
		e.Pass(time.Minute)
		for i, l := range leases {
			if l.Context().Err() != nil {
				e.Errorf("lease %d was lost: %v", i, context.Cause(l.Context()))
			} else {
				e.unlock(l)
			}
		}
	})
}

// A stalling server speaks TLS. While it stalls, it does not read.
type stalling struct {
	certificate tls.Certificate
	next        func(ctx context.Context, network, addr string) (net.Conn, error)

	mu      sync.Mutex
	running chan struct{} // closed while it does not stall
}

func (s *stalling) stall(lasts time.Duration) {
	gate := make(chan struct{})
	s.mu.Lock()
	s.running = gate
	s.mu.Unlock()
	time.Sleep(lasts)
	close(gate)
}

// dial behaves like go-redis's Dialer with TLS.
func (s *stalling) dial(_ context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	back, err := s.next(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go s.serve(far, back)
	client := tls.Client(near, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
	if err := client.HandshakeContext(ctx); err != nil {
		_ = near.Close()
		return (*tls.Conn)(nil), err
	}
	return client, nil
}

func (s *stalling) serve(far, back net.Conn) {
	received := make(chan []byte, 1000) // as in the buffer of a socket
	go func() {
		defer close(received)
		for {
			part := make([]byte, 1<<12)
			n, err := far.Read(part)
			if err != nil {
				return
			}
			received <- part[:n]
		}
	}()
	front := tls.Server(&stalled{far, s, received, nil}, &tls.Config{Certificates: []tls.Certificate{s.certificate}, MinVersion: tls.VersionTLS12})
	go func() {
		_, _ = io.Copy(front, back)
		_ = far.Close()
	}()
	_, _ = io.Copy(back, front)
	_ = back.Close()
}

// A stalled connection is read only while the server runs.
type stalled struct {
	net.Conn
	s        *stalling
	received <-chan []byte
	rest     []byte
}

func (c *stalled) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		part, ok := <-c.received
		if !ok {
			return 0, io.EOF
		}
		c.rest = part
	}
	c.s.mu.Lock()
	running := c.s.running
	c.s.mu.Unlock()
	<-running
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
