package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A network is a fault of the network between a client and its server.
type network struct {
	name string
	// dial replaces the Dialer; nil: the Dialer still works.
	dial func(ctx context.Context, over <-chan struct{}) (net.Conn, error)
	// begin applies the fault to existing connections; nil: they are cut.
	begin func(e *Env, n *node)
	// everywhere: it is tried on all topologies also by day.
	everywhere bool
}

var errDialEnded = errors.New("the dial has ended")

func networks() []network {
	fails := func(conn net.Conn, err error) func(context.Context, <-chan struct{}) (net.Conn, error) {
		return func(context.Context, <-chan struct{}) (net.Conn, error) { return conn, err }
	}
	// deaf returns a connection on which nothing arrives.
	deaf := func() (client, server net.Conn) {
		client, server = net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		return client, server
	}
	return []network{
		{name: "dials ignore their context", everywhere: true, dial: func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			<-over
			return nil, errDialEnded
		}},
		{name: "SYNs are dropped after a reset", dial: func(ctx context.Context, over <-chan struct{}) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-over:
				return nil, errDialEnded
			}
		}},
		{name: "connections are refused", dial: fails(nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})},
		{name: "the server accepts and never answers", everywhere: true, begin: func(_ *Env, n *node) { n.Hang() }},
		{name: "dials bring a late connection", dial: func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			<-over
			client, _ := deaf()
			return client, nil
		}},
		{name: "TLS handshakes hang", dial: func(_ context.Context, over <-chan struct{}) (net.Conn, error) {
			client, server := deaf()
			go func() {
				<-over
				_ = server.Close()
			}()
			var typed *tls.Conn                                                                  // as go-redis's dialer returns
			if err := tls.Client(client, &tls.Config{ServerName: "x"}).Handshake(); err != nil { //nolint:gosec,noctx // it hangs
				_ = client.Close()
				return typed, err
			}
			return client, nil
		}},
		{name: "dials return a typed nil", dial: fails((*net.TCPConn)(nil), nil)},
		{name: "dials panic", dial: func(context.Context, <-chan struct{}) (net.Conn, error) { panic("the Dialer panics") }},
		{name: "dials fail with an error of the Dialer's own", dial: fails(nil, errors.New("the tunnel is down"))},
		{name: "replies are lost", begin: func(e *Env, n *node) {
			_, err := n.faults.Add(lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
			Must(e, err)
		}},
	}
}

// AddCall adds a call and the longest time that it may take.
type AddCall func(name string, bound time.Duration, call func(ctx context.Context))

type boundedCall struct {
	name  string
	bound time.Duration
	call  func(ctx context.Context)
}

// Within returns a function that runs call with a context of one second.
func (e *Env) Within(call func(ctx context.Context)) func(context.Context) {
	return func(context.Context) {
		ctx, cancel := context.WithTimeout(e.Context(), time.Second)
		defer cancel()
		call(ctx) //nolint:contextcheck // it is the context of the test
	}
}

// EveryCallIsBounded asserts that calls return within their documented bounds, whatever
// the network does, and that no goroutine remains after the Client is closed: with one server,
// behind a Sentinel and in a cluster. prepare adds the calls while the network works. By day, only
// some of the networks are tried on more than the first topology.
//
// Each exported method of the types of the values must be the beginning of a call's name:
// "Mutex.Lock" or "Mutex.Lock with 1 s". So must each exported function of the tested package
// that takes a context: "Names". A new one can therefore not be forgotten. Without values, all may be.
func EveryCallIsBounded(t *testing.T, prepare Prepare, of ...any) {
	t.Helper()
	everyTopology(t, topologies(), prepare, of)
}

// EveryCallIsBoundedOnAQuorum is EveryCallIsBounded with the calls of a quorum.
func EveryCallIsBoundedOnAQuorum(t *testing.T, prepare Prepare, of ...any) {
	t.Helper()
	everyTopology(t, quorums(), prepare, of)
}

// Refuses returns a function that asserts that the error of a call is want.
func (e *Env) Refuses(want error, call func(ctx context.Context) error) func(context.Context) {
	return func(ctx context.Context) { MustIs(e, call(ctx), want) }
}

