package doctor

import (
	"context"
	"regexp"
	"slices"
	"strings"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// tryRights tries the rights for each use.
func (n *node) tryRights(ctx context.Context) {
	if n.isWrong {
		n.add("rights", Warn, "unknown: the server is a replica, which refuses all scripts")
	} else {
		n.e.tryRights(ctx, n.scratch, n.add)
	}
}

// tryRights tries the rights for each use, on a name.
func (e *examination) tryRights(ctx context.Context, name string, add func(check string, verdict Verdict, format string, args ...any)) {
	for _, use := range e.cfg.Uses {
		verdict, found := e.tryRight(ctx, name, use)
		add("rights", verdict, "%s: %s", use, found)
	}
}

// uses are the values of Config.Uses, with what the rooms declare.
var uses = []struct {
	name  string
	needs lock.Needs
}{
	{UseMutex, lock.MutexNeeds()},
	{UseOwned, lock.OwnedNeeds()},
	{UseElection, lock.NeedsOf(election.Election{})},
	{UsePartitions, lock.NeedsOf(partition.Set{})},
	{UseJob, lock.NeedsOf(singleton.Job{})},
}

// Uses returns the values of Config.Uses.
func Uses() (names []string) {
	for _, u := range uses {
		names = append(names, u.name)
	}
	return names
}

// CheckRights returns an error if the Redis user of the Client lacks a right that a use needs, one of
// Uses. It tries each command of its scripts at the server of the name, on a key of the name that never
// exists. So it leaves nothing behind. It does not try PUBLISH, which scripts can do without. If the
// server does not answer, it retries for up to 7 s.
func CheckRights(ctx context.Context, client *lockcore.Client, name, use string) error {
	i := slices.Index(Uses(), use)
	if i < 0 {
		return &noonlock.ConfigError{Package: "doctor", Field: "use", Value: input.Quote(use), Rule: "one of " + strings.Join(Uses(), ", ")}
	}
	return lock.Of(client).CheckRights(ctx, name, uses[i].needs)
}

func (e *examination) tryRight(ctx context.Context, name, use string) (Verdict, string) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	err := CheckRights(ctx, e.client, name, use)
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

// tryWrite writes a key, as a grant does. All uses need the right +set. The key is one that a job
// leaves to expire, so that no other right is needed to delete it. The search for keys is over.
func (n *node) tryWrite(ctx context.Context) {
	answer := n.askAll(ctx, conn.Command{Args: []any{"set", n.e.cfg.Prefix + ":{" + n.scratch + "}:ack", "1", "px", 1}})[0]
	switch missing := refusal(answer.Err, "set"); {
	case missing == "":
		n.add("write", OK, "the server has written a key with a TTL")
	case wire.HasCode(answer.Err, "NOPERM", "MOVED"): // other checks judge it
		n.add("write", Warn, "unknown: %s", missing)
	default:
		n.add("write", Fail, "the server refuses to write: %s", missing)
	}
}

// tryOptions tries the rights that only some options of the Client need. A missing one is a
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

// refusedCommand is the end of the error of a script that could not use a command.
var refusedCommand = regexp.MustCompile(`: ([A-Z]+)$`)
