package testenv

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// A badContext is a context of the application whose methods have a defect.
type badContext struct {
	context.Context
	defect defect
	done   chan struct{} // closed with that of Context
	armed  atomic.Bool   // the defect shows
	calls  atomic.Int32
}

// A defect is that of one method.
type defect struct {
	method string
	from   int32 // the first call that panics; 0: none, but Err returns nil
	once   bool  // later calls do not panic

	// behind: a context of package context is derived from it. own: its Done is not the channel
	// of a context of package context, which then waits for it on a goroutine.
	behind, own bool
}

func (d defect) String() string {
	text := fmt.Sprintf("%s panics from call %d", d.method, d.from)
	switch {
	case d.from == 0:
		text = "Err is nil"
	case d.once:
		text = fmt.Sprintf("%s panics in call %d", d.method, d.from)
	}
	if d.behind {
		text += ", behind another context"
	}
	if d.own {
		text += ", with its own Done"
	}
	return text
}

func defects() (all []defect) {
	for i := range 4 {
		behind, own := i%2 == 1, i/2 == 1
		all = append(all, defect{method: "Err", behind: behind, own: own})
		for _, method := range []string{"Done", "Err", "Value", "Deadline"} {
			for n, from := range []int32{1, 2, 5} {
				if n == i%3 || Nightly() {
					all = append(all, defect{method, from, i >= 2, behind, own})
				}
			}
		}
	}
	return all
}

type badKey struct{}

// of returns a context with the defect that ends with ctx.
func (d defect) of(ctx context.Context) context.Context {
	b := &badContext{Context: ctx, defect: d, done: make(chan struct{})}
	context.AfterFunc(ctx, func() { close(b.done) })
	var outer context.Context = b
	if d.behind {
		outer = context.WithValue(b, badKey{}, true)
		if d.method == "Deadline" { // package context calls the other methods itself
			var cancel context.CancelFunc
			outer, cancel = context.WithCancel(outer)
			context.AfterFunc(ctx, cancel)
		}
	}
	b.armed.Store(true)
	return outer
}

func (b *badContext) called(method string) {
	if b.defect.from == 0 || b.defect.method != method || !b.armed.Load() {
		return
	}
	if n := b.calls.Add(1); n == b.defect.from || n > b.defect.from && !b.defect.once {
		panic(b.defect)
	}
}

func (b *badContext) Deadline() (time.Time, bool) {
	b.called("Deadline")
	return b.Context.Deadline()
}

func (b *badContext) Done() <-chan struct{} {
	b.called("Done")
	if b.defect.own {
		return b.done
	}
	return b.Context.Done()
}

func (b *badContext) Err() error {
	b.called("Err")
	if b.defect.from == 0 {
		return nil
	}
	return b.Context.Err()
}

func (b *badContext) Value(key any) any {
	b.called("Value")
	return b.Context.Value(key)
}

// EveryCallSurvivesItsContext asserts that a context with a defect costs nothing: the call with it
// returns or panics. Afterwards, the Client works, Close returns, and no lock and no goroutine is
// left. prepare and of are those of EveryCallIsBounded.
func EveryCallSurvivesItsContext(t *testing.T, prepare Prepare, of ...any) {
	t.Helper()
	everyDefect(t, topologies()[0], prepare, of)
}

// EveryCallSurvivesItsContextOnAQuorum is EveryCallSurvivesItsContext with the calls of a quorum.
func EveryCallSurvivesItsContextOnAQuorum(t *testing.T, prepare Prepare, of ...any) {
	t.Helper()
	everyDefect(t, quorums()[0], prepare, of)
}

func everyDefect(t *testing.T, where topology, prepare Prepare, of []any) {
	t.Helper()
	t.Parallel()
	for _, d := range defects() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			InBubble(t, func(e *Env) { everyCallWith(e, d, where, prepare, of) })
		})
	}
}

func everyCallWith(e *Env, d defect, where topology, prepare Prepare, of []any) {
	e.Helper()
	const ends = 5 * time.Second // of the contexts of all calls, except those of Within
	s := &site{Env: e, over: make(chan struct{})}
	rdb := where.add(s)
	c, err := rdb.open(lockcore.Config{Clock: e.Clock})
	Must(e, err)
	e.Cleanup(func() { _ = c.Close(context.Background()) }) // if the test fails
	e.asCaller = d.of
	var calls []boundedCall
	prepare(e, c, func(name string, bound time.Duration, call func(context.Context)) {
		calls = append(calls, boundedCall{name, bound, call})
	})
	noneForgotten(e, calls, of)
	if d.method == "Err" { // so that contexts end during requests
		for _, n := range s.nodes {
			n.Hang()
		}
	}
	returned := make(chan struct{}, len(calls))
	for _, k := range calls {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), ends)
			defer cancel()
			began := e.Clock()
			_ = d.survive(func() error { k.call(d.of(ctx)); return nil })
			if took := e.Clock() - began; took > ends+k.bound {
				e.Errorf("%s returned after %v", k.name, took)
			}
			returned <- struct{}{}
		}()
	}
	for range calls {
		select {
		case <-returned:
		case <-time.After(time.Minute):
			e.Fatal("a call did not return")
		}
	}
	for _, n := range s.nodes {
		n.Unhang()
	}
	e.Pass(10 * time.Second)
	m, err := c.Mutex("afterwards", TTL(10*time.Second))
	Must(e, err)
	for range 9 { // more than there are connections
		began := e.Clock()
		l, err := m.TryLock(context.Background())
		Must(e, err)
		Must(e, l.Unlock(context.Background()))
		if took := e.Clock() - began; took > 0 {
			e.Errorf("a lock took %v afterwards", took)
		}
	}
	closes := func(as func(context.Context) context.Context) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return d.survive(func() error { return c.Close(as(ctx)) })
	}
	if closes(d.of) != nil { // it has taken nothing
		Must(e, closes(func(ctx context.Context) context.Context { return ctx }))
	}
	s.requireNoLocks()
	rdb.end()
	e.Pass(10 * time.Second)
	s.requireNoGoroutines("the end of the test", "")
}

// survive calls f and returns its error, which may be a panic of the defect.
func (d defect) survive(f func() error) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case d:
			err = fmt.Errorf("panic: %v", d)
		default:
			panic(p)
		}
	}()
	return f()
}

// requireNoLocks asserts that the servers have neither locks nor waiters. A minority of a quorum may
// have some: a release does not wait for it.
func (s *site) requireNoLocks() {
	s.Helper()
	left := map[string]int{}
	for _, n := range s.nodes {
		rdb := redis.NewClient(n.Options())
		for _, part := range []string{"lock", "queue"} {
			keys, err := rdb.Keys(context.Background(), "*:"+part).Result()
			Must(s.Env, err)
			for _, key := range keys {
				left[key]++
			}
		}
		_ = rdb.Close()
	}
	for key, servers := range left {
		if servers > len(s.nodes)/2 {
			s.Errorf("Close has left %s", key)
		}
	}
}
