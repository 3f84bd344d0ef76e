package lock

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

type operator struct{ who, reason string }

type operatorKey struct{}

// WithOperator returns a context with the operator who is responsible for the calls with it, and a reason.
func WithOperator(ctx context.Context, who, reason string) context.Context {
	return context.WithValue(ctx, operatorKey{}, operator{who, reason})
}

// Operator returns the operator of a context. By default it is the identity of the Client. The error is a
// *noonlock.ConfigError.
func (c *Client) Operator(ctx context.Context) (who, reason string, err error) {
	by, _ := ctx.Value(operatorKey{}).(operator)
	for _, text := range []struct{ field, value string }{{"Operator.Who", by.who}, {"Operator.Reason", by.reason}} {
		if rule := input.Remark(text.value); rule != "" {
			return "", "", Refuse(text.field, rule, input.Quote(text.value))
		}
	}
	return cmp.Or(by.who, c.Identity()), by.reason, nil
}

// Search returns the found names, sorted and without the Prefix. lockcore.Client.Locks describes its times and errors.
func (c *Client) Search(ctx context.Context, s Search) ([]string, error) {
	if err := c.RequireOneServer("a list of names"); err != nil {
		return nil, err
	}
	names := map[string]struct{}{}
	total := 0
	err := c.wire.Scan(ctx, wire.Scan{
		Match: c.keys.pattern(s), Each: AskFor, Within: AskWithin,
		Found: func(keys []string, searched int) {
			for _, key := range keys {
				if name, part, ok := c.keys.split(key); ok && strings.HasPrefix(name, s.Prefix) && slices.Contains(s.Parts, part) {
					names[strings.TrimPrefix(name, s.Prefix)] = struct{}{}
				}
			}
			if total += searched; s.Progress != nil {
				s.Progress(total)
			}
		},
	})
	return slices.Sorted(maps.Keys(names)), err
}

// Inspection returns the request that reads the holders and waiters of a lock.
func (c *Client) Inspection(name string) wire.Request {
	k := c.keys.lock(name)
	return c.scripts.inspect.Call(wire.Keys(k.lock, k.fence, k.queue, k.seen, k.key("size"))).Large()
}

// Force returns the request that releases attempts at a lock. kind is the kind that lock_inspect has returned.
func (c *Client) Force(name, kind string, attempts []string, who, reason string) wire.Request {
	k := c.keys.lock(name)
	return c.scripts.force.Call(wire.Keys(k.lock, k.queue, k.key("forced"), k.key("releases")), kind, strings.Join(attempts, "\n"), who+"\n"+reason, k.channels)
}

// Releases returns the request that reads the forced releases.
func (c *Client) Releases(name string) wire.Request {
	releases := c.keys.lock(name).key("releases")
	return wire.Command("lrange", releases, "0", "-1").On(releases)
}

// QueueTime returns the time of a score in the queue. The score of a promoted attempt is negative, see lock_promote.lua.
func QueueTime(at float64) time.Time { return time.UnixMilli(int64(math.Abs(at))).UTC() }

// Promote moves the first waiter of an identity to the head of the queue. The error is noWaiter if no waiter has the
// identity, and ErrNotHeld if the lease does not hold the name.
func (l *Lease) Promote(ctx context.Context, identity string, noWaiter error) error {
	if err := CheckIdentity("identity", identity); err != nil {
		return err
	}
	keys := l.a.keys
	r := l.a.c.scripts.promote.Call([]any{&keys.lock, &keys.queue, &keys.seen}, &l.a.value, identity, &keys.channels)
	_, _, err := l.a.Act(ctx, r, func(answer any) error {
		switch n, err := r.Number(answer, nil); {
		case err != nil || n == 1:
			return err
		case n == 0:
			return noWaiter
		}
		return ErrNotHeld
	})
	return err
}

// Resize stores another size of a Semaphore. It returns ErrWrongKind if the name is of another kind.
func (n *Name) Resize(ctx context.Context, size int) error {
	r := n.c.scripts.ownedResize.Call(append(n.keys.args(), n.keys.key("size")), size, &n.terms.keepText, &n.keys.channels)
	answer, _, err := n.Act(ctx, r, func(answer any) error {
		if answer == any(int64(-1)) {
			return ErrWrongKind
		}
		return nil
	})
	number := n.c.attempts.Add(1) // of an attempt without an acquire: a grantCheck, its release, only serves the queue
	before, err := n.attempt(slotKind{}, number, slotValue(n.c.process, number, n.c.identity)).readServed(r, answer, err)
	if err == nil {
		n.c.log.Info("the size of a Semaphore was set", "name", n.keys.name, "size", size, "before", before)
	}
	return err
}

// Servers returns all servers of the Client, and the answer of each Sentinel. It sends requests only to Sentinels or to
// a cluster.
func (c *Client) Servers(ctx context.Context, within time.Duration) (all []Server, views []wire.View, err error) {
	all = slices.Clone(c.servers)
	if c.sentinels != nil {
		var addrs []string
		if views, addrs, err = c.sentinels.Primary(ctx); err == nil {
			all[0].Options.Addr = addrs[0]
		}
		return all, views, err
	}
	w, ok := c.wire.(*cluster.Cluster)
	if !ok {
		return all, nil, nil
	}
	nodes, err := w.Nodes(ctx, within)
	all = nil
	for addr, tag := range nodes {
		node := Server{c.servers[0].Options, tag}
		node.Options.Addr = addr
		all = append(all, node)
	}
	slices.SortFunc(all, func(a, b Server) int { return cmp.Compare(a.Options.Addr, b.Options.Addr) })
	return all, nil, err
}
