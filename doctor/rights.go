package doctor

import (
	"context"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// tryRights tries the rights for each use at each primary that has answered. A quorum is tried as
// a whole.
func (e *examination) tryRights(ctx context.Context) {
	type answer struct {
		verdict Verdict
		found   string
	}
	var all sync.WaitGroup
	for _, n := range e.nodes {
		switch {
		case !n.reachable || n.scratch == "":
			continue
		case n.isWrong:
			n.add(checkRights, Warn, "unknown: the server is a replica, which refuses all scripts")
			continue
		}
		all.Go(func() {
			answers := make([]answer, len(e.cfg.Uses))
			var uses sync.WaitGroup
			for i, use := range e.cfg.Uses {
				uses.Go(func() { answers[i].verdict, answers[i].found = e.tryRight(ctx, n.scratch, use) })
			}
			uses.Wait()
			for i, use := range e.cfg.Uses {
				found := use + ": " + answers[i].found
				if e.quorum {
					e.add(checkRights, answers[i].verdict, found)
				} else {
					n.add(checkRights, answers[i].verdict, "%s", found)
				}
			}
		})
		if e.quorum {
			break
		}
	}
	all.Wait()
}

// needs returns what a use needs, as its room declares it.
func needs(use string) (lock.Needs, error) {
	switch use {
	case UseMutex:
		return lock.MutexNeeds(), nil
	case UseOwned:
		return lock.OwnedNeeds(), nil
	case UseElection:
		return election.Needs(), nil
	case UseJob:
		return singleton.Needs(), nil
	}
	return lock.Needs{}, &ConfigError{Field: "use", Value: input.Quote(use), Rule: "one of " + strings.Join(Uses(), ", ")}
}

// CheckRights returns an error if the Redis user of the Client lacks a right that a use needs, one of
// Uses. It tries each command of its scripts at the server of the name, on a key of the name that never
// exists. So it leaves nothing behind. It does not try PUBLISH, which scripts can do without. If the
// server does not answer, it retries for up to 7 s.
func CheckRights(ctx context.Context, client *lockcore.Client, name, use string) error {
	of, err := needs(use)
	if err != nil {
		return err
	}
	return (*lock.Client)(client).CheckRights(ctx, name, of)
}

func (e *examination) tryRight(ctx context.Context, name, use string) (Verdict, string) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	err := CheckRights(ctx, e.client, name, use)
	switch {
	case err == nil:
		return OK, "the user has all rights"
	case lockcore.IsTemporary(err), isExhausted(err), ctx.Err() != nil:
		return Warn, "unknown: " + oneLine(err)
	}
	return Fail, missingRight(oneLine(err))
}

// tryWrite writes a key, as a grant does. All uses need the right +set. The key is one that a job
// leaves to expire, so that no other right is needed to delete it. The search for keys is over.
func (n *node) tryWrite(ctx context.Context) error {
	if n.scratch == "" {
		return nil // a primary without slots
	}
	key := n.e.cfg.Prefix + ":{" + n.scratch + "}:ack"
	err := n.ask(ctx, func(ctx context.Context) error { return n.rdb.Set(ctx, key, "1", time.Millisecond).Err() })
	switch {
	case err == nil:
		n.add(checkWrite, OK, "the server has written a key with a TTL")
	case !isRefusal(err):
		return err
	case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "MOVED"): // other checks judge these
		n.add(checkWrite, Warn, "unknown: %s", refusal("set", err))
	default:
		n.add(checkWrite, Fail, "the server refuses to write: %s", oneLine(err))
	}
	return nil
}

// tryOptions tries the rights that only some options of the Client need. A missing one is a
// warning, because most programs do not use these options.
func (n *node) tryOptions(ctx context.Context) error {
	if n.e.quorum {
		return nil // it refuses both options
	}
	if n.infoErr != nil {
		n.add(checkRights, Warn, "LockDelay: %s", refusal("info", n.infoErr))
	}
	if n.replicas == 0 && !n.sentinel {
		return nil
	}
	err := n.ask(ctx, func(ctx context.Context) error { return n.rdb.Wait(ctx, 0, time.Millisecond).Err() })
	switch {
	case err == nil:
		n.add(checkRights, OK, "MinReplicas: the user has the right +wait")
	case isRefusal(err):
		n.add(checkRights, Warn, "MinReplicas: %s", refusal("wait", err))
	default:
		return err
	}
	return nil
}

// isExhausted reports whether the server refuses all writes, because it has too little memory,
// disk or replicas. Other checks say so.
func isExhausted(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") || redis.HasErrorPrefix(err, "MISCONF") || redis.HasErrorPrefix(err, "NOREPLICAS")
}

// refusedCommand is the end of the error of a script that could not use a command.
var refusedCommand = regexp.MustCompile(`: ([A-Z]+)$`)

func missingRight(text string) string {
	if found := refusedCommand.FindStringSubmatch(text); found != nil && strings.Contains(text, "NOPERM ") {
		return "the user lacks the right +" + strings.ToLower(found[1])
	}
	return text
}
