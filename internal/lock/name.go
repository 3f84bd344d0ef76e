package lock

import (
	"context"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// Name returns a name whose leases have a configuration. If cfg is nil, the name has no leases, and no limit of the
// Client applies. The error is a *noonlock.ConfigError.
func (c *Client) Name(name string, cfg *LeaseConfig) (*Name, error) {
	if err := checkText("name", name, longestName, true); err != nil {
		return nil, err
	}
	if cfg == nil {
		terms, err := LeaseConfig{}.terms()
		return &Name{c: c, keys: c.keys.lock(name), terms: terms}, err
	}
	return c.name(name, *cfg, c.Mutex(), ledgerRetention)
}

// UserName returns a name for locks of users. It refuses the names of jobs and elections.
func (c *Client) UserName(name string, k Kind, cfg LeaseConfig) (*Name, error) {
	if IsReserved(name) {
		return nil, Refuse("name", "a name without the prefixes "+JobNames+" and "+ElectionNames+", which jobs and elections use", input.Quote(name))
	}
	if err := CheckName("name", name); err != nil {
		return nil, err
	}
	n, err := c.name(name, cfg, k, c.tokenRetention)
	if err == nil {
		c.Expect(k.Label())
	}
	return n, err
}

func (c *Client) name(name string, cfg LeaseConfig, k Kind, keep time.Duration) (*Name, error) {
	terms, err := c.terms(cfg, keep)
	if err != nil {
		return nil, err
	}
	if err := c.topology.refusal(k, terms); err != nil {
		return nil, err
	}
	return &Name{c: c, keys: c.keys.lock(name), terms: terms}, nil
}

// terms checks the configuration of a lease. keep is the TTL of the token counter after a grant. Names with equal
// configurations in a row share the result.
func (c *Client) terms(cfg LeaseConfig, keep time.Duration) (*leaseTerms, error) {
	if last := c.lastTerms.Load(); last != nil && last.cfg == cfg && last.keep == keep {
		return last, nil
	}
	t, err := cfg.terms()
	if err == nil && c.lockDelay > 0 && t.ttl > c.lockDelay {
		err = Refuse("LeaseConfig.TTL", "at most Config.LockDelay ("+c.lockDelay.String()+")", t.ttl)
	}
	if err != nil {
		return nil, err
	}
	t.cfg, t.keep, t.keepText = cfg, keep, decimal(keep+counterPause)
	c.lastTerms.Store(t)
	return t, nil
}

// Client returns the Client of the name.
func (n *Name) Client() *Client { return n.c }

// Name returns the name.
func (n *Name) Name() string { return n.keys.name }

// Key returns the key of a part of the name: <prefix>:{<name>}:<part>.
func (n *Name) Key(part string) string { return n.keys.key(part) }

// Channel returns the channel of a kind for messages about the name: <prefix>:<kind>:<database>:<of>, and
// in a cluster <prefix>:{<name>}:<kind>:<database>:<of>. It has the number of the database, because messages reach the
// clients of all databases of a server.
func (n *Name) Channel(kind, of string) string {
	return n.c.keys.channel(n.keys.name, kind+":"+n.c.keys.database+":"+of)
}

// TTL returns the TTL of the name's leases.
func (n *Name) TTL() time.Duration { return n.terms.ttl }

// Timeout returns how long one request may stay unanswered.
func (n *Name) Timeout() time.Duration { return n.terms.timeout() }

// ID returns the identifier of the attempt, as from NewID.
func (a *Attempt) ID() string { return attemptText("", a.c.process, a.number, "") }

// Value returns the secret value of the attempt at the server.
func (a *Attempt) Value() string { return a.value }

// Tomb returns the key of the attempt's tombstone, which exists if the attempt was abandoned.
func (a *Attempt) Tomb() string { return attemptText(a.keys.tombs, a.c.process, a.number, "") }

// TombTTL returns the TTL of the attempt's tombstone, which outlasts its requests.
func (a *Attempt) TombTTL() time.Duration { return max(a.terms.ttl, tombTTL) }

// Ask sends a request and retries it until it is answered, for at most two Timeouts.
func (n *Name) Ask(ctx context.Context, r wire.Request) (any, error) {
	return n.c.Ask(ctx, n.keys.name, r, n.terms.timeout(), 2*n.terms.timeout())
}

// Act is Client.Act about the name, for at most two Timeouts.
func (n *Name) Act(ctx context.Context, r wire.Request, refusal func(answer any) error) (answer any, repeated bool, err error) {
	return n.c.Act(ctx, n.keys.name, r, n.terms.timeout(), 2*n.terms.timeout(), refusal)
}

// Persist sends a request and retries it until it is answered or ctx ends. It also
// retries while the server has too little memory or too few replicas.
func (n *Name) Persist(ctx context.Context, r wire.Request) (any, error) {
	retry := wire.NewRetry(n.terms.timeout(), 0, nil)
	return retry.Send(ctx, n.c.wire, n.keys.name, r, wire.MayRetryLater)
}

// Commit is Persist for a request whose effect must survive a failover. If too few
// replicas have acknowledged the request in time, Commit returns the answer and ErrNotReplicated. A
// repeated request is acknowledged even if it writes nothing.
func (n *Name) Commit(ctx context.Context, r wire.Request) (any, error) {
	r.MarkKey = n.keys.key("ack")
	return n.Persist(ctx, n.terms.replicated(r))
}

// Once sends a request without retries.
func (n *Name) Once(ctx context.Context, r wire.Request) (any, error) {
	return n.c.wire.Send(ctx, n.keys.name, r, n.terms.timeout())
}

// Watch calls nudge when a message arrives on a channel, and with an empty message when messages may
// have been missed. Messages can be lost. nudge must not block.
func (n *Name) Watch(channel string, nudge func(message string)) (stop func()) {
	return n.c.wire.Messages(n.keys.name).Watch(channel, nudge)
}

// Ask sends a request about a name and retries it until it is answered, ctx ends, or within has passed.
func (c *Client) Ask(ctx context.Context, name string, req wire.Request, each, within time.Duration) (any, error) {
	retry := c.newRetry(each, within)
	return retry.Send(ctx, c.wire, name, req, wire.MayRetry)
}

// Act is Ask for a request that changes something. refusal returns an error for an answer that refuses the request.
// repeated is true if an earlier try was not answered and may have been applied. err is then joined with ErrUnknown.
func (c *Client) Act(ctx context.Context, name string, req wire.Request, each, within time.Duration, refusal func(answer any) error) (answer any, repeated bool, err error) {
	retry := c.newRetry(each, within)
	err = retry.Do(ctx, wire.MayRetry, func() error {
		if answer, err = c.wire.Send(ctx, name, req, retry.Timeout()); err != nil {
			repeated = repeated || wire.MayBeApplied(err)
			return err
		}
		return refusal(answer)
	})
	return answer, repeated, err
}

// Feed returns a channel of values that watch passes to tell. A value that was not received is replaced by the next
// one, so tell does not block. The channel is closed when ctx ends or the Client is closed.
func Feed[T any](ctx context.Context, c *Client, watch func(tell func(T)) (stop func())) <-chan T {
	values, mu := make(chan T, 1), sync.Mutex{}
	ctx, cancel := context.WithCancel(ctx)
	stop := watch(func(value T) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return // values may be closed
		}
		select {
		case <-values:
		default:
		}
		values <- value
	})
	closed := context.AfterFunc(c.ctx, cancel) //nolint:contextcheck // the Client's own
	context.AfterFunc(ctx, func() {
		closed()
		cancel()
		stop()
		mu.Lock()
		defer mu.Unlock()
		close(values)
	})
	return values
}

// Hints returns a Feed with a value for each message on channels of the name, and when messages may have been missed.
func (n *Name) Hints(ctx context.Context, channels ...string) <-chan struct{} {
	return Feed(ctx, n.c, func(tell func(struct{})) (stop func()) {
		var stops []func()
		for _, channel := range channels {
			stops = append(stops, n.Watch(channel, func(string) { tell(struct{}{}) }))
		}
		return func() {
			for _, stop := range stops {
				stop()
			}
		}
	})
}

// Hint sends a message on a channel of the name, in the background and without retries.
func (n *Name) Hint(channel string) {
	r := wire.Command("publish", channel, "")
	if n.c.keys.sharded {
		r = wire.Command("spublish", channel, "").On(channel)
	}
	n.c.Background(func(ctx context.Context) { _, _ = n.Once(ctx, several.Counted(r, members.CountAnswers(r), nil)) })
}
