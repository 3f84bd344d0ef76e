package lockcoretest

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
)

var errFaultsClosed = errors.New("lockcoretest: the Faults are closed")

// Faults is a network between clients and a Redis server into which a test injects faults.
// It parses requests and replies, so a fault applies to a command and not to a number of
// bytes. A client that must fail independently of others needs its own Faults.
//
// All methods may be called from any goroutine. In a bubble, Faults must be created inside
// it.
type Faults struct {
	mu      sync.Mutex
	rules   []*Rule // replaced, never modified, so that current needs no copy
	cut     *Rule   // rule of Partition, nil without a partition
	relays  map[*relay]struct{}
	closed  bool
	closing chan struct{}
	wg      sync.WaitGroup
}

// NewFaults returns a network without faults. Close it at the end of the test.
// [Redis.OptionsVia] closes it itself.
func NewFaults() *Faults {
	return &Faults{relays: map[*relay]struct{}{}, closing: make(chan struct{})}
}

// Close lifts all faults, resets all connections and waits until all goroutines have
// ended. Later dials fail.
func (f *Faults) Close() {
	f.mu.Lock()
	if !f.closed {
		f.closed = true
		close(f.closing)
	}
	f.mu.Unlock()
	f.Cut()
	f.wg.Wait()
}

// Dialer returns a function for redis.Options.Dialer whose connections pass
// through f. next dials the server; nil means a [net.Dialer].
func (f *Faults) Dialer(next func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	if next == nil {
		next = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := f.admit(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		server, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		near, far := newPipe()
		r := &relay{faults: f, client: far, server: server, gone: make(chan struct{})}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.closed {
			_ = server.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: errFaultsClosed}
		}
		f.relays[r] = struct{}{}
		f.wg.Go(func() {
			r.run()
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.relays, r)
		})
		return near, nil
	}
}

// admit returns nil if a new connection is allowed, and otherwise the reason.
func (f *Faults) admit(ctx context.Context) error {
	for _, r := range f.current() {
		if r.fault.Kind == RefuseDial && r.applies(nil) {
			r.fire()
			return syscall.ECONNREFUSED
		}
	}
	for {
		f.mu.Lock()
		cut, closed := f.cut, f.closed
		f.mu.Unlock()
		if closed {
			return errFaultsClosed
		}
		if cut == nil {
			return nil
		}
		cut.fire()
		select {
		case <-cut.lifted:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.closing:
		}
	}
}

// Add injects a fault from now until it is used up or lifted. It returns an error if the
// fault is invalid. If several faults apply to one request, they apply in the order in
// which they were added. After a DropRequest or ResetBefore no other fault applies.
func (f *Faults) Add(fault Fault) (*Rule, error) {
	if err := fault.validate(); err != nil {
		return nil, err
	}
	r := newRule(f, fault)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(slices.Clone(f.rules), r)
	return r, nil
}

// Inject is [Faults.Add] for tests. An invalid fault ends the test. At its end, the test
// fails if the fault was never injected (see [MustFire]).
func (f *Faults) Inject(tb testing.TB, fault Fault) *Rule {
	tb.Helper()
	r, err := f.Add(fault)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		tb.Helper() // the failure is in the line of Inject
		MustFire(tb, r)
	})
	return r
}

func (f *Faults) current() []*Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}

func (f *Faults) cutBy() *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// Partition cuts the network in both directions, for existing and new connections, until
// [Faults.Heal] or [Rule.Lift]. Nothing is lost: TCP resends unacknowledged data, so
// everything that was held back arrives late and in order after Heal. This includes the
// requests of clients that have closed their connection. To simulate a partition that
// exceeds TCP's timeouts, call [Faults.Cut] before Heal. The rule counts the requests,
// replies, messages, closed connections and dials that it held back.
//
// While the network is cut, another call returns the same rule.
func (f *Faults) Partition() *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		f.cut = newRule(f, Fault{Kind: "Partition"})
	}
	return f.cut
}

// Heal ends the partition, if there is one.
func (f *Faults) Heal() {
	if cut := f.cutBy(); cut != nil {
		cut.Lift()
	}
}

// Cut resets all connections, loses the data in transit, and returns the number of
// connections. New ones can be dialed.
func (f *Faults) Cut() int { return f.reset(false) }

// CutSubscriptions is [Faults.Cut] for the connections that have subscribed to a channel or
// pattern. Other connections stay open.
func (f *Faults) CutSubscriptions() int { return f.reset(true) }

func (f *Faults) reset(subscribed bool) int {
	f.mu.Lock()
	relays := slices.Collect(maps.Keys(f.relays))
	f.mu.Unlock()
	n := 0
	for _, r := range relays {
		if (!subscribed || r.isSubscribed()) && r.abort() {
			n++
		}
	}
	return n
}
