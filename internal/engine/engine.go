// Package engine is the interface between lockcore and the packages of this module that
// build on leases. An Engine sends their scripts, keeps leases of their kinds, and
// delivers their messages. A lockcore.Client creates an Engine for one name. Users of the
// module use lockcore's locks instead.
//
// The package that uses an Engine owns its scripts, keys and channels. It passes a Kind,
// which names the scripts that renew and release a lease. Nothing else calls upwards.
package engine

import (
	"context"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/wire"
)

// The errors of lockcore with the same names.
var (
	ErrClosed        = wire.ErrClosed
	ErrNotReplicated = wire.ErrNotReplicated
)

// IsTemporary is lockcore.IsTemporary.
func IsTemporary(err error) bool { return wire.IsTemporary(err) }

// Log writes a failure: at logr's error level if it needs an operator, otherwise as
// information.
func Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	wire.Log(log, err, message, keysAndValues...)
}

// The prefixes of the names that jobs and elections use. lockcore refuses them for users' locks,
// even in a program that imports neither package: another program may use the same server.
const (
	JobNames      = "job/"
	ElectionNames = "election/"
)

// IsReserved reports whether jobs or elections use the name.
func IsReserved(name string) bool {
	return strings.HasPrefix(name, JobNames) || strings.HasPrefix(name, ElectionNames)
}

// A Search selects names by their keys on the servers.
type Search struct {
	Prefix string   // of the names
	Parts  []string // a name is found if it has a key of one of these parts
	// Progress is called with how many keys have been looked at, about. It may be nil.
	Progress func(keys int)
}

// TokenRetention is how long the server keeps the last fencing token of an Engine's name.
const TokenRetention = 7 * 24 * time.Hour

// An Engine works on one name. It is safe for concurrent use.
type Engine interface {
	// Key returns the key of a part of the name: <prefix>:{<name>}:<part>.
	Key(part string) string
	// Channel returns a channel for messages about the name: <prefix>:<rest>, and in a cluster
	// <prefix>:{<name>}:<rest>.
	Channel(rest string) string
	// NewID returns an identifier that this process never uses again and that other
	// processes cannot guess.
	NewID() string

	// Identity returns the text that Inspect shows as the holder of the name's leases.
	Identity() string
	// TTL returns the TTL of the name's leases.
	TTL() time.Duration
	// Timeout returns how long one request may stay unanswered.
	Timeout() time.Duration

	// Ask sends a request and retries it until it is answered, for at most two Timeouts.
	Ask(ctx context.Context, r wire.Request) (any, error)
	// AskWithin is Ask with other times: each for one try, within for all of them.
	AskWithin(ctx context.Context, r wire.Request, each, within time.Duration) (any, error)
	// Persist sends a request and retries it until it is answered or ctx ends. It also
	// retries while the server has too little memory or too few replicas.
	Persist(ctx context.Context, r wire.Request) (any, error)
	// Commit is Persist for a request whose effect must survive a failover. If too few
	// replicas have acknowledged it in time, it returns the answer and ErrNotReplicated. A
	// request that is sent again is acknowledged even if it writes nothing.
	Commit(ctx context.Context, r wire.Request) (any, error)
	// Once sends a request without retries.
	Once(ctx context.Context, r wire.Request) (any, error)

	// Lock acquires the name's mutex, and queues until it is free. A nil Kind is a plain mutex.
	Lock(ctx context.Context, kind Kind) (Lease, error)
	// Hold creates a lease that the caller's own request acquires. It retries the request
	// until it is answered, for at most two Timeouts. If the lease is already over when the
	// answer arrives, Hold sends the request again, up to twice. read decodes the answer: it
	// returns granted and a token above 0, or an error. If it returns granted and an error,
	// Hold releases the grant.
	Hold(ctx context.Context, kind Kind, acquire func(Attempt) wire.Request, read func(answer any) (token uint64, granted bool, err error)) (Lease, error)

	// LockScripts returns the scripts that acquire, renew and release the leases of Lock.
	LockScripts() []*wire.Script
	// CheckRights tries each command of the scripts, without an effect, and whether the
	// name's token counter can be read. A missing right is otherwise found only when a
	// script needs it. It does not try PUBLISH, which scripts can do without.
	CheckRights(ctx context.Context, scripts ...*wire.Script) error

	// Queue returns the attempts in the queue of the name's mutex, next holder first.
	Queue(ctx context.Context) ([]Waiter, error)
	// Promote moves the first waiter of an identity to the head of the queue, if lease
	// still holds the name.
	Promote(ctx context.Context, lease Lease, identity string) (Promotion, error)

	// Watch calls nudge when a message arrives on a channel, and when messages may have
	// been missed. Messages can be lost. nudge must not block.
	Watch(channel string, nudge func()) (stop func())
	// Background runs a task that Close of the Client waits for. It returns false, and
	// does not run the task, if Close no longer waits.
	Background(task func(context.Context)) bool
	// Shared returns the value that all Engines of the Client share under key. create
	// makes it at the first use.
	Shared(key any, create func() any) any
	// Now returns the elapsed time by the clock of the Client's leases.
	Now() time.Duration
	// Quorum returns what scripts need at several servers, nil for one server. At several, only
	// Lock, CheckRights, Watch, the methods without requests, and the next two work.
	Quorum() *Quorum
	// AskAll sends a request to all servers of a quorum, and retries it like Ask. r is called for
	// each try, because the name of the list may change. It returns the
	// answers that have arrived when a majority has answered. Answers of servers that grant
	// nothing, see part_member.lua, do not count.
	AskAll(ctx context.Context, r func() wire.Request) ([]any, error)
	// Renew sends a renewal of a lease of a quorum now, and retries it until a majority has
	// extended the lease or ctx ends. If the lease is lost, it ends.
	Renew(ctx context.Context, lease Lease) error
	// Logger returns the Client's logger.
	Logger() logr.Logger
	// Expect creates the metrics of a kind of lease that queues, so that they exist before
	// the first lease.
	Expect(label string)
}

