// Package engine is what lockcore offers to the packages of this module that are built
// on leases: it sends their scripts, keeps leases of their kinds, and hears their
// messages. A lockcore.Client makes an Engine for one name. Users have lockcore's locks
// instead.
//
// The package that uses an Engine owns its scripts and spells its keys and channels. It
// gives a Kind down, which says by which of its scripts a lease is renewed and given
// back; nothing else calls upwards.
package engine

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/wire"
)

// An Engine works on one name. It is safe for concurrent use.
type Engine interface {
	// Key returns the key of a part of the name: <prefix>:{<name>}:<part>.
	Key(part string) string
	// Channel returns <prefix>:<rest>, for a channel. Channels are no keys, and may be of
	// any name.
	Channel(rest string) string
	// NewID returns an identifier that this process never uses again and no other
	// process can guess.
	NewID() string

	// Identity is shown as the holder of the name's leases.
	Identity() string
	// TTL is that of the name's leases.
	TTL() time.Duration
	// Timeout is how long one request may go unanswered.
	Timeout() time.Duration

	// Ask sends a request and repeats it until it is answered, for two Timeouts at most.
	Ask(ctx context.Context, r wire.Request) (any, error)
	// Persist sends a request and repeats it until it is answered or ctx ends, also while
	// the server is short of memory or replicas.
	Persist(ctx context.Context, r wire.Request) (any, error)
	// Once sends a request once.
	Once(ctx context.Context, r wire.Request) (any, error)

	// Lock waits in the queue of the name's mutex and holds it. A nil Kind is a mutex.
	Lock(ctx context.Context, kind Kind) (Lease, error)
	// Hold makes a lease that is acquired by a request of the caller's. The request is
	// repeated until it is answered, for two Timeouts at most. read returns the token if
	// the answer is a grant, and an error if not; with both, the grant is given back.
	Hold(ctx context.Context, kind Kind, acquire func(Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (Lease, error)

	// Queue returns the attempts that wait for the name's mutex, next holder first.
	Queue(ctx context.Context) ([]Waiter, error)
	// Promote moves the first waiter of an identity to the head of the queue, if lease
	// still holds the name.
	Promote(ctx context.Context, lease Lease, identity string) (Promotion, error)

	// Watch calls nudge when a message arrives on a channel, and when messages may have
	// been missed. nudge must return at once. Messages may be lost.
	Watch(channel string, nudge func()) (stop func())
	// Background runs a task that the Client's Close waits for. It returns false if
	// Close no longer waits.
	Background(task func(context.Context)) bool
	// Shared returns the value that all Engines of the Client have under a key, created
	// at the first use.
	Shared(key any, create func() any) any
	// Now is elapsed time by the clock of the Client's leases.
	Now() time.Duration
	// Logger is the Client's.
	Logger() logr.Logger
	// Expect makes the metrics of a kind of lease, so that they are there before the
	// first one.
	Expect(label string)
}

// A Kind says how a lease is renewed and given back.
type Kind interface {
	// Label is the lease's kind in metrics and logs.
	Label() string
	// Renewal returns the request that extends a hold to its TTL from now. Its answer is
	// 1, or 0 if the hold is lost. ok is false if a mutex's is to be sent.
	Renewal(a Attempt) (r wire.Request, ok bool)
	// Release returns the request that gives an attempt back and stops requests of it
	// that are still under way. Its answer is 1, or 0 if there was nothing to give back.
	// ok is false if a mutex's is to be sent.
	Release(a Attempt) (r wire.Request, ok bool)
}

// An Attempt is one wish for a lease.
type Attempt struct {
	ID    string // as from NewID
	Value string // what the server stores for it; secret
	TTL   time.Duration
	Bury  time.Duration // for how long requests of it may be under way
}

// A Lease is a lease of a Kind. It behaves as a lockcore.Lease, and has the methods that
// only runners need.
type Lease interface {
	Name() string
	Token() uint64
	Remaining() time.Duration
	Context() context.Context
	Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc)
	Unlock(ctx context.Context) error

	// Value is the Attempt's.
	Value() string
	// Err returns why the lease has ended, nil while it is valid.
	Err() error
	// Overdue returns for how long the lease has been over, 0 while it is valid.
	Overdue() time.Duration
	// Abort ends the lease here and leaves it to its TTL at the server. The cause is
	// lockcore.ErrLeaseExpired joined with reason. It returns false if the lease had
	// ended before.
	Abort(reason error) bool
	// Lose ends the lease because the server has said that it is not held any more.
	Lose()
	// Finish ends the lease, with lockcore.ErrReleased, after the caller's own script has
	// ended it at the server.
	Finish()
}

// A Waiter is one attempt in the queue.
type Waiter struct {
	Identity string
	Since    time.Time // by the server's clock, when it joined or was promoted
	Promoted bool
}

// A Promotion is what became of a Promote.
type Promotion int

// The results of Promote.
const (
	Promoted Promotion = iota
	NoWaiter           // nobody of that identity waits
	NotHeld            // the lease has ended
)
