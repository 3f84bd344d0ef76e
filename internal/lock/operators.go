package lock

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/wire"
)

// An operator says who controls something, and why.
type operator struct{ who, reason string }

type operatorKey struct{}

// WithOperator returns a context with an operator.
func WithOperator(ctx context.Context, who, reason string) context.Context {
	return context.WithValue(ctx, operatorKey{}, operator{who, reason})
}

// Operator returns the operator of a context. By default it is the identity of the Client. The error is a *noonlock.ConfigError.
func (c *Client) Operator(ctx context.Context) (who, reason string, err error) {
	by, _ := ctx.Value(operatorKey{}).(operator)
	for _, text := range []struct{ field, value string }{{"Operator.Who", by.who}, {"Operator.Reason", by.reason}} {
		if rule := input.Remark(text.value); rule != "" {
			return "", "", &noonlock.ConfigError{Package: "lockcore", Field: text.field, Value: input.Quote(text.value), Rule: rule}
		}
	}
	return cmp.Or(by.who, c.Identity()), by.reason, nil
}

// Search returns the names without the Prefix, sorted. lockcore.Client.Locks describes its times and its errors.
func (c *Client) Search(ctx context.Context, s Search) ([]string, error) {
	if err := c.One("a list of names"); err != nil {
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

// Inspection returns the request that inspects a lock.
func (c *Client) Inspection(name string) wire.Request {
	k := c.keys.lock(name)
	return c.scripts.inspect.Call(wire.Keys(k.lock, k.fence, k.queue, k.seen, k.key("size"))).Large()
}

// Force returns the request that releases the given attempts, of a lock of a kind that lock_inspect has
// returned.
func (c *Client) Force(name, kind string, attempts []string, who, reason string) wire.Request {
	k := c.keys.lock(name)
	return c.scripts.force.Call(wire.Keys(k.lock, k.queue, k.key("forced"), k.key("releases")), kind, strings.Join(attempts, "\n"), who+"\n"+reason, k.channels)
}

// Releases returns the request that reads what Force has done.
func (c *Client) Releases(name string) wire.Request {
	releases := c.keys.lock(name).key("releases")
	return wire.Command("lrange", releases, "0", "-1").On(releases)
}
