package lock

import (
	"context"
	"sync"

	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// Feed returns a channel with the latest value from watch, unless it was received. tell returns at
// once. The channel is closed when ctx ends or the Client is closed.
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
