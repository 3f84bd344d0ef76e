package lockcore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A network is what happens between a client and its server from some moment on.
type network struct {
	name string
	// dial replaces what the Dialer does; nil: it goes on as before.
	dial func(ctx context.Context, over <-chan struct{}) (net.Conn, error)
	// begin does it to connections that exist.
	begin func(e *env, f *lockcoretest.Faults)
}

func networks() []network {
	hang := func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
		<-over
		return nil, errors.New("the dial was over at last")
	}
	return []network{
		{"dials ignore their context", hang, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"SYNs are dropped after a reset", func(ctx context.Context, _ <-chan struct{}) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"dials bring a late connection", func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			<-over
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"TLS handshakes hang", func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				go func() { _, _ = io.Copy(io.Discard, server) }()
				<-over
				_ = server.Close()
			}()
			var typed *tls.Conn                                                                  // as go-redis's own returns
			if err := tls.Client(client, &tls.Config{ServerName: "x"}).Handshake(); err != nil { //nolint:gosec,noctx // it hangs
				_ = client.Close()
				return typed, err
			}
			return client, nil
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"dials return a typed nil", func(context.Context, <-chan struct{}) (net.Conn, error) {
			var none *net.TCPConn
			return none, nil
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{
			"dials panic", func(context.Context, <-chan struct{}) (net.Conn, error) { panic("a Dialer's") },
			func(_ *env, f *lockcoretest.Faults) { f.Cut() },
		},
		{"dials fail with an error of the Dialer's own", func(context.Context, <-chan struct{}) (net.Conn, error) {
			return nil, errors.New("the tunnel is down")
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"connections are refused", func(context.Context, <-chan struct{}) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}, func(_ *env, f *lockcoretest.Faults) { f.Cut() }},
		{"the server accepts and never answers", nil, func(e *env, _ *lockcoretest.Faults) { e.bubble.Hang() }},
		{"replies are lost", nil, func(e *env, f *lockcoretest.Faults) {
			_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
			must(e, err)
		}},
	}
}

// Every call returns within its documented bound, whatever the network does, and
// leaves nothing behind once the Client is closed.
//
// Caught mutants: a dial on the caller's goroutine; a request without a deadline; a
// try that is not bounded by what is left of the whole.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	t.Parallel()
	for _, n := range networks() {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) { everyCall(e, n) })
		})
	}
}

