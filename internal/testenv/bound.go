package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A network is a fault of the network between a client and its server.
type network struct {
	name string
	// dial replaces the Dialer; nil: the Dialer still works.
	dial func(ctx context.Context, over <-chan struct{}) (net.Conn, error)
	// begin applies the fault to existing connections.
	begin func(e *Env, f *lockcoretest.Faults)
}

func networks() []network {
	hang := func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
		<-over
		return nil, errors.New("the dial has ended")
	}
	return []network{
		{"dials ignore their context", hang, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"SYNs are dropped after a reset", func(ctx context.Context, _ <-chan struct{}) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"dials bring a late connection", func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			<-over
			client, server := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"TLS handshakes hang", func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				go func() { _, _ = io.Copy(io.Discard, server) }()
				<-over
				_ = server.Close()
			}()
			var typed *tls.Conn                                                                  // as go-redis's dialer returns
			if err := tls.Client(client, &tls.Config{ServerName: "x"}).Handshake(); err != nil { //nolint:gosec,noctx // it hangs
				_ = client.Close()
				return typed, err
			}
			return client, nil
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"dials return a typed nil", func(context.Context, <-chan struct{}) (net.Conn, error) {
			var none *net.TCPConn
			return none, nil
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{
			"dials panic", func(context.Context, <-chan struct{}) (net.Conn, error) { panic("the Dialer panics") },
			func(_ *Env, f *lockcoretest.Faults) { f.Cut() },
		},
		{"dials fail with an error of the Dialer's own", func(context.Context, <-chan struct{}) (net.Conn, error) {
			return nil, errors.New("the tunnel is down")
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"connections are refused", func(context.Context, <-chan struct{}) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}, func(_ *Env, f *lockcoretest.Faults) { f.Cut() }},
		{"the server accepts and never answers", nil, func(e *Env, _ *lockcoretest.Faults) { e.Bubble.Hang() }},
		{"replies are lost", nil, func(e *Env, f *lockcoretest.Faults) {
			_, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
			Must(e, err)
		}},
	}
}

// AddCall adds a call and the longest time that it may take.
type AddCall func(name string, bound time.Duration, call func())

type boundedCall struct {
	name  string
	bound time.Duration
	call  func()
}

// Within returns a function that runs call with a context of one second.
func (e *Env) Within(call func(ctx context.Context)) func() {
	return func() {
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		call(ctx)
	}
}

// EveryCallIsBounded asserts that calls return within their documented bounds, whatever
// the network does, and that no goroutine remains after the Client is closed. prepare adds
// the calls while the network works.
//
// Each exported method of the types of the values must be the beginning of a call's name:
// "Mutex.Lock" or "Mutex.Lock with 1 s". A new method can therefore not be forgotten.
func EveryCallIsBounded(t *testing.T, prepare func(e *Env, c *lockcore.Client, add AddCall), of ...any) {
	t.Helper()
	t.Parallel()
	for _, n := range networks() {
		t.Run(n.name, func(t *testing.T) {
			t.Parallel()
			InBubble(t, func(e *Env) { everyCall(e, n, prepare, of) })
		})
	}
}

// noneForgotten fails unless there is a call of each exported method.
func noneForgotten(e *Env, calls []boundedCall, of []any) {
	e.Helper()
	for _, value := range of {
		t := reflect.TypeOf(value)
		for m := range t.Methods() {
			name := t.Elem().Name() + "." + m.Name
			if name == "Client.Close" { // everyCall ends with it
				continue
			}
			if !slices.ContainsFunc(calls, func(c boundedCall) bool { return c.name == name || strings.HasPrefix(c.name, name+" ") }) {
				e.Errorf("no call of %s", name)
			}
		}
	}
}

func everyCall(e *Env, n network, prepare func(e *Env, c *lockcore.Client, add AddCall), of []any) {
	e.Helper()
	over := make(chan struct{})
	f := lockcoretest.NewFaults()
	opt := e.Bubble.OptionsVia(f)
	opt.DialTimeout = 30 * time.Second // no call may depend on it
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
	rdb := redis.NewClient(opt)
	c, err := lockcore.New(rdb, lockcore.Config{Clock: e.Clock})
	Must(e, err)
	var calls []boundedCall
	prepare(e, c, func(name string, bound time.Duration, call func()) {
		calls = append(calls, boundedCall{name, bound, call})
	})
	noneForgotten(e, calls, of)
	e.Pass(time.Millisecond)

	mu.Lock()
	broken = true
	mu.Unlock()
	n.begin(e, f)
	ends := make(chan string, len(calls))
	for _, k := range calls {
		go func() {
			began := e.Clock()
			k.call()
			took := e.Clock() - began
			if took > k.bound+10*time.Millisecond {
				e.Errorf("%s returned after %v; the documented bound is %v", k.name, took, k.bound)
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
		e.Errorf("%d concurrent dials", most)
	}
	mu.Unlock()
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	began := e.Clock()
	_ = c.Close(ctx)
	if took := e.Clock() - began; took > time.Second {
		e.Errorf("Close with a context of 1 s returned after %v", took)
	}
	_ = rdb.Close()
	close(over)
	e.Bubble.Unhang()
	e.Pass(10 * time.Second) // the bubble ends only after every goroutine has ended
	mu.Lock()
	defer mu.Unlock()
	if dialing > 0 {
		e.Errorf("%d dials have not returned", dialing)
	}
}
