package lockcoretest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// errFaultsClosed is what a dial gets after Close.
var errFaultsClosed = errors.New("lockcoretest: these Faults are closed")

// Faults is a network between clients and a Redis server that fails when it is
// told to. It reads the requests and replies that pass, so that a fault hits
// one command and not a number of bytes. Give each client that shall fail
// apart from the others Faults of its own.
//
// All methods may be called from any goroutine. In a bubble, Faults must be
// made inside it.
type Faults struct {
	sources sync.Map // sha1 of a script -> its source

	mu      sync.Mutex
	rules   []*Rule // never changed in place: readers keep the slice they saw
	cut     *Rule   // the partition, if there is one
	relays  map[*relay]struct{}
	closed  bool
	closing chan struct{}
	wg      sync.WaitGroup
}

// NewFaults returns a network without faults. Close it at the end of the test;
// [Redis.OptionsVia] and [Proxy] do that themselves.
func NewFaults() *Faults {
	return &Faults{relays: map[*relay]struct{}{}, closing: make(chan struct{})}
}

// Close lifts every fault, resets every connection and waits until all
// goroutines have ended. Further dials fail.
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
		if err := f.start(far, server); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		return near, nil
	}
}

// admit lets a new connection in, or says why not.
func (f *Faults) admit(ctx context.Context) error {
	for _, r := range f.current() {
		if r.fault.Kind == RefuseDial && r.claim() {
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

// start carries bytes between the two connections until both have ended.
func (f *Faults) start(client, server net.Conn) error {
	r := newRelay(f, client, server)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = client.Close()
		_ = server.Close()
		return errFaultsClosed
	}
	f.relays[r] = struct{}{}
	f.wg.Go(func() {
		r.run()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.relays, r)
	})
	return nil
}

// Add injects a fault, from now until it is used up or lifted. The error says
// what is wrong with it. Of several faults that apply to one request, those
// added first come first; after a DropRequest or ResetBefore no other counts.
func (f *Faults) Add(fault Fault) (*Rule, error) {
	return f.add(fault, callerLine())
}

func (f *Faults) add(fault Fault, origin string) (*Rule, error) {
	if err := fault.validate(); err != nil {
		return nil, err
	}
	r := newRule(f, fault, origin)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(slices.Clone(f.rules), r)
	return r, nil
}

// Inject is [Faults.Add] for tests: a wrong fault ends the test, and so fails,
// when it is over, one that was never injected (see [MustFire]).
func (f *Faults) Inject(tb testing.TB, fault Fault) *Rule {
	tb.Helper()
	r, err := f.add(fault, callerLine())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { MustFire(tb, r) })
	return r
}

func (f *Faults) remove(r *Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == r {
		f.cut = nil
	}
	f.rules = slices.DeleteFunc(slices.Clone(f.rules), func(other *Rule) bool { return other == r })
}

func (f *Faults) current() []*Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rules
}

// Partition cuts the network both ways, on connections that exist and on those
// dialed later, until [Faults.Heal] or [Rule.Lift]. Nothing is lost: as TCP
// sends again what was not acknowledged, everything held back arrives late and
// in order once the network has healed, even what a client sent before it gave
// its connection up. For a partition that outlives TCP's patience call
// [Faults.Cut] before Heal. The rule counts the requests, replies, messages,
// ends of connections and dials that it held back.
//
// A second call, while the network is cut, returns the same rule.
func (f *Faults) Partition() *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut == nil {
		f.cut = newRule(f, Fault{Kind: partition}, callerLine())
	}
	return f.cut
}

// Heal ends a partition, if there is one.
func (f *Faults) Heal() {
	f.mu.Lock()
	cut := f.cut
	f.mu.Unlock()
	if cut != nil {
		cut.Lift()
	}
}

// Cut resets every connection at once, with all that is on its way, and returns
// how many there were. New ones can be dialed.
func (f *Faults) Cut() int { return f.reset(false) }

// CutSubscriptions is [Cut] for the connections that have subscribed to a
// channel or pattern; the others go on.
func (f *Faults) CutSubscriptions() int { return f.reset(true) }

func (f *Faults) reset(subscribed bool) int {
	f.mu.Lock()
	var relays []*relay
	for r := range f.relays {
		relays = append(relays, r)
	}
	f.mu.Unlock()
	n := 0
	for _, r := range relays {
		if (!subscribed || r.isSubscribed()) && r.abort() {
			n++
		}
	}
	return n
}
