package doctor

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// tryMessages sends a message to itself on a channel of each kind that the uses need, until the first problem.
func (n *node) tryMessages(ctx context.Context) {
	kinds := []string{"ch"}
	for _, u := range uses {
		if slices.Contains(n.cfg.Uses, u.name) {
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
	subscribe, publish, channel := "subscribe", "publish", n.cfg.Prefix+":"+kind+":doctor-"+rand.Text()
	if n.sharded {
		subscribe, publish, channel = "ssubscribe", "spublish", n.cfg.Prefix+":{"+n.scratch+"}:"+kind+":doctor-"+rand.Text()
	}
	p, err := n.connect(ctx)
	if err != nil {
		return 0, "no connection for messages: " + oneLine(err)
	}
	defer p.Drop()
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, p.Drop)()
	err = p.Send([]any{subscribe, channel})
	if err == nil {
		_, err = p.Read()
	}
	switch {
	case wire.IsRefused(err):
		return 0, "SUBSCRIBE was refused: " + refusal(err, subscribe)
	case err != nil:
		return 0, "SUBSCRIBE was not answered: " + oneLine(err)
	}
	sent := time.Now()
	receivers, missing := n.ask(ctx, publish, channel, "doctor")
	switch {
	case missing != "":
		return 0, "PUBLISH was refused: " + missing
	case receivers == int64(0):
		return 0, "a message was not counted for its receiver"
	}
	if _, err := p.Read(); err != nil {
		return 0, "a message did not arrive within " + n.cfg.Timeout.String()
	}
	return time.Since(sent), ""
}