// Prepare adds calls of a Client.
type Prepare = func(e *Env, c *lockcore.Client, add AddCall)

func everyTopology(t *testing.T, all []topology, prepare Prepare, of []any) {
	t.Helper()
	t.Parallel()
	for i, where := range all {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			for _, n := range networks() {
				if i > 0 && !n.everywhere && !Nightly() {
					continue
				}
				t.Run(n.name, func(t *testing.T) {
					t.Parallel()
					InBubble(t, func(e *Env) { everyCall(e, n, where, prepare, of) })
				})
			}
		})
	}
}

var withContext = regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(\w+ context\.Context`)

// noneForgotten fails unless there is a call of each exported method, and of each exported
// function of the tested package whose first parameter is a context.
func noneForgotten(e *Env, calls []boundedCall, of []any) {
	e.Helper()
	var names []string
	files, err := filepath.Glob("*.go") // a test runs in the directory of its package
	Must(e, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		Must(e, err)
		for _, found := range withContext.FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	for _, value := range of {
		t := reflect.TypeOf(value)
		for m := range t.Methods() {
			names = append(names, t.Elem().Name()+"."+m.Name)
		}
	}
	for _, name := range names {
		called := func(c boundedCall) bool { return c.name == name || strings.HasPrefix(c.name, name+" ") }
		if name != "Client.Close" && !slices.ContainsFunc(calls, called) { // everyCall ends with Close
			e.Errorf("no call of %s", name)
		}
	}
}

// maxDials is the greatest number of concurrent dials to one server: three for each connection,
// one of which asks a node of a cluster for its slots.
const maxDials = 3 * 9

func everyCall(e *Env, n network, where topology, prepare Prepare, of []any) {
	e.Helper()
	s := &site{Env: e, network: n, over: make(chan struct{})}
	rdb := where.add(s)
	c, err := rdb.open(lockcore.Config{})
	Must(e, err)
	var calls []boundedCall
	prepare(e, c, func(name string, bound time.Duration, call func(context.Context)) {
		calls = append(calls, boundedCall{name, bound, call})
	})
	if len(of) > 0 {
		noneForgotten(e, calls, of)
	}
	e.Pass(time.Millisecond)

	s.breaks()
	ends := make(chan string, len(calls))
	for _, k := range calls {
		go func() {
			began := e.Clock()
			k.call(context.Background())
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
		case <-time.After(3 * time.Minute):
			e.Fatal("a call did not return")
		}
	}
	for i := 0; i < 20 && !s.hasMet(); i++ { // calls need only a majority of a quorum
		e.Pass(100 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(e.Context(), time.Second)
	defer cancel()
	began := e.Clock()
	_ = c.Close(ctx)
	if took := e.Clock() - began; took > time.Second {
		e.Errorf("Close with a context of 1 s returned after %v", took)
	}
	e.Pass(10 * time.Second)
	s.requireNoGoroutines("the end of the network's fault", "testenv.(*site).")
	s.heals()
	rdb.end()
	e.Pass(10 * time.Second)
	s.requireNoGoroutines("the end of the test", "")
	s.requireFewDials()
	if !s.hasMet() && !s.avoidable {
		e.Error("no dial has met the fault")
	}
}

// hasMet reports whether a dial has met the fault, if it concerns dials.
func (s *site) hasMet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.network.dial == nil || s.met > 0
}

// requireNoGoroutines asserts that no goroutine of the library is left, except those that wait
// for the function of a name, if it is not empty.
func (s *site) requireNoGoroutines(before, except string) {
	s.Helper()
	for _, g := range goroutinesOfLibrary() {
		if except == "" || !strings.Contains(g, except) {
			s.Errorf("a goroutine is left after Close, and before %s:\n%s", before, g)
		}
	}
}

// requireFewDials asserts that there were never many dials at a time, and that all have ended.
func (s *site) requireFewDials() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.nodes {
		if n.most > maxDials {
			s.Errorf("%d concurrent dials to %s", n.most, n.addr)
		}
		if n.dialing > 0 {
			s.Errorf("%d dials to %s have not returned", n.dialing, n.addr)
		}
	}
}
