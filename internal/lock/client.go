package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/logqueue"
	"github.com/noonlock/noonlock/internal/quorum/members"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/registry"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/several"
	"github.com/noonlock/noonlock/internal/wire"
)

// An Access is embedded in a lockcore.Client. With Of, the packages of this module get the Client in it.
type Access struct{ client *Client }

func (a *Access) access() **Client { return &a.client }

// Attach sets the Client of a new *lockcore.Client.
func Attach(to interface{ access() **Client }, c *Client) { *to.access() = c }

// Of returns the Client of a *lockcore.Client, which must not be nil.
func Of(c interface{ access() **Client }) *Client { return *c.access() }

// A Client has the connections, leases and background tasks of its names. It is safe for concurrent use.
type Client struct {
	keys     keyring
	scripts  *Scripts
	clock    *lease.Clock
	logQueue *logqueue.Queue
	log      logr.Logger // writes to logQueue

	registry registry.Set // Registerer and Sum of the Sets that Metrics returns
	metrics  *metrics
	identity string
	process  string // random id of this Client, secret so that nobody forges its requests

	tokenRetention, lockDelay time.Duration
	minReplicas               int
	lastTerms                 atomic.Pointer[leaseTerms] // last result of terms

	attempts       atomic.Uint64 // number of the last attempt
	roundTrip      atomic.Int64  // recent round trip of waiters, in ns
	wire           wire.Wire
	sentinels      *wire.Sentinels // nil without Sentinels
	servers        []Server        // for a cluster, only one, without an address
	topology       topology
	quorum         *members.Quorum // nil for one server
	keeper         *lease.Keeper
	unwantedGrants chan struct{} // limits the tasks of withdrawUnwanted

	ctx     context.Context // context of background tasks; Close cancels it
	cancel  context.CancelFunc
	closing chan struct{}

	mu          sync.Mutex
	idle        *sync.Cond // signals the end of a task, an attempt or a lease, for Close
	closed      bool
	noMoreTasks bool
	tasks       int                 // number of running background tasks
	waiting     map[uint64]*Attempt // attempts without a lease, by number
	leases      map[uint64]*Lease   // by number of the attempt

	// pendingTombs has the abandoned attempts with an acquire that was not answered, until their tombstone is written.
	pendingTombs map[uint64]struct{}

	checks map[string]*grantCheck // by name

	logged map[string]time.Duration // times of recent lines, by subject, see mayLog
	waits  *readiness.Reports       // log of failed requests of calls of Lock

	shared map[any]any // values of Shared, by key

	owners owners
}

// A Name is a name that can be locked, with the configuration of its leases. It is safe for concurrent use.
type Name struct {
	c     *Client
	keys  *nameKeys
	terms *leaseTerms

	counterSet atomic.Int64 // time of the last acquire that set the token counter's TTL, zero before the first
}

// An Attempt is one try to acquire a lock, from its first request to its last. Its number
// is never used again. So the server distinguishes a late request from a new one, and a
// repeated request is harmless. An attempt that is not granted must be abandoned.
type Attempt struct {
	*Name
	kind   Kind
	number uint64
	value  string
	score  string // last score in the queue, with which the attempt joins again

	servedUntil time.Duration // end of its entry in the queue, as the last acquire asked; zero if unlimited

	token uint64         // token of a quorum's grant, which renewals commit
	trail *several.Trail // servers of a quorum that may have got a request of the attempt

	stamp     wire.Stamp  // time of the first acquire
	requested atomic.Bool // whether an acquire was sent

	setsCounter bool // whether the last acquire sets the TTL of the token counter

	ownerLease *Lease // lease of the same owner whose token the last acquire asked to keep

	unanswered  atomic.Bool // whether an acquire may still arrive
	mayBeStored atomic.Bool // whether the server may have stored the attempt

	notifiedAt        atomic.Int64 // arrival of a grant message, plus 1 ns; zero before it
	counterExtendedAt atomic.Int64 // time of the last renewal that extended the token counter

	wake         retry.Signal // wakes the waiter after a change of checkDue or lockEndsIn; nil if it does not queue
	checkDue     atomic.Bool  // whether the waiter must send a check now
	allCheckedAt atomic.Int64 // time of the last wakeAll with this waiter
	lockEndsIn   atomic.Int64 // remaining TTL in the last message to the head of the queue, in ns
	warnedNoTTL  bool         // whether a lock without TTL was logged
}

// A Lease is an attempt that was granted, until its lock is released or has expired.
type Lease struct {
	a     *Attempt
	token uint64
	slot  int          // slot of a Semaphore, otherwise -1
	life  *lease.Lease // &granted; for a partition, &granted of the lease that it is a part of

	granted      lease.Lease
	forPartition bool

	refusalLogged atomic.Bool // whether a refusal was logged since the last renewal that succeeded

	mu       sync.Mutex
	unlocked bool // whether Unlock was called after the lease had ended
}

// A Kind defines what the server stores for an attempt, and the requests that acquire, renew and
// release it. A package above embeds the Kind of Client.Mutex and replaces some of its methods.
type Kind interface {
	// Label names the kind in metrics and logs.
	Label() string
	// Acquire returns a request that acquires the lock. It has the answers of mutex_acquire.
	Acquire(a *Attempt, mode string) wire.Request
	// Renewal returns the request that extends a lease to its TTL from now. Its answer is 1, or 0 if the lease is lost.
	Renewal(a *Attempt) wire.Request
	// Release returns the request that releases an attempt, or removes it from the queue. Its answer
	// is greater than 0 if the attempt held the lock. With withdraw, a tombstone makes later requests fail.
	Release(a *Attempt, withdraw bool) wire.Request

	// stored returns the value of an attempt at the server.
	stored(process string, number uint64, identity string) string
}

