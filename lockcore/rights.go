package lockcore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/noonlock/noonlock/internal/wire"
)

// harmless has, for each command of a script that CheckRights may get, calls that leave nothing
// behind. They use the key *, which does not exist, and the counter of tokens, fence. A call that
// writes follows the call that deletes its result: if the user may not delete, nothing is written.
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
	"ZREM":             "ZREM * m",
	"ZREVRANGEBYSCORE": "ZREVRANGEBYSCORE * 0 0",
	"ZSCORE":           "ZSCORE * m",
}

// trials returns the calls that try each command of the scripts.
func trials(scripts []*wire.Script) (calls string, err error) {
	all := map[string]bool{}
	for _, s := range scripts {
		for _, command := range s.Commands() {
			call, known := harmless[command]
			if !known {
				return "", fmt.Errorf("lockcore: script %s uses %s, which CheckRights cannot try", s.Name, command)
			}
			all[call] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), "\n"), nil
}

func (e *nameEngine) LockScripts() []*wire.Script {
	return e.c.topology.scripts()
}

// CheckRights returns an error if the Redis user lacks a right that the locks of a kind need:
// LockMutex or LockReadWrite. It tries each command of their scripts at the server
// of the name, on a key of the name that never exists. So it leaves nothing behind. It does not try
// PUBLISH, which scripts can do without. If the server does not answer, it retries for up to 6.7 s.
func (c *Client) CheckRights(ctx context.Context, name string, kind LockKind) error {
	terms, err := c.terms(LeaseConfig{})
	if err == nil {
		err = checkUserName(name)
	}
	if err != nil {
		return err
	}
	e := &nameEngine{c: c, keys: c.keys.lock(name), terms: terms}
	scripts := e.LockScripts()
	switch kind {
	case LockMutex:
	case LockReadWrite:
		if err := c.topology.one("a lock with owners"); err != nil {
			return err
		}
		s := c.scripts
		scripts = []*wire.Script{s.ownedAcquire, s.ownedRenew, s.ownedLeave, s.ownedDowngrade}
	default:
		return refuse("kind", "LockMutex or LockReadWrite", kind)
	}
	return opError("check rights", name, e.CheckRights(ctx, scripts...))
}

func (e *nameEngine) CheckRights(ctx context.Context, scripts ...*wire.Script) error {
	calls, err := trials(scripts)
	if err != nil {
		return err
	}
	// As an EVAL: a server that does not know a script needs its source.
	r := e.c.scripts.lockRights.Call(wire.Keys(e.keys.never, e.keys.fence), calls).WithSource()
	r = r.Counted(countRights(r), nil)
	_, err = r.Number(e.Ask(ctx, r))
	return err
}
