package doctor

import (
	"context"
	"crypto/rand"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
)

func (n *node) tryRights(ctx context.Context) {
	if n.notPrimary {
		n.add("rights", Warn, "unknown: the server is a replica, which refuses all scripts")
		return
	}
	for _, use := range n.cfg.Uses {
		verdict, found := tryRight(ctx, n.client, n.cfg.Timeout, n.scratch, use)
		n.add("rights", verdict, "%s: %s", use, found)
	}
}

func tryRight(ctx context.Context, client *lockcore.Client, timeout time.Duration, name, use string) (Verdict, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := CheckRights(ctx, client, name, use)
	switch {
	case err == nil:
		return OK, "the user has all rights"
	case lockcore.IsTemporary(err), wire.MayRetryLater(err), ctx.Err() != nil:
		return Warn, "unknown: " + oneLine(err)
	}
	text := oneLine(err)
	if found := refusedCommand.FindStringSubmatch(text); found != nil && strings.Contains(text, "NOPERM ") {
		text = "the user lacks the right +" + strings.ToLower(found[1])
	}
	return Fail, text
}

// tryWrite writes a key, as a grant does. All uses need the right +set. The key expires, because deleting it would
// need another right. searchKeys runs before, and so does not find it.
func (n *node) tryWrite(ctx context.Context) {
	answer := n.askAll(ctx, conn.Command{Args: []any{"set", n.cfg.Prefix + ":{" + n.scratch + "}:ack", "1", "px", 1}})[0]
	switch problem := refusal(answer.Err, "set"); {
	case problem == "":
		n.add("write", OK, "the server has written a key with a TTL")
	case wire.HasCode(answer.Err, "NOPERM", "MOVED"): // the checks of rights and of the role judge these
		n.add("write", Warn, "unknown: %s", problem)
	default:
		n.add("write", Fail, "the server refuses to write: %s", problem)
	}
}

// tryOptions tries the rights that only some options of the Client need: LockDelay needs INFO, and MinReplicas
// needs WAIT. A missing right is a warning, because most programs do not use these options.
func (n *node) tryOptions(ctx context.Context) {
	if n.infoProblem != "" {
		n.add("rights", Warn, "LockDelay: %s", n.infoProblem)
	}
	if n.replicas == 0 && !n.sentinel {
		return
	}
	if _, problem := n.ask(ctx, "wait", 0, 1); problem != "" {
		n.add("rights", Warn, "MinReplicas: %s", problem)
	} else {
		n.add("rights", OK, "MinReplicas: the user has the right +wait")
	}
}

// refusedCommand matches the end of the error of a script that could not use a command.
var refusedCommand = regexp.MustCompile(`: ([A-Z]+)$`)

// tryMessages sends and receives a message on a channel of each kind that the uses need, until the first problem.
func (n *node) tryMessages(ctx context.Context) {
	kinds := []string{"ch"}
	for _, u := range useNeeds {
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
	receivers, problem := n.ask(ctx, publish, channel, "doctor")
	switch {
	case problem != "":
		return 0, "PUBLISH was refused: " + problem
	case receivers == int64(0):
		return 0, "a message was not counted for its receiver"
	}
	if _, err := p.Read(); err != nil {
		return 0, "a message did not arrive within " + n.cfg.Timeout.String()
	}
	return time.Since(sent), ""
}
