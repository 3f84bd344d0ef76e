package lockcore

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/engine"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

// Engine is for the packages of this module that are built on leases. Use Mutex,
// ReentrantMutex, RWMutex or Do instead.
func (c *Client) Engine(name string, cfg LeaseConfig) (engine.Engine, error) {
	// The packages accept names of 200 bytes and add prefixes of up to 10 bytes.
	if rule := input.Fault(name, 210, true); rule != "" {
		return nil, &ConfigError{Field: "name", Value: input.Quote(name), Rule: rule}
	}
	terms, err := c.terms(cfg)
	if err != nil {
		return nil, err
	}
	if err := c.topology.refusal(mutexKind{}, terms); err != nil {
		return nil, err
	}
	terms.keepArg = millis(engine.TokenRetention)
	return &nameEngine{c: c, keys: c.keys.lock(name), terms: terms}, nil
}

// A nameEngine implements engine.Engine for one name.
type nameEngine struct {
	c     *Client
	keys  *lockKeys
	terms *leaseTerms
}

func (e *nameEngine) Key(part string) string { return e.keys.base + part }

func (e *nameEngine) Channel(rest string) string { return e.c.keys.channel(e.keys.name, rest) }

func (e *nameEngine) NewID() string { return e.c.attemptID(e.c.attempts.Add(1)) }

// attemptID returns the identifier of an attempt of this Client, as in lockKeys.tomb.
func (c *Client) attemptID(number uint64) string {
	return c.process + "." + strconv.FormatUint(number, 36)
}

func (e *nameEngine) Identity() string { return e.terms.identity }

func (e *nameEngine) TTL() time.Duration { return e.terms.ttl }

func (e *nameEngine) Timeout() time.Duration { return e.terms.timeout() }

func (e *nameEngine) Ask(ctx context.Context, r wire.Request) (any, error) {
	return e.AskWithin(ctx, r, e.terms.timeout(), 2*e.terms.timeout())
}

func (e *nameEngine) AskWithin(ctx context.Context, r wire.Request, each, within time.Duration) (any, error) {
	return e.c.request(ctx, e.keys.name, r, each, within)
}

func (e *nameEngine) Persist(ctx context.Context, r wire.Request) (any, error) {
	retry := wire.NewRetry(e.terms.timeout(), 0, nil)
	return retry.Send(input.Context(ctx), e.c.wire, e.keys.name, r, wire.MayRetryLater)
}

func (e *nameEngine) Commit(ctx context.Context, r wire.Request) (any, error) {
	return e.Persist(ctx, e.terms.replicated(r).Marked(e.keys.base+"ack"))
}

func (e *nameEngine) Once(ctx context.Context, r wire.Request) (any, error) {
	return e.c.wire.Send(input.Context(ctx), e.keys.name, r, e.terms.timeout())
}

func (e *nameEngine) Lock(ctx context.Context, k engine.Kind) (engine.Lease, error) {
	m := &Mutex{c: e.c, keys: e.keys, terms: e.terms, kind: e.c.topology.kind()}
	if k != nil {
		m.kind = engineKind{m.kind, k}
	}
	lease, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	return engineLease{lease}, nil
}

