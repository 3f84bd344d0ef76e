package doctor

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"
)

// tryMessages sends a message to itself, on a channel of its own.
func (n *node) tryMessages(ctx context.Context) error {
	publish, subscribe := n.rdb.Publish, n.rdb.Subscribe
	channel := n.e.cfg.Prefix + ":ch:doctor-" + rand.Text()
	rights := [2]string{"subscribe", "publish"}
	if n.sharded {
		publish, subscribe = n.rdb.SPublish, n.rdb.SSubscribe
		channel = n.e.cfg.Prefix + ":{" + n.scratch + "}:ch:doctor-" + rand.Text()
		rights = [2]string{"ssubscribe", "spublish"}
	}
	messages := subscribe(ctx, channel)
	defer messages.Close()
	receive := func() (any, error) { return messages.ReceiveTimeout(ctx, n.e.cfg.Timeout) }
	if _, err := receive(); err != nil {
		n.add(checkMessages, Warn, "SUBSCRIBE %s", because(rights[0], err))
		return nil
	}
	var receivers int64
	sent := time.Now()
	err := n.ask(ctx, func(ctx context.Context) (err error) {
		receivers, err = publish(ctx, channel, "doctor").Result()
		return err
	})
	switch {
	case isRefusal(err):
		n.add(checkMessages, Warn, "PUBLISH %s", because(rights[1], err))
		return nil
	case err != nil:
		return err
	case receivers == 0:
		n.add(checkMessages, Warn, "a message was not counted for its receiver")
		return nil
	}
	for {
		answer, err := receive()
		if err != nil {
			n.add(checkMessages, Warn, "a message did not arrive within %s", n.e.cfg.Timeout)
			return nil
		}
		if _, ok := answer.(*redis.Message); ok {
			n.add(checkMessages, OK, "a message arrived after %s", short(time.Since(sent)))
			return nil
		}
	}
}

// because says why a command has failed.
func because(right string, err error) string {
	if isRefusal(err) {
		return "was refused: " + refusal(right, err)
	}
	return "was not answered: " + oneLine(err)
}