func everyCall(e *env, n network) {
	over := make(chan struct{})
	f := lockcoretest.NewFaults()
	opt := e.bubble.OptionsVia(f)
	inner := opt.Dialer
	var mu sync.Mutex
	broken, dialing, most := false, 0, 0
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		b := broken && n.dial != nil
		if dialing++; dialing > most {
			most = dialing
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			dialing--
			mu.Unlock()
		}()
		if b {
			return n.dial(ctx, over)
		}
		return inner(ctx, network, addr)
	}
	const lease = 3 * time.Second
	cfg := ttl(lease)
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, lockcore.Config{Clock: e.clock})
	must(e, err)
	m, err := c.Mutex("orders", cfg)
	must(e, err)
	re, err := c.ReentrantMutex("re", "owner", cfg)
	must(e, err)
	rw, err := c.RWMutex("rw", "owner", lockcore.RWConfig{Read: cfg, Write: cfg})
	must(e, err)
	ledger, err := c.Ledger("draw", lockcore.LedgerConfig{Lease: cfg})
	must(e, err)
	el, err := c.Election("boss", lockcore.ElectionConfig{Lease: cfg})
	must(e, err)
	record, err := c.Record("board", lockcore.RecordConfig{Timeout: time.Second})
	must(e, err)
	st, err := ledger.Open(e.Context(), lockcore.LedgerState{})
	must(e, err)
	e.pass(2 * time.Second)
	st, err = ledger.Open(e.Context(), st)
	must(e, err)
	run := func() *lockcore.Run {
		r, err := ledger.Claim(e.Context(), st.Last.Add(time.Second).Truncate(time.Second), st, lockcore.ClaimConfig{})
		must(e, err)
		return r
	}()
	held, writes, led := e.try(m), e.try(rw), (*lockcore.Leadership)(nil)
	led, err = el.Campaign(e.Context())
	must(e, err)
	e.pass(time.Millisecond)

	mu.Lock()
	broken = true
	mu.Unlock()
	n.begin(e, f)
	brief := func() (context.Context, context.CancelFunc) { return context.WithTimeout(e.Context(), time.Second) }
	within := func(call func(ctx context.Context)) func() {
		return func() {
			ctx, cancel := brief()
			defer cancel()
			call(ctx)
		}
	}
	bg := context.Background()
	const two3 = 2 * lease / 3
	calls := []struct {
		name  string
		bound time.Duration
		call  func()
	}{
		{"Mutex.TryLock", two3, func() { _, _ = m.TryLock(bg) }},
		{"ReentrantMutex.TryLock", two3, func() { _, _ = re.TryLock(bg) }},
		{"RWMutex.TryRLock", two3, func() { _, _ = rw.TryRLock(bg) }},
		{"RWMutex.TryLock", two3, func() { _, _ = rw.TryLock(bg) }},
		{"Mutex.Lock", lease, func() { _, _ = m.Lock(bg) }},
		{"Mutex.Lock with 1 s", time.Second, within(func(ctx context.Context) { _, _ = m.Lock(ctx) })},
		{"ReentrantMutex.Lock", lease, func() { _, _ = re.Lock(bg) }},
		{"RWMutex.RLock", lease, func() { _, _ = rw.RLock(bg) }},
		{"RWMutex.Lock", lease, func() { _, _ = rw.Lock(bg) }},
		{"Do", 10 * time.Second, func() { _ = c.Do(bg, "work", func(context.Context, uint64) error { return nil }) }},
		{"Lease.Downgrade", lease, func() { _ = writes.Downgrade(bg) }},
		{"Lease.Unlock", lease, func() { _ = held.Unlock(bg) }},
		{"Lease.Unlock with 1 s", time.Second, within(func(ctx context.Context) { _ = writes.Unlock(ctx) })},
		{"Inspect", 7 * time.Second, func() { _, _ = c.Inspect(bg, "orders") }},
		{"ForceRelease", 7 * time.Second, func() { _, _ = c.ForceRelease(bg, "orders") }},
		{"Record.Get", 3 * time.Second, func() { _, _ = record.Get(bg) }},
		{"Record.Put", 3 * time.Second, func() { _, _ = record.Put(bg, lockcore.RecordVersion{}, []byte("x"), time.Hour) }},
		{"Ledger.Open", two3, func() { _, _ = ledger.Open(bg, st) }},
		{"Ledger.Status", two3, func() { _, _ = ledger.Status(bg) }},
		{"Ledger.Pause", two3, func() { _ = ledger.Pause(bg) }},
		{"Ledger.Resume", two3, func() { _ = ledger.Resume(bg) }},
		{"Ledger.Trigger", two3, func() { _, _ = ledger.Trigger(bg) }},
		{"Ledger.Runs", two3, func() { _, _ = ledger.Runs(bg, 10) }},
		{"Ledger.Now", two3, func() { _, _, _ = ledger.Now(bg) }},
		{"Ledger.Leave", two3, func() { _ = ledger.Leave(bg, st) }},
		{"Ledger.Skip", two3, func() {
			_ = ledger.Skip(bg, st, lockcore.Skip{First: st.Last.Add(time.Second), Last: st.Last.Add(time.Second), Count: 1, Reason: "missed"})
		}},
		{"Ledger.Claim", two3, func() {
			_, _ = ledger.Claim(bg, st.Last.Add(time.Hour).Truncate(time.Second), st, lockcore.ClaimConfig{})
		}},
		{"Run.Complete with 1 s", time.Second, within(func(ctx context.Context) { _ = run.Complete(ctx, lockcore.OutcomeSucceeded, "") })},
		{"Run.Retry with 1 s", time.Second, within(func(ctx context.Context) { _, _ = run.Retry(ctx) })},
		{"Run.Abandon", lease, func() { _ = run.Abandon(bg, true) }},
		{"Election.Campaign", lease, func() { _, _ = el.Campaign(bg) }},
		{"Election.Leader", two3, func() { _, _ = el.Leader(bg) }},
		{"Leadership.Prefer", two3, func() { _ = led.Prefer(bg, "x") }},
		{"Leadership.Resign", lease, func() { _ = led.Resign(bg) }},
		{"Lease.Remaining", 0, func() { _ = held.Remaining() }},
		{"Lease.Context", 0, func() { _ = held.Context().Err() }},
	}
	ends := make(chan string, len(calls))
	for _, k := range calls {
		go func() {
			began := e.clock()
			k.call()
			took := e.clock() - began
			if took > k.bound+10*time.Millisecond {
				e.Errorf("%s returned after %v, documented are %v", k.name, took, k.bound)
			}
			ends <- k.name
		}()
	}
	for range calls {
		select {
		case <-ends:
		case <-time.After(time.Minute):
			e.Fatal("a call did not return")
		}
	}
	mu.Lock()
	if most > 3*8 {
		e.Errorf("%d dials at once", most)
	}
	mu.Unlock()
	ctx, cancel := brief()
	defer cancel()
	began := e.clock()
	_ = c.Close(ctx)
	if took := e.clock() - began; took > time.Second {
		e.Errorf("Close with a context of 1 s returned after %v", took)
	}
	_ = rdb.Close()
	close(over)
	e.bubble.Unhang()
	e.pass(10 * time.Second) // the bubble cannot end before every goroutine has
	mu.Lock()
	defer mu.Unlock()
	if dialing > 0 {
		e.Errorf("%d dials have not returned", dialing)
	}
}
