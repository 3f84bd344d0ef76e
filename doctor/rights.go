package doctor

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
)

// tryRights tries the rights for each use.
func (n *node) tryRights(ctx context.Context) {
	if n.isWrong {
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

// tryWrite writes a key, as a grant does. All uses need the right +set. Jobs also let this key
// expire, so that no other right is needed to delete it. searchKeys comes before.
func (n *node) tryWrite(ctx context.Context) {
	answer := n.askAll(ctx, conn.Command{Args: []any{"set", n.cfg.Prefix + ":{" + n.scratch + "}:ack", "1", "px", 1}})[0]
	switch missing := refusal(answer.Err, "set"); {
	case missing == "":
		n.add("write", OK, "the server has written a key with a TTL")
	case wire.HasCode(answer.Err, "NOPERM", "MOVED"): // other checks judge it
		n.add("write", Warn, "unknown: %s", missing)
	default:
		n.add("write", Fail, "the server refuses to write: %s", missing)
	}
}

// tryOptions tries the rights that only some options of the Client need. A missing right is a
// warning, because most programs do not use these options.
func (n *node) tryOptions(ctx context.Context) {
	if n.infoMissing != "" {
		n.add("rights", Warn, "LockDelay: %s", n.infoMissing)
	}
	if n.replicas == 0 && !n.sentinel {
		return
	}
	if _, missing := n.ask(ctx, "wait", 0, 1); missing != "" {
		n.add("rights", Warn, "MinReplicas: %s", missing)
	} else {
		n.add("rights", OK, "MinReplicas: the user has the right +wait")
	}
}

// refusedCommand matches the end of the error of a script that could not use a command.
var refusedCommand = regexp.MustCompile(`: ([A-Z]+)$`)
