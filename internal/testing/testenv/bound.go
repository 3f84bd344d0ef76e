package testenv

import (
	"cmp"
	"context"
	"errors"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A netFault is a fault of the network between a client and its server.
type netFault struct {
	name string
	// dial replaces the Dialer, unless it is nil. It may hang until healed is closed.
	dial func(ctx context.Context, healed <-chan struct{}) (net.Conn, error)
	// begin applies the fault to existing connections. If it is nil, they are cut.
	begin      func(e *Env, n *node)
	everywhere bool // tried on all topologies, even by day
}

func netFaults() []netFault {
	return []netFault{
		{name: "dials ignore their context", everywhere: true, dial: func(_ context.Context, healed <-chan struct{}) (net.Conn, error) {
			<-healed
			return nil, errors.New("the dial has ended")
		}},
		{name: "connections are refused", dial: func(context.Context, <-chan struct{}) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}},
		{name: "the server accepts and never answers", everywhere: true, begin: func(_ *Env, n *node) { n.Hang() }},
		{name: "the server never answers, and dials take 2.8 s", everywhere: true, begin: func(_ *Env, n *node) { n.Hang() }, dial: func(_ context.Context, healed <-chan struct{}) (net.Conn, error) {
			select {
			case <-time.After(2800 * time.Millisecond):
			case <-healed:
			}
			client, server := net.Pipe() // nothing arrives at the client
			go func() { _, _ = io.Copy(io.Discard, server) }()
			return client, nil
		}},
		{name: "replies are lost", begin: func(e *Env, n *node) {
			_, err := n.link.Add(lockcoretest.Fault{Kind: lockcoretest.SwallowReply})
			Must(e, err)
		}},
	}
}

// AddCall adds a call of an exported method or function. The name of the call begins with the method's name:
// "Mutex.Lock" or "Mutex.Lock in the queue". The context ends after a second if the name ends with "with 1 s", or if
// the documented bound is "until ctx ends".
type AddCall func(name string, call func(ctx context.Context))

// Prepare adds calls of a Client, and of Runners and electors whose ShutdownTimeout is BoundShutdown.
type Prepare = func(e *Env, c *lockcore.Client, ttl time.Duration, add AddCall)

// BoundShutdown is a ShutdownTimeout.
const BoundShutdown = 2 * time.Second

// EveryCallIsBounded asserts that calls return within the bounds in the documentation of the tested package,
// whatever the network does. It also asserts that no goroutine remains after the Client is closed. The calls run on
// one server, behind a Sentinel and in a cluster, or on a quorum. prepare adds them while the network works. By day,
// most faults are tried on the first topology only.
func EveryCallIsBounded(t *testing.T, onQuorum bool, prepare Prepare) {
	t.Helper()
	list := topologies()
	if onQuorum {
		list = quorums()
	}
	everyTopology(t, list, prepare, documentedBounds(t), false)
}

// FirstCallsAreBounded is EveryCallIsBounded on a quorum, with a new Client for each call. prepare must send nothing,
// so that the call is the first of its Client.
func FirstCallsAreBounded(t *testing.T, prepare Prepare) {
	t.Helper()
	everyTopology(t, quorums(), prepare, documentedBounds(t), true)
}

// DialsAreFew is EveryCallIsBounded on all topologies, without documented bounds: the calls only have to end.
func DialsAreFew(t *testing.T, prepare Prepare) {
	t.Helper()
	everyTopology(t, append(topologies(), quorums()...), prepare, nil, false)
}

func everyTopology(t *testing.T, list []topology, prepare Prepare, all bounds, firstCalls bool) {
	t.Helper()
	t.Parallel()
	for i, where := range list {
		t.Run(where.name, func(t *testing.T) {
			t.Parallel()
			for _, fault := range netFaults() {
				ttl := 3 * time.Second
				if i == 0 && fault.everywhere {
					ttl = 12 * time.Second // 2/3 TTL is then longer than the "at most 6 s" of a bound
				} else if i > 0 && !fault.everywhere && !Nightly() {
					continue
				}
				t.Run(fault.name, func(t *testing.T) {
					t.Parallel()
					InBubble(t, func(e *Env) { everyCall(e, fault, where, ttl, prepare, all, firstCalls) })
				})
			}
		})
	}
}

// bounds are texts, such as "2/3 TTL, at most 6 s" and "until ctx ends", by the name of a method or function.
type bounds map[string]string

var (
	boundRow     = regexp.MustCompile(`(?m)^\t(\S.*?)  +(\S.*(?:\n\t +\S.*)*)$`)
	boundName    = regexp.MustCompile(`[\w.]+`)
	takesContext = regexp.MustCompile(`^func\(\w+ context\.Context`)
	mayFail      = regexp.MustCompile(`\berror\)?$`)
)