// A Noticer is a Kind whose renewals may also be answered with a number greater than 1. The lease is then extended,
// and Noticed is called with the number. Noticed must not block.
type Noticer interface {
	Noticed(a *Attempt, answer int64)
}

// owners has the leases of each owner in this process. The server may also have entries without a lease:
// a failover may have lost a release, or an acquire was executed after its lease had ended. So a
// request names the lease here whose token a new lease may keep. Client.mu guards owners.
type owners map[ownerKey]*ownerLeases

type ownerKey struct{ name, owner string }

type ownerLeases struct {
	all    map[*Lease]struct{} // leases whose end is not recorded
	newest uint64              // greatest token of a lease that was in all
}

// A grantCheck repeats a release that granted the lock to a waiter, at the end of the grant.
type grantCheck struct {
	a     *Attempt
	timer *time.Timer
	next  time.Duration // time of a further check, zero without one; guarded by Client.mu
}

// A topology has the differences between a Client of New, for which one server decides about a name, and a Client of
// NewQuorum.
type topology interface {
	// kind returns the kind of a mutex, with the arguments of Client.Recorded.
	kind(record, channel string) Kind
	// refusal returns a *noonlock.ConfigError if the topology cannot have leases of a kind with these terms.
	refusal(k Kind, terms *leaseTerms) error
	// ready waits until a request can be answered. It returns the rest of the time within.
	ready(ctx context.Context, within time.Duration) (left time.Duration, err error)
	// confirm makes the grant r valid. The lease starts only if the result is a grant, too.
	confirm(ctx context.Context, a *Attempt, r acquireReply, timeout time.Duration) (acquireReply, error)
	// lossReason returns why the server no longer has an attempt: ErrLeaseLost or a *ForcedError.
	lossReason(ctx context.Context, a *Attempt) error
}

// attempt returns an attempt with its value at the server.
func (n *Name) attempt(k Kind, number uint64, value string) *Attempt {
	a := &Attempt{Name: n, kind: k, number: number, value: value}
	if n.c.quorum != nil {
		a.trail = several.NewTrail()
	}
	return a
}

// Identity returns the holder of the Client's leases, as people read it.
func (c *Client) Identity() string { return c.identity }

// Elapsed returns the time since the Client was created, by the clock of its leases.
func (c *Client) Elapsed() time.Duration { return c.clock.Now() }

// Logger returns the logger of the Client. Its calls do not block.
func (c *Client) Logger() logr.Logger { return c.log }

// Closing returns a channel that is closed when Close is called.
func (c *Client) Closing() <-chan struct{} { return c.closing }

// Flush waits until the lines of Logger are written, ctx ends, or one second has passed.
func (c *Client) Flush(ctx context.Context) { c.logQueue.Flush(ctx) }

// Metrics returns a Set for the metrics of a package that uses the Client.
func (c *Client) Metrics() *registry.Set { return new(c.registry) }

// Mutex returns the kind of a lock that one attempt holds at a time.
func (c *Client) Mutex() Kind { return c.topology.kind("", "") }

// Recorded returns the kind of a mutex with a record, a hash. A release that passes the lock to nobody also writes
// the end of the holder there, and announces it on a channel.
func (c *Client) Recorded(record, channel string) Kind {
	return c.topology.kind(record, channel)
}

// CountForced counts a lock that was released by force.
func (c *Client) CountForced() { c.metrics.forced.Inc() }

// Expect creates the metrics of a kind that queues, so that they exist before the first lease.
func (c *Client) Expect(label string) { c.metrics.kind(label).queue() }

// NewID returns an identifier that this process never uses again and that other processes cannot guess.
func (c *Client) NewID() string { return attemptText("", c.process, c.attempts.Add(1), "") }

// Shared returns the value that all users of the Client share under key. create makes it at the first use.
func (c *Client) Shared(key any, create func() any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared == nil {
		c.shared = map[any]any{}
	}
	if c.shared[key] == nil {
		c.shared[key] = create()
	}
	return c.shared[key]
}

// Reports returns the log of failures that all workers of this Client with one name share.
func (c *Client) Reports(workers, message, again string) *readiness.Reports {
	return c.Shared("reports of "+workers, func() any {
		return &readiness.Reports{Log: c.log, Workers: workers, Message: message, Again: again}
	}).(*readiness.Reports)
}

// Campaigns returns the Reports of failed campaigns.
func (c *Client) Campaigns() *readiness.Reports {
	return c.Reports("campaigns", "cannot campaign; retrying", "the server answers again")
}

// newRetry returns a Retry that Close ends, for tries of at most each and at most within in all.
func (c *Client) newRetry(each, within time.Duration) wire.Retry {
	return wire.NewRetry(each, within, c.closing)
}

// Background runs a task that Close waits for. It returns false, and does not run the task, if Close no longer waits.
func (c *Client) Background(task func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.noMoreTasks {
		return false
	}
	c.tasks++
	go func() {
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.tasks--
			c.idle.Broadcast()
		}()
		task(c.ctx)
	}()
	return true
}
