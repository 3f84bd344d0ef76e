package lockcore

import (
	"context"
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
	terms, err := cfg.terms(c.identity)
	if err != nil {
		return nil, err
	}
	terms.keepTokens = engine.TokenRetention
	return &nameEngine{c: c, keys: c.keys.lock(name), terms: terms}, nil
}

// A nameEngine implements engine.Engine for one name.
type nameEngine struct {
	c     *Client
	keys  *lockKeys
	terms *leaseTerms
}

func (e *nameEngine) Key(part string) string { return e.keys.base + part }

func (e *nameEngine) Channel(rest string) string { return e.c.keys.prefix + ":" + rest }

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
	return wire.NewRetry(e.terms.timeout(), 0, nil).Send(ctx, e.c.wire, e.keys.name, r, wire.MayRetryLater)
}

func (e *nameEngine) Once(ctx context.Context, r wire.Request) (any, error) {
	return e.c.wire.Send(ctx, e.keys.name, r, e.terms.timeout())
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

func (e *nameEngine) Expect(label string) { e.c.metrics.kind(label).queue() }

func (e *nameEngine) Queue(ctx context.Context) ([]engine.Waiter, error) {
	r := e.c.scripts.lockQueue.Call([]string{e.keys.queue, e.keys.seen})
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
	r := e.c.scripts.lockPromote.Call([]string{e.keys.lock, e.keys.queue, e.keys.seen}, lease.Value(), identity, e.c.keys.channels)
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