// documentedBounds reads the section "Bounds" of the documentation of the tested package. The section
// must list each exported function and method that takes a context. If a type has one, the section must also
// list the methods of the type that return an error.
func documentedBounds(t *testing.T) bounds {
	t.Helper()
	paths, err := filepath.Glob("*.go") // a test runs in the directory of its package
	Must(t, err)
	set, files := token.NewFileSet(), make([]*ast.File, len(paths))
	for i, path := range paths {
		files[i], err = parser.ParseFile(set, path, nil, parser.ParseComments)
		Must(t, err)
	}
	pkg, err := doc.NewFromFiles(set, files, "tested") // without the tests
	Must(t, err)
	_, section, _ := strings.Cut(pkg.Doc, "\n# Bounds\n")
	section, _, _ = strings.Cut(section, "\n# ")
	all := bounds{}
	for _, row := range boundRow.FindAllStringSubmatch(section, -1) {
		for _, name := range boundName.FindAllString(row[2], -1) {
			all[name] = row[1]
		}
	}
	matches := func(r *regexp.Regexp) func(f *doc.Func) bool {
		return func(f *doc.Func) bool { return r.MatchString(types.ExprString(f.Decl.Type)) }
	}
	waits, fails := matches(takesContext), matches(mayFail)
	for _, kind := range append(pkg.Types, &doc.Type{Funcs: pkg.Funcs}) {
		handle := slices.ContainsFunc(kind.Methods, waits)
		for _, f := range slices.Concat(kind.Funcs, kind.Methods) {
			name := f.Name
			if f.Recv != "" {
				name = kind.Name + "." + name
			}
			if all[name] == "" && (waits(f) || f.Recv != "" && handle && fails(f)) {
				t.Errorf("the section Bounds does not list %s", name)
			}
		}
	}
	return all
}

type boundedCall struct {
	method, name string // method or function, and name of the call
	call         func(ctx context.Context)
}

// run makes the call and asserts that it returns in time.
func (k boundedCall) run(e *Env, ttl time.Duration, all bounds) {
	text, afterEnd := strings.CutPrefix(cmp.Or(all[k.method], "180 s"), "until ctx ends")
	within := time.Hour
	for text := range strings.SplitSeq(strings.TrimPrefix(text, " + "), ", at most ") {
		d, known := map[string]time.Duration{
			"": 0, "TTL": ttl, "LeaseDuration": ttl, "2/3 TTL": 2 * ttl / 3, "2/3 LeaseDuration": 2 * ttl / 3, "ShutdownTimeout": BoundShutdown,
		}[text]
		if !known {
			var err error
			d, err = time.ParseDuration(strings.ReplaceAll(text, " ", ""))
			Must(e, err)
		}
		within = min(within, d)
	}
	ctx := context.Background()
	if afterEnd || strings.HasSuffix(k.name, " with 1 s") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		if !afterEnd {
			within = 0
		}
		within += time.Second
	}
	began := e.Clock()
	k.call(ctx)
	if took := e.Clock() - began; took > within+10*time.Millisecond {
		e.Errorf("%s returned after %v; the documented bound is %v", k.name, took, within)
	}
}

// maxDials limits the concurrent dials of one Client to one server: three for each of nine connections, of which one
// asks a node of a cluster for its slots.
const maxDials = 3 * 9

func everyCall(e *Env, fault netFault, where topology, ttl time.Duration, prepare Prepare, all bounds, firstCalls bool) {
	e.Helper()
	s := &site{Env: e, fault: fault, healed: make(chan struct{})}
	o := where.add(s)
	var calls []boundedCall
	add := func(name string, call func(context.Context)) {
		method, _, _ := strings.Cut(name, " ")
		calls = append(calls, boundedCall{method, name, call})
	}
	open := func() *lockcore.Client {
		c, err := o.open(lockcore.Config{})
		Must(e, err)
		prepare(e, c, ttl, add)
		return c
	}
	c := open()
	prepared, clients := len(calls), []*lockcore.Client{c}
	if firstCalls {
		own := make([]boundedCall, prepared)
		for i := range own {
			calls = nil
			clients = append(clients, open())
			own[i] = calls[i]
		}
		calls = own
	}
	add("Client.Close with 1 s", func(ctx context.Context) { _ = c.Close(ctx) })
	onQuorum := lock.Of(c).Quorum() != nil
	for name := range all {
		if firstCalls {
			break // FirstCallsAreBounded accepts any calls
		}
		kind, _, _ := strings.Cut(name, ".")
		same := func(k boundedCall) bool { return strings.HasPrefix(k.method, kind+".") }
		if !slices.ContainsFunc(calls, func(k boundedCall) bool { return k.method == name }) && (!onQuorum || slices.ContainsFunc(calls, same)) {
			e.Errorf("no call of %s", name)
		}
	}
	e.Pass(time.Millisecond)

	s.beginFault()
	ends := make(chan string, prepared)
	for _, k := range calls[:prepared] {
		go func() {
			k.run(e, ttl, all)
			ends <- k.name
		}()
	}
	for range prepared {
		select {
		case <-ends:
		case <-time.After(3 * time.Minute):
			e.Fatal("a call did not return")
		}
	}
	calls[prepared].run(e, ttl, all)
	for _, c := range clients[1:] {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = c.Close(ctx)
		cancel()
	}
	e.Pass(10 * time.Second)
	s.requireNoGoroutines("the end of the network's fault", "testenv.(*site).")
	s.endFault()
	o.close()
	e.Pass(10 * time.Second)
	s.requireNoGoroutines("the end of the test", "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault.dial != nil && !s.met && !s.unmetOK {
		s.Error("no dial has met the fault")
	}
	for _, n := range s.nodes {
		if n.peakDials > maxDials*len(clients) {
			s.Errorf("%d concurrent dials to %s", n.peakDials, n.addr)
		}
		if n.dials > 0 {
			s.Errorf("%d dials to %s have not returned", n.dials, n.addr)
		}
	}
}