func (e *nameEngine) Hold(ctx context.Context, k engine.Kind, acquire func(engine.Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (engine.Lease, error) {
	ctx = input.Context(ctx)
	a, err := e.c.newAttempt(engineKind{mutexKind{}, k}, e.keys, e.terms, false)
	if err != nil {
		return nil, err
	}
	var refusal error
	req := e.terms.replicated(acquire(a.engineAttempt())).Granting()
	send := func(timeout time.Duration) (g grant, err error) {
		var wait wire.Wait
		made := e.c.clock.Now()
		answer, err := e.c.wire.Send(ctx, e.keys.name, req.Timed(&wait), timeout)
		answer, g.short, err = shortOf(answer, err)
		g.t0 = e.c.sentAt(made, &wait)
		if err != nil {
			a.noteFailure(err)
			return g, err
		}
		var granted bool
		if g.token, granted, refusal = read(answer); granted {
			a.mayBeStored.Store(true)
		}
		return g, nil
	}
	var g grant
	retry := e.c.newRetry(e.terms.timeout(), 2*e.terms.timeout())
	err = retry.Do(ctx, wire.MayRetry, func() (err error) {
		g, err = send(retry.Timeout())
		return err
	})
	var lease *Lease
	if err == nil {
		lease, err = a.startLease(ctx, g, func() (grant, error) { return send(e.terms.timeout()) })
	}
	if lease == nil {
		e.c.abandon(a)
		return nil, cmp.Or(err, refusal)
	}
	return engineLease{lease}, nil
}

func (e *nameEngine) Watch(channel string, nudge func()) (stop func()) {
	return e.c.wire.Messages(e.keys.name).Watch(channel, nudge)
}

func (e *nameEngine) Background(task func(context.Context)) bool { return e.c.background(task) }

func (e *nameEngine) Shared(key any, create func() any) any {
	e.c.mu.Lock()
	defer e.c.mu.Unlock()
	if e.c.shared == nil {
		e.c.shared = map[any]any{}
	}
	if e.c.shared[key] == nil {
		e.c.shared[key] = create()
	}
	return e.c.shared[key]
}

func (e *nameEngine) Now() time.Duration { return e.c.clock.Now() }

func (e *nameEngine) Logger() logr.Logger { return e.c.log }

func (e *nameEngine) Quorum() *engine.Quorum {
	return e.c.topology.quorum()
}

func (e *nameEngine) AskAll(ctx context.Context, r func() wire.Request) (all []any, err error) {
	ctx = input.Context(ctx)
	if err := e.c.topology.ready(ctx); err != nil {
		return nil, err
	}
	retry := e.c.newRetry(e.terms.timeout(), 2*e.terms.timeout())
	err = retry.Do(ctx, wire.MayRetry, func() error {
		r := r()
		answer, err := e.c.wire.Send(ctx, e.keys.name, r.Counted(countAnswers(r), nil), retry.Timeout())
		all, _ = answer.([]any)
		return err
	})
	return all, err
}

func (e *nameEngine) Renew(ctx context.Context, lease engine.Lease) error {
	ctx = input.Context(ctx)
	l := lease.(engineLease).Lease
	retry := wire.NewRetry(e.terms.timeout(), 0, nil)
	return retry.Do(ctx, wire.MayRetryLater, func() error {
		t0 := e.c.clock.Now()
		r := l.a.kind.renewal(l.a)
		n, err := r.Number(e.c.wire.Send(ctx, e.keys.name, r, retry.Timeout()))
		switch {
		case err != nil:
			return err
		case n == 0:
			lease.Lose()
			return ErrLeaseLost
		}
		l.life.Extend(t0)
		return nil
	})
}

func (e *nameEngine) Expect(label string) { e.c.metrics.kind(label).queue() }

func (e *nameEngine) Queue(ctx context.Context) ([]engine.Waiter, error) {
	r := e.c.scripts.lockQueue.Call(wire.Keys(e.keys.queue, e.keys.seen))
	answer, err := e.Ask(ctx, r)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok {
		return nil, r.OddReply(answer)
	}
	queue := make([]engine.Waiter, 0, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		p, ok := parseAttempt(wire.Text(list[i]))
		at, err := strconv.ParseFloat(wire.Text(list[i+1]), 64)
		if !ok || err != nil {
			continue // this library did not write it
		}
		queue = append(queue, engine.Waiter{Identity: p.identity, Since: placeTime(at), Promoted: at < 0})
	}
	return queue, nil
}

// placeTime returns the time of a score in the queue. The score of an attempt that was
// promoted is negative, see lock_promote.lua.
func placeTime(at float64) time.Time { return time.UnixMilli(int64(math.Abs(at))).UTC() }

func (e *nameEngine) Promote(ctx context.Context, lease engine.Lease, identity string) (engine.Promotion, error) {
	if err := checkIdentity("identity", identity); err != nil {
		return 0, err
	}
	r := e.c.scripts.lockPromote.Call(wire.Keys(e.keys.lock, e.keys.queue, e.keys.seen), lease.Value(), identity, e.keys.channels)
	answer, err := e.Ask(ctx, r)
	n, err := r.Number(answer, err)
	switch {
	case err != nil:
		return 0, err
	case n == 1:
		return engine.Promoted, nil
	case n == 0:
		return engine.NoWaiter, nil
	}
	return engine.NotHeld, nil
}

// engineKind is a mutex that a package above renews and releases with its own scripts.
type engineKind struct {
	queueKind
	given engine.Kind
}

func (k engineKind) name() string { return k.given.Label() }

func (k engineKind) renewal(a *attempt) wire.Request {
	r, ok := k.given.Renewal(a.engineAttempt())
	if !ok {
		return k.queueKind.renewal(a)
	}
	return a.c.topology.counted(a, r)
}

func (k engineKind) leave(a *attempt, withdraw bool) wire.Request {
	if r, ok := k.given.Release(a.engineAttempt()); ok {
		return r
	}
	return k.queueKind.leave(a, withdraw)
}

// noticer returns the Kind of the attempt if it takes notices.
func (a *attempt) noticer() (n engine.Noticer, ok bool) {
	if k, isEngine := a.kind.(engineKind); isEngine {
		n, ok = k.given.(engine.Noticer)
	}
	return n, ok
}

// engineAttempt returns what the packages above need of an attempt.
func (a *attempt) engineAttempt() engine.Attempt {
	return engine.Attempt{
		ID: a.c.attemptID(a.number), Value: a.value, TTL: a.terms.ttl, TombTTL: a.tombTTL(),
		Token: a.token, Tomb: a.tomb,
	}
}

// engineLease is a Lease with the methods that only the packages above need.
type engineLease struct{ *Lease }

func (l engineLease) Value() string { return l.a.value }

func (l engineLease) Err() error { return l.life.Err() }

func (l engineLease) Overdue() time.Duration { return l.life.Overdue() }

func (l engineLease) Abort(reason error) bool {
	if l.life.Err() != nil || !l.end(errors.Join(ErrLeaseExpired, reason)) {
		return false
	}
	l.c.removeLease(l.Lease)
	return true
}

func (l engineLease) Lose() {
	if l.end(ErrLeaseLost) {
		l.c.noteLoss(l.Lease, ErrLeaseLost)
	}
}

func (l engineLease) Finish() {
	if l.end(ErrReleased) {
		l.c.removeLease(l.Lease)
	}
}
