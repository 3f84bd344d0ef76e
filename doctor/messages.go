package doctor

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// tryMessages sends a message to itself on a channel of each kind that the uses need. It ends with the first problem.
func (n *node) tryMessages(ctx context.Context) {
	kinds := []string{"ch"}
	for _, u := range uses {
		if slices.Contains(n.e.cfg.Uses, u.name) {
			kinds = append(kinds, u.needs.Channels...)
		}
	}
	slices.Sort(kinds)
	var longest time.Duration
	for _, kind := range slices.Compact(kinds) {
		took, problem := n.tryMessage(ctx, kind)
		if problem != "" {
			n.add("messages", Warn, "channels of %s: %s", kind, problem)
			return
		}
		longest = max(longest, took)
	}
	n.add("messages", OK, "a message arrived after %s", short(longest))
}

// tryMessage sends a message on a channel of its own.
func (n *node) tryMessage(ctx context.Context, kind string) (took time.Duration, problem string) {
	publish, subscribe := n.rdb.Publish, n.rdb.Subscribe
	channel, sharded := n.e.cfg.Prefix+":"+kind+":doctor-"+rand.Text(), ""
	if n.sharded {
		publish, subscribe = n.rdb.SPublish, n.rdb.SSubscribe
		channel, sharded = n.e.cfg.Prefix+":{"+n.scratch+"}:"+kind+":doctor-"+rand.Text(), "s"
	}
	messages := subscribe(ctx, channel)
	defer messages.Close()
	receive := func() (any, error) { return messages.ReceiveTimeout(ctx, n.e.cfg.Timeout) }
	switch _, err := receive(); {
	case isRefusal(err):
		return 0, "SUBSCRIBE was refused: " + refusal(sharded+"subscribe", err)
	case err != nil:
		return 0, "SUBSCRIBE was not answered: " + oneLine(err)
	}
	var receivers int64
	sent := time.Now()
	missing := n.ask(ctx, sharded+"publish", func(ctx context.Context) (err error) {
		receivers, err = publish(ctx, channel, "doctor").Result()
		return err
	})
	switch {
	case missing != "":
		return 0, "PUBLISH was refused: " + missing
	case receivers == 0:
		return 0, "a message was not counted for its receiver"
	}
	for {
		answer, err := receive()
		if err != nil {
			return 0, "a message did not arrive within " + n.e.cfg.Timeout.String()
		}
		if _, arrived := answer.(*redis.Message); arrived {
			return time.Since(sent), ""
		}
	}
}
