package lockcore

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// A LockKind says what a name is used as.
type LockKind string

// The kinds of an Inspection.
const (
	LockFree      LockKind = "free"
	LockMutex     LockKind = "mutex"     // a Mutex, an election's lock or a Daemon's
	LockReentrant LockKind = "reentrant" // a ReentrantMutex
	LockReadWrite LockKind = "readwrite" // an RWMutex
	LockForeign   LockKind = "foreign"   // a key that this library did not write
)

// An Inspection is how a name stood at one moment. It is for people: what it says may
// be over when it arrives.
type Inspection struct {
	Name    string
	Kind    LockKind
	Holders []Holder
	Line    []Waiter // in order of arrival

	// Endless: the key has no TTL, which this library never leaves behind. Who waits
	// may wait for ever; see ForceRelease.
	Endless bool
}

// A Holder is one lease of a name.
type Holder struct {
	Identity string // empty: a foreign client's
	Owner    string // of a ReentrantMutex or RWMutex
	Reads    bool   // an RWMutex, for reading
	Token    uint64 // 0: a foreign client's
	TTL      time.Duration
}

// A Waiter is one attempt in line.
type Waiter struct {
	Identity string
	Owner    string // of a ReentrantMutex or RWMutex
	Reads    bool   // an RWMutex, for reading
	Since    time.Time
	// Alive: it has been heard of lately. One that has not is passed over.
	Alive bool
}

// Inspect tells who holds the lock of a name, of whatever kind, and who stands in line
// for it. It also takes the names that runners use: election/NAME and job/daemon/NAME.
func (c *Client) Inspect(ctx context.Context, name string) (Inspection, error) {
	seen, err := c.inspect(ctx, name)
	if err != nil {
		return Inspection{}, opError("lockcore: inspect", name, err)
	}
	return seen.Inspection, nil
}

// An inspected is an Inspection with what may not be shown.
type inspected struct {
	Inspection
	stored   string   // the kind as the script tells it
	attempts []string // of the holders
}

func (c *Client) inspect(ctx context.Context, name string) (inspected, error) {
	seen := inspected{Inspection: Inspection{Name: name}}
	if ctx == nil {
		return seen, refuse("ctx", "a context", "%s", "nil")
	}
	if err := checkName("name", name); err != nil {
		return seen, err
	}
	k := c.keys.lock(name)
	req := c.scripts.lockInspect.Call([]string{k.lock, k.fence, k.queue, k.seen})
	answer, err := c.request(ctx, req, defaultTTL/5, 2*defaultTTL/3)
	if err != nil {
		return seen, err
	}
	list, _ := answer.([]any)
	if len(list) != 4 {
		return seen, req.OddReply(answer)
	}
	left, ok1 := list[1].(int64)
	holders, ok2 := list[2].([]any)
	line, ok3 := list[3].([]any)
	seen.stored = wire.Text(list[0])
	if !ok1 || !ok2 || !ok3 || !seen.readHolders(holders) || !seen.readLine(line) {
		return seen, req.OddReply(answer)
	}
	seen.Kind = lockKindOf(seen.stored, seen.attempts)
	seen.Endless = seen.stored != "" && left == -1
	return seen, nil
}

func lockKindOf(stored string, attempts []string) LockKind {
	switch stored {
	case "":
		return LockFree
	case reentrantKind:
		return LockReentrant
	case readWriteKind:
		return LockReadWrite
	case "string":
		if len(attempts) == 1 {
			if _, ours := parseAttempt(attempts[0]); ours {
				return LockMutex
			}
		}
	}
	return LockForeign
}

func (seen *inspected) readHolders(rows []any) bool {
	for ; len(rows) >= 4; rows = rows[4:] {
		attempt := wire.Text(rows[0])
		left, err := strconv.ParseInt(wire.Text(rows[2]), 10, 64)
		if err != nil {
			return false
		}
		h := Holder{Reads: wire.Text(rows[1]) == modeRead, TTL: time.Duration(left) * time.Millisecond}
		if p, ours := parseAttempt(attempt); ours {
			h.Identity, h.Owner = p.identity, p.owner()
			h.Token, _ = strconv.ParseUint(wire.Text(rows[3]), 10, 64) // 0: the counter is gone
		}
		seen.Holders = append(seen.Holders, h)
		seen.attempts = append(seen.attempts, attempt)
	}
	return len(rows) == 0
}

func (seen *inspected) readLine(rows []any) bool {
	for ; len(rows) >= 3; rows = rows[3:] {
		at, err := strconv.ParseFloat(wire.Text(rows[1]), 64)
		if err != nil {
			return false
		}
		w := Waiter{Since: placeTime(at), Alive: wire.Text(rows[2]) == "1"}
		if p, ours := parseAttempt(wire.Text(rows[0])); ours {
			w.Identity, w.Owner = p.identity, p.owner()
			k, owned := p.kind.(ownedKind)
			w.Reads = owned && k.mode == modeRead
		}
		seen.Line = append(seen.Line, w)
	}
	return len(rows) == 0
}

func (p parsedAttempt) owner() string {
	k, _ := p.kind.(ownedKind)
	return k.owner
}

// ForceRelease takes the lock of a name from whoever holds it now, of whatever kind,
// and answers what it found. Its holders notice at their next renewal, within a third
// of their TTL unless configured otherwise, with ErrLeaseLost; until then two may
// work, and only the fencing token tells them apart. Who stands in line is served.
//
// It is for people who know that a holder is stuck, or that a foreign client has left
// a key without TTL behind. It is logged and counted. Who comes to hold the lock while
// the call is under way keeps it; but a foreign key is taken for the one that was found
// if it has the same value, or if both are no string and no lock.
func (c *Client) ForceRelease(ctx context.Context, name string) (Inspection, error) {
	const op = "lockcore: force release"
	seen, err := c.inspect(ctx, name)
	if err != nil {
		return Inspection{}, opError(op, name, err)
	}
	if seen.Kind == LockFree {
		return seen.Inspection, nil
	}
	k := c.keys.lock(name)
	req := c.scripts.lockForce.Call([]string{k.lock, k.queue}, seen.stored, strings.Join(seen.attempts, "\n"))
	answer, err := c.request(ctx, req, defaultTTL/5, 2*defaultTTL/3)
	if err != nil {
		return seen.Inspection, opError(op, name, err)
	}
	if n, ok := answer.(int64); !ok || n < 0 {
		return seen.Inspection, opError(op, name, req.OddReply(answer))
	} else if n == 0 {
		return seen.Inspection, nil // they have let go by themselves
	}
	c.metrics.forced.Inc()
	identities := make([]string, 0, len(seen.Holders))
	for _, h := range seen.Holders {
		identities = append(identities, h.Identity)
	}
	c.log.Info("lock released by force", "name", name, "kind", string(seen.Kind), "holders", identities)
	return seen.Inspection, nil
}
