package lock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// harmless has, for each command that CheckRights may try, calls that leave nothing behind, one a line. lock_rights
// replaces the word * by a key that does not exist, and the word fence by the key of the token counter. It stops at the
// first call that is refused. So a call that writes follows a call that deletes its result: without the right to
// delete, nothing is written.
var harmless = map[string]string{
	"DEL":              "DEL *",
	"EXISTS":           "EXISTS *",
	"GET":              "GET *\nGET fence", // a counter of another type fails here, and not at the grant
	"HDEL":             "HDEL * f",
	"HEXISTS":          "HEXISTS * f",
	"HGET":             "HGET * f",
	"HGETALL":          "HGETALL *",
	"HKEYS":            "HKEYS *",
	"HLEN":             "HLEN *",
	"HMGET":            "HMGET * f",
	"HSET":             "HDEL * f\nHSET * f v\nHDEL * f",
	"INFO":             "INFO server",
	"LLEN":             "LLEN *",
	"LPUSH":            "LTRIM * 1 0\nLPUSH * v\nLTRIM * 1 0",
	"LRANGE":           "LRANGE * 0 0",
	"LTRIM":            "LTRIM * 1 0",
	"PERSIST":          "PERSIST *",
	"PEXPIRE":          "PEXPIRE * 1",
	"PEXPIREAT":        "PEXPIREAT * 1",
	"PTTL":             "PTTL *",
	"PUBLISH":          "", // without messages, waiters are slow but correct
	"SET":              "SET * v XX",
	"TIME":             "TIME",
	"ZADD":             "ZADD * XX 1 m",
	"ZCARD":            "ZCARD *",
	"ZCOUNT":           "ZCOUNT * 0 0",
	"ZMSCORE":          "ZMSCORE * m",
	"ZRANGE":           "ZRANGE * 0 0",
	"ZRANGEBYSCORE":    "ZRANGEBYSCORE * 0 0",
	"ZRANK":            "ZRANK * m",
	"ZREM":             "ZREM * m",
	"ZREVRANGEBYSCORE": "ZREVRANGEBYSCORE * 0 0",
	"ZSCORE":           "ZSCORE * m",
}

// trials returns the calls that try each command of the scripts, and further commands.
func trials(scripts []*wire.Script, commands []string) (calls string, err error) {
	for _, s := range scripts {
		commands = slices.Concat(commands, s.Commands())
	}
	all := map[string]bool{}
	for _, command := range commands {
		call, known := harmless[command]
		if !known {
			return "", fmt.Errorf("lockcore: a script uses %s, which CheckRights cannot try", command)
		}
		all[call] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), "\n"), nil
}

// Needs are the keys, channels and commands that a package needs. Each package declares them once, for the check at
// the start of a program, package doctor and the table of docs/SECURITY.md. All packages also need the channels whose
// kind is ch, which notify processes.
type Needs struct {
	Prefix   string             // prefix of its names
	Parts    map[string]KeyPart // keys of a name, by part
	Channels []string           // kinds of its channels, without ch
	Commands []string           // commands outside of scripts, in capital letters
	Scripts  func(quorum bool) ([]*wire.Script, error)
}

// A Declared is embedded in a type of the API to connect it with its Needs, which N returns. As declared is not
// exported, the API has no method for them: only NeedsOf reads them.
type Declared[N interface{ Needs() Needs }] struct{}

func (Declared[N]) declared() Needs {
	var n N
	return n.Needs()
}

// NeedsOf returns the Needs of a type that embeds a Declared.
func NeedsOf(of interface{ declared() Needs }) Needs { return of.declared() }

// MutexNeeds returns the Needs of a mutex, whose scripts other packages use, too.
func MutexNeeds() Needs { return Needs{Parts: parts, Scripts: MutexScripts} }

// MutexScripts returns the scripts that acquire, renew and release the leases of a mutex.
func MutexScripts(quorum bool) ([]*wire.Script, error) {
	s, err := OwnScripts()
	switch {
	case err != nil:
		return nil, err
	case quorum:
		return []*wire.Script{s.quorumAcquire, s.quorumRenew, s.quorumLeave, s.quorumState, s.quorumJoin}, nil
	}
	return []*wire.Script{s.mutexAcquire, s.mutexRenew, s.mutexLeave}, nil
}

// OwnedNeeds returns the Needs of a lock with owners, and of a Semaphore.
func OwnedNeeds() Needs {
	return Needs{Parts: parts, Scripts: func(quorum bool) ([]*wire.Script, error) {
		s, err := OwnScripts()
		switch {
		case err != nil:
			return nil, err
		case quorum:
			return nil, OneServerError("a lock with owners, or a Semaphore,")
		}
		return []*wire.Script{s.ownedAcquire, s.ownedRenew, s.ownedLeave, s.ownedDowngrade, s.ownedResize}, nil
	}}
}

// CheckRights is Name.CheckRights for a name without the Prefix of needs.
func (c *Client) CheckRights(ctx context.Context, name string, needs Needs) error {
	n, err := c.Name(needs.Prefix+name, nil)
	if err != nil {
		return err
	}
	return OpError("check rights", name, n.CheckRights(ctx, needs))
}

// CheckRights tries each command that a package needs, without an effect, and reads the name's token counter. Without
// it, a missing right is found only when a script needs the right. PUBLISH is not tried: scripts can do without it.
func (n *Name) CheckRights(ctx context.Context, needs Needs) error {
	scripts, err := needs.Scripts(n.c.Quorum() != nil)
	if err != nil {
		return err
	}
	calls, err := trials(scripts, needs.Commands)
	if err != nil {
		return err
	}
	// With its source, it is an EVAL, and so tries the right to this command, which later scripts may need.
	r := n.c.scripts.rights.Call(wire.Keys(n.keys.key("never"), n.keys.fence), calls).WithSource()
	r = several.Counted(r, members.CountRights(r), nil) // for a quorum: all servers must allow the calls
	_, err = r.Number(n.Ask(ctx, r))
	return err
}
