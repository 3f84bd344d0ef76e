package doctor

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/redis/go-redis/v9"
)

// tryMessages sends a message to itself, on a channel of its own.
func (n *node) tryMessages(ctx context.Context) {
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
	switch _, err := receive(); {
	case isRefusal(err):
		n.add(checkMessages, Warn, "SUBSCRIBE was refused: %s", refusal(rights[0], err))
		return
	case err != nil:
		n.add(checkMessages, Warn, "SUBSCRIBE was not answered: %s", oneLine(err))
		return
	}
	var receivers int64
	sent := time.Now()
	missing := n.ask(ctx, rights[1], func(ctx context.Context) (err error) {
		receivers, err = publish(ctx, channel, "doctor").Result()
		return err
	})
	arrived := false
	for missing == "" && receivers > 0 && !arrived {
		answer, err := receive()
		if err != nil {
			break
		}
		_, arrived = answer.(*redis.Message)
	}
	n.first(checkMessages,
		when(missing != "", Warn, "PUBLISH was refused: %s", missing),
		when(receivers == 0, Warn, "a message was not counted for its receiver"),
		when(!arrived, Warn, "a message did not arrive within %s", n.e.cfg.Timeout),
		when(true, OK, "a message arrived after %s", short(time.Since(sent))))
}
