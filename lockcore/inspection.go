package lockcore

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A LockKind is the kind of lock that a name is used for.
type LockKind string

// The kinds of an Inspection.
const (
	LockFree      LockKind = "free"
	LockMutex     LockKind = "mutex"     // a Mutex, or the lock of an election
	LockReadWrite LockKind = "readwrite" // an RWMutex or a ReentrantMutex
	LockSemaphore LockKind = "semaphore"
	LockForeign   LockKind = "foreign" // a key that this library did not write
)

// An Inspection describes the lock of a name at one moment. It may be out of date when
// Inspect returns. Use it for diagnosis, not for decisions in a program.
type Inspection struct {
	Name    string    `json:"name"`
	Kind    LockKind  `json:"kind"`
	Holders []Holder  `json:"holders"`
	Waiters []Waiter  `json:"waiters"`         // in order of arrival
	Now     time.Time `json:"now,omitzero"`    // time at the server; zero on a quorum
	Slots   int       `json:"slots,omitempty"` // size of a Semaphore, also while it is free

	// NoTTL is true if the key of the lock has no TTL, because another program has written the
	// key. Waiters may wait for ever; see ForceRelease.
	NoTTL bool `json:"no_ttl,omitempty"`

	// Servers are the servers of a quorum, in the order of NewQuorum. Holders then has the lease in a majority of the
	// answers, with its shortest TTL there.
	Servers []ServerView `json:"-"`
}

// A ServerView is the answer of one server of a quorum to Inspect.
type ServerView struct {
	Address string
	Err     error // without an answer; the other fields are zero

	// Member is true if the server has its data. Otherwise, it grants nothing until a Client has let it in.
	Member bool
	// List is the number of its list of servers, zero without a list.
	List int
	// Waits is the rest of the time in which the server grants nothing after a loss of data.
	Waits time.Duration
	// Kind and Holders are as in an Inspection. A holder may be a try to acquire the lock.
	Kind    LockKind
	Holders []Holder
}

// A Holder is one lease of a name.
type Holder struct {
	Identity string `json:"identity,omitempty"` // empty if another program wrote the key
	Owner    string `json:"owner,omitempty"`    // owner of a ReentrantMutex or RWMutex
	Reads    bool   `json:"reads,omitempty"`    // whether it is a read lease of an RWMutex
	Slot     *int   `json:"slot,omitempty"`     // slot of a Semaphore; otherwise nil
	Token    uint64 `json:"token,omitempty"`    // 0 if another program wrote the key, or the token is not stored
	// Since is the time of the grant, by the server's clock. For an owner, it is the time of the first of
	// the present leases. It is read from the token, and zero if the token is ahead of the clock.
	Since time.Time     `json:"since,omitzero"`
	TTL   time.Duration `json:"-"` // negative if the key has no TTL; in JSON it is ttl_ms
}

// MarshalJSON implements json.Marshaler.
func (h Holder) MarshalJSON() ([]byte, error) {
	type fields Holder
	return json.Marshal(struct {
		fields
		TTL int64 `json:"ttl_ms,omitempty"`
	}{fields(h), max(0, h.TTL.Milliseconds())})
}

// A Waiter is one attempt in the queue.
type Waiter struct {
	Identity string `json:"identity,omitempty"`
	Owner    string `json:"owner,omitempty"` // owner of a ReentrantMutex or RWMutex
	Reads    bool   `json:"reads,omitempty"` // whether it waits to read an RWMutex
	// Since is the time when the waiter joined the queue or was promoted, by the server's clock.
	Since time.Time `json:"since,omitzero"`
	// Promoted is true if Election.TransferTo moved the waiter past earlier candidates.
	Promoted bool `json:"promoted,omitempty"`
	// Alive is false if the waiter has missed its last three checks. The queue passes over it.
	Alive bool `json:"alive"`
}

// newInspection returns the Inspection of a free lock. In JSON, its lists are empty, not null.
func newInspection(name string) Inspection {
	return Inspection{Name: name, Kind: LockFree, Holders: []Holder{}, Waiters: []Waiter{}}
}

// An inspected is an Inspection with the stored values, which are secret.
type inspected struct {
	Inspection
	stored   string   // kind in the answer of lock_inspect
	attempts []string // values of the holders
}

func (seen *inspected) read(req wire.Request, answer any) error {
	list, _ := answer.([]any)
	if len(list) != 6 {
		return req.OddReply(answer)
	}
	left, ok1 := list[1].(int64)
	holders, ok2 := list[2].([]any)
	line, ok3 := list[3].([]any)
	us, ok4 := list[4].(int64)
	size, _ := list[5].(int64)
	seen.stored, seen.Now = wire.Text(list[0]), time.UnixMicro(us).UTC()
	if !ok1 || !ok2 || !ok3 || !ok4 || !seen.readHolders(holders) || !seen.readWaiters(line) {
		return req.OddReply(answer)
	}
	seen.Kind = lockKindOf(seen.stored, seen.attempts)
	if seen.Kind == LockSemaphore || seen.Kind == LockFree {
		seen.Slots = int(size)
	}
	seen.NoTTL = seen.stored != "" && left == -1
	return nil
}

func lockKindOf(stored string, attempts []string) LockKind {
	switch stored {
	case "":
		return LockFree
	case lock.OwnedTag:
		return LockReadWrite
	case lock.SemaphoreTag:
		return LockSemaphore
	case "string":
		if len(attempts) == 1 {
			if _, ours := lock.ReadValue(attempts[0]); ours {
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
		h := Holder{Reads: wire.Text(rows[1]) == lock.ModeRead, TTL: time.Duration(left) * time.Millisecond}
		if slot, err := strconv.Atoi(wire.Text(rows[1])); err == nil {
			h.Slot = &slot
		}
		if p, ours := lock.ReadValue(attempt); ours {
			h.Identity, h.Owner = p.Identity, p.Owner
			h.Token, _ = strconv.ParseUint(wire.Text(rows[3]), 10, 64) // 0 if the token is not stored
			// A token is the time of the grant in µs, unless the counter was ahead: see part_token.lua.
			// Several grants in one µs put it ahead by some µs.
			if at := time.UnixMicro(int64(h.Token)).UTC(); h.Token > 0 && at.Before(seen.Now.Add(time.Millisecond)) {
				h.Since = at
			}
		}
		seen.Holders = append(seen.Holders, h)
		seen.attempts = append(seen.attempts, attempt)
	}
	return len(rows) == 0
}

func (seen *inspected) readWaiters(rows []any) bool {
	for ; len(rows) >= 3; rows = rows[3:] {
		at, err := strconv.ParseFloat(wire.Text(rows[1]), 64)
		if err != nil {
			return false
		}
		w := Waiter{Since: lock.QueueTime(at), Promoted: at < 0, Alive: wire.Text(rows[2]) == "1"}
		if p, ours := lock.ReadValue(wire.Text(rows[0])); ours {
			w.Identity, w.Owner = p.Identity, p.Owner
			w.Reads = p.Reads()
		}
		seen.Waiters = append(seen.Waiters, w)
	}
	return len(rows) == 0
}
