package lockcore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// An Operator is the author of a change, such as user@host, and the reason. Each is at most 200
// bytes of UTF-8 without control characters. The default of Who is the identity of the Client.
type Operator struct {
	Who    string `json:"who"`
	Reason string `json:"reason,omitempty"`
}

// WithOperator returns a context for the calls of an operator: Client.ForceRelease, the methods of a singleton.Job, and
// Resign and TransferTo of an election.Election. They log and store the Operator with each change, and
// return a *noonlock.ConfigError for an Operator that breaks its rule.
func WithOperator(ctx context.Context, by Operator) context.Context {
	return lock.WithOperator(ctx, by.Who, by.Reason)
}

// ForceRelease releases the lock of a name, of any kind, for the holders of an Inspection,
// and returns how many leases it has released. Waiters are notified and served in order.
// A lease that began after the Inspection is not released: if the lock has only other holders, the error is
// ErrChanged. A holder is recognized by its token.
//
// The leases of the old holders end at their next renewal. The cause matches ErrForced, whose
// text has the operator, and the holder logs it. Until then, normally for up to RenewInterval,
// old and new holders may both work, and only fencing tokens protect the resource.
//
// ForceRelease is meant for operators: a holder is stuck, or another program has left a
// key without TTL. The call is logged and counted, with the Operator of ctx. A key of another program is deleted as a
// whole. If it is replaced during the call, the new key is deleted too if the values are equal, or if
// neither key is a string. If the error matches ErrUnknown, the lock may have been released: no reply arrived, or the
// request was sent again and found nothing to release.
func (c *Client) ForceRelease(ctx context.Context, seen Inspection) (released int, err error) {
	const op = "force release"
	who, reason, err := c.room().Operator(ctx)
	if err == nil {
		err = c.room().RequireOneServer("ForceRelease")
	}
	if err != nil {
		return 0, lock.OpError(op, seen.Name, err)
	}
	now, err := c.inspect(ctx, seen.Name)
	if err != nil {
		return 0, lock.OpError(op, seen.Name, err)
	}
	if now.Kind == LockFree {
		return 0, nil // the holders have released it
	}
	identities := now.only(seen)
	if len(now.attempts) == 0 && (now.Kind != LockForeign || seen.Kind != LockForeign) {
		return 0, lock.OpError(op, seen.Name, ErrChanged)
	}
	req := c.room().Force(seen.Name, now.stored, now.attempts, who, reason)
	answer, repeated, err := c.room().Act(ctx, seen.Name, req, lock.AskFor, lock.AskWithin, func(any) error { return nil })
	n, err := req.Number(answer, err)
	if err == nil && n == 0 && repeated {
		err = ErrUnknown // the first try may have released them
	}
	if err != nil || n == 0 {
		return 0, lock.OpError(op, seen.Name, err)
	}
	c.room().CountForced()
	c.room().Logger().Info("lock was force-released", "name", seen.Name, "kind", string(now.Kind), "holders", identities, "by", who, "reason", reason)
	return int(n), nil
}

// A ForcedRelease is one call of ForceRelease that has released a lock.
type ForcedRelease struct {
	At     time.Time `json:"at"` // by the server's clock
	By     Operator  `json:"by"`
	Leases int       `json:"leases"` // number of released leases
}

// ForcedReleases returns the forced releases of the lock of a name, newest first. The server
// keeps the newest 100, for a week after the last one. On a quorum, the error is a *noonlock.ConfigError.
func (c *Client) ForcedReleases(ctx context.Context, name string) ([]ForcedRelease, error) {
	const op = "list forced releases of"
	err := c.room().RequireOneServer("ForcedReleases")
	if err == nil {
		err = lock.CheckName("name", name)
	}
	if err != nil {
		return nil, lock.OpError(op, name, err)
	}
	req := c.room().Releases(name)
	answer, err := c.ask(ctx, name, req)
	if err != nil {
		return nil, lock.OpError(op, name, err)
	}
	list, ok := answer.([]any)
	if !ok {
		return nil, lock.OpError(op, name, req.OddReply(answer))
	}
	var all []ForcedRelease
	for _, act := range list {
		parts := strings.SplitN(wire.Text(act), "\n", 4)
		if len(parts) != 4 {
			return all, lock.OpError(op, name, req.OddReply(answer))
		}
		at, err1 := strconv.ParseInt(parts[0], 10, 64)
		leases, err2 := strconv.Atoi(parts[1])
		if err1 != nil || err2 != nil {
			return all, lock.OpError(op, name, req.OddReply(answer))
		}
		all = append(all, ForcedRelease{At: time.UnixMilli(at).UTC(), By: Operator{Who: parts[2], Reason: parts[3]}, Leases: leases})
	}
	return all, nil
}

// only removes the attempts of holders that an earlier Inspection does not have. It returns the identities of the
// holders that remain.
func (seen *inspected) only(before Inspection) (identities []string) {
	var attempts []string
	for i, h := range seen.Holders {
		if seen.Kind == before.Kind && slices.ContainsFunc(before.Holders, h.same) {
			attempts = append(attempts, seen.attempts[i])
			identities = append(identities, h.Identity)
		}
	}
	seen.attempts = attempts
	return identities
}

// same reports whether two Holders are one lease, or leases of one owner with one token. Since
// depends on the token and the time of the Inspection.
func (h Holder) same(other Holder) bool {
	h.TTL, other.TTL = 0, 0
	h.Since, other.Since = time.Time{}, time.Time{}
	h.Slot, other.Slot = nil, nil // a token has one slot
	return h == other
}