// A Kind defines how a lease is renewed and released.
type Kind interface {
	// Label names the kind in metrics and logs.
	Label() string
	// Renewal returns the request that extends a hold to its TTL from now. Its answer is
	// 1, or 0 if the hold is lost. On a quorum, each server gives an answer of quorum_renew. If
	// ok is false, the request of a mutex is used.
	Renewal(a Attempt) (r wire.Request, ok bool)
	// Release returns the request that releases an attempt and invalidates requests of it
	// that are still in flight. Its answer is 1, or 0 if there was nothing to release. If
	// ok is false, the request of a mutex is used.
	Release(a Attempt) (r wire.Request, ok bool)
}

// A Noticer is a Kind whose renewals may also be answered with 2: the hold is extended, and
// Noticed is called. It must not block.
type Noticer interface{ Noticed(a Attempt) }

// An Attempt identifies one attempt to acquire a lease.
type Attempt struct {
	ID      string // as from NewID
	Value   string // what the server stores for it; secret
	TTL     time.Duration
	TombTTL time.Duration // how long requests of it may be in flight

	Token uint64 // of the lease, for renewals on a quorum
	Tomb  string // the key that exists if the attempt was abandoned, on a quorum
}

// A Quorum is what scripts need at each of several servers.
type Quorum struct {
	Marker string        // key of the state of the server
	List   func() string // the name of the list of servers that the Client has
}

// A Lease is a lease of a Kind. It behaves like a lockcore.Lease, and has further methods
// for the packages that run work under it.
type Lease interface {
	Name() string
	Token() uint64
	Remaining() time.Duration
	Context() context.Context
	Bind(parent context.Context) (ctx context.Context, stop context.CancelFunc)
	Unlock(ctx context.Context) error

	// Value returns the Value of the Attempt.
	Value() string
	// Err returns nil while the lease is valid, and then the cause of its end.
	Err() error
	// Overdue returns the time since the lease ended, 0 while it is valid.
	Overdue() time.Duration
	// Abort ends the lease locally. The server keeps it until its TTL expires. The cause
	// is lockcore.ErrLeaseExpired joined with reason. Abort returns false if the lease
	// has ended before.
	Abort(reason error) bool
	// Lose ends the lease after the server has answered that it is no longer held.
	Lose()
	// Finish ends the lease with lockcore.ErrReleased, after the caller's own script has
	// released it on the server.
	Finish()
}

// A Waiter is one attempt in the queue.
type Waiter struct {
	Identity string
	Since    time.Time // by the server's clock, when it joined or was promoted
	Promoted bool
}

// A Promotion is the result of Promote.
type Promotion int

// The results of Promote.
const (
	Promoted Promotion = iota
	NoWaiter           // no waiter has that identity
	NotHeld            // the lease no longer holds the name
)
