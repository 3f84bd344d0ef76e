package lockcore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// A Mutex is a named lock that at most one lease holds at a time. It has no state of its
// own and is safe for concurrent use. Any number of Mutexes of one name, in any number of
// processes, are the same lock.
type Mutex struct {
	c     *Client
	keys  *lockKeys
	terms *leaseTerms
	kind  queueKind // mutexKind, or the kind of a lock that is built on Mutex
}

// Mutex returns the lock of a name: 1 to 200 bytes of UTF-8 without control characters,
// spaces and braces. Names must not begin with job/ or election/. Mutex sends nothing. The
// error is a *ConfigError.
func (c *Client) Mutex(name string, cfg LeaseConfig) (*Mutex, error) {
	return c.lock(name, mutexKind{}, cfg)
}

// lock returns a lock of a kind.
func (c *Client) lock(name string, k queueKind, cfg LeaseConfig) (*Mutex, error) {
	if err := checkUserName(name); err != nil {
		return nil, err
	}
	terms, err := cfg.terms(c.identity)
	if err != nil {
		return nil, err
	}
	terms.keepTokens = c.tokenRetention
	c.metrics.kind(k.name()).queue()
	return &Mutex{c: c, keys: c.keys.lock(name), terms: terms, kind: k}, nil
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return m.keys.name }

// TryLock acquires the lock if it is free and the queue is empty. Otherwise the error is
// ErrNotAcquired and a *HeldError.
//
// If no answer arrives, TryLock retries for two thirds of the TTL, at least 100 ms and at
// most 6 s, and then returns the last error. If that is ErrUnknown, the lock may have been
// acquired, and a background task releases it.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := m.tryLock(ctx)
	return lease, opError("try lock", m.keys.name, err)
}

func (m *Mutex) tryLock(ctx context.Context) (*Lease, error) {
	start := m.c.clock.Now()
	lease, err := m.tryOnce(ctx)
	m.c.metrics.countAcquire(m.kind.name(), m.c.clock.Now()-start, err)
	return lease, err
}

// tryOnce makes one attempt that does not queue.
func (m *Mutex) tryOnce(ctx context.Context) (*Lease, error) {
	a, err := m.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	r, t0, err := a.retryAcquire(ctx, modeTry, 2*m.terms.timeout())
	lease, err := m.makeLease(ctx, a, &r, t0, err)
	if lease != nil || err != nil {
		return lease, err
	}
	m.c.abandon(a)
	return nil, m.heldBy(&r)
}

// heldBy returns the error that describes the holder in r. It shows the identity and the
// owner only, as the rest of the stored value is secret.
func (m *Mutex) heldBy(r *acquireReply) *HeldError {
	p, _ := parseAttempt(r.holder)
	held := &HeldError{Name: m.keys.name, Holder: p.identity, TTL: r.left}
	if k, owned := p.kind.(ownedKind); owned {
		held.Owner = k.owner
	}
	return held
}

// lastReply is the last reply to a waiter that named a holder, and the time at which the
// request was sent.
type lastReply struct {
	reply acquireReply
	at    time.Duration
}

func (last *lastReply) record(r acquireReply, at time.Duration, err error) {
	if err == nil && r.code >= answerHead && r.code <= answerBusy {
		last.reply, last.at = r, at
	}
}

// withHolder joins the error of a wait that ctx ended with the last known holder.
func (m *Mutex) withHolder(ctx context.Context, s *lastReply, err error) error {
	if !errors.Is(err, ErrNotAcquired) || s.reply.holder == "" || ctx.Err() == nil {
		return err
	}
	held := m.heldBy(&s.reply)
	if held.TTL >= 0 {
		held.TTL = max(0, held.TTL-(m.c.clock.Now()-s.at))
	}
	return errors.Join(err, held)
}

// Lock acquires the lock. If the lock is not free, Lock queues and waits until ctx ends.
// The error is then ErrNotAcquired joined with the error of ctx, and with a *HeldError if
// the holder is known. Waiters are served in order of arrival.
//
// A waiter sends one request per 1.1 TTL, or per 1.1 s if TTL is less than 1 s. A waiter
// that is in the queue waits until an outage of the server is over. Until the server has
// queued it, Lock fails if the server does not answer for one TTL, and at least 3 s.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := m.lock(ctx)
	return lease, opError("lock", m.keys.name, err)
}

func (m *Mutex) lock(ctx context.Context) (*Lease, error) {
	start := m.c.clock.Now()
	var last lastReply
	lease, err := m.waitInQueue(ctx, &last)
	m.c.metrics.countAcquire(m.kind.name(), m.c.clock.Now()-start, err)
	if err != nil {
		err = m.withHolder(ctx, &last, err)
	}
	return lease, err
}

// waitInQueue queues an attempt and waits until it is granted.
func (m *Mutex) waitInQueue(ctx context.Context, last *lastReply) (*Lease, error) {
	within := max(m.terms.ttl, 3*time.Second)
	messages := m.c.wire.Messages(m.keys.name)
	if !messages.Up() {
		// Subscribe before joining the queue. A free lock needs no subscription.
		a, err := m.begin(ctx, false)
		if err != nil {
			return nil, err
		}
		r, t0, err := a.retryAcquire(ctx, modeTry, within)
		last.record(r, t0, err)
		if lease, err := m.makeLease(ctx, a, &r, t0, err); lease != nil || err != nil {
			return lease, err
		}
		m.c.abandon(a)
		messages.Start(ctx)
	}
	a, err := m.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	waiting := m.c.metrics.kind(m.kind.name()).queue().waiting
	waiting.Inc()
	defer waiting.Dec()
	r, t0, err := a.retryAcquire(ctx, modeJoin, within)
	for waited := false; ; waited = true {
		last.record(r, t0, err)
		lease, err2 := m.makeLease(ctx, a, &r, t0, err)
		switch heard := time.Duration(a.grantedAt.Load()); {
		case heard == 0:
			if lease != nil && waited {
				messages.Suspect(m.terms.ttl) // the grant's message may have been missed
			}
		case lease != nil:
			m.c.metrics.handover.Observe((m.c.clock.Now() - heard).Seconds())
		case heard > t0:
			// The grant may have been made after this reply, which it overtook. The next
			// reply decides.
		default:
			a.grantedAt.Store(0)
			m.c.metrics.lapsed.Inc()
		}
		if lease != nil || err2 != nil {
			return lease, err2
		}
		if r.left == -1*time.Millisecond && !a.warnedNoTTL {
			a.warnedNoTTL = true
			m.c.log.Error(errNoTTL, "waiting for a lock without TTL", "name", m.keys.name)
		}
		if err := a.await(ctx, r); err != nil {
			m.c.abandon(a)
			return nil, err
		}
		mode := modeLook
		if r.code == answerNotQueued {
			mode = modeJoin
			if a.trusted && !messages.Retest(ctx) {
				// The server did not count this process as a receiver, and would pass the
				// attempt over again. A new attempt, which is not trusted, keeps its place.
				place := a.place
				m.c.abandon(a)
				if a, err = m.begin(ctx, true); err != nil {
					return nil, err
				}
				a.place = place
			}
		}
		r, t0, err = a.retryAcquire(ctx, mode, 0)
	}
}

var (
	errNoTTL      = errors.New("lockcore: another program wrote the key, and it may never expire")
	errSlowServer = errors.New("lockcore: the server takes longer to answer than a lease is valid")
	errTombstone  = errors.New("lockcore: a tombstone for the attempt exists, although it was not abandoned")
)

// begin creates an attempt and registers it.
func (m *Mutex) begin(ctx context.Context, waits bool) (*attempt, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	a := m.c.newAttempt(m.kind, m.keys, m.terms, waits)
	a.queued = m.kind
	if !m.c.register(a) {
		return nil, ErrClosed
	}
	return a, nil
}

// makeLease returns the lease if the reply r is a grant. It returns neither a lease nor an
// error if the attempt has to wait. It then leaves the last reply in r.
func (m *Mutex) makeLease(ctx context.Context, a *attempt, r *acquireReply, t0 time.Duration, err error) (*Lease, error) {
	for tries := 0; err == nil && r.code == answerHeld; tries++ {
		ended := m.c.endedToken(a) >= r.token && a.endedToken < r.token // while the answer was in flight
		if m.c.clock.Now() < t0+m.terms.times.Valid && !ended {
			return m.c.hold(ctx, a, r.token, t0)
		}
		// The answer took longer than the validity, or the token ended meanwhile. Another
		// acquire extends the hold. A server that is always this slow is an error.
		if tries == 2 {
			m.c.abandon(a)
			return nil, errors.Join(ErrNotAcquired, ErrLeaseExpired, errSlowServer)
		}
		*r, t0, err = a.sendAcquire(ctx, modeTry, m.terms.timeout())
	}
	switch {
	case err != nil:
		m.c.abandon(a)
		if ctx.Err() != nil {
			return nil, errors.Join(ended(ctx), err)
		}
		return nil, err
	case r.code == answerWrongKind:
		m.c.abandon(a)
		return nil, ErrWrongKind
	case r.code == answerUpgrade:
		m.c.abandon(a)
		return nil, errors.Join(ErrNotAcquired, ErrUpgrade)
	case r.code == answerBuried:
		// Only a forged message can cause a tombstone for an attempt that is not abandoned.
		m.c.abandon(a)
		return nil, errors.Join(ErrNotAcquired, errTombstone)
	}
	return nil, nil
}

// await waits until the attempt must look again. It returns an error if the wait is over.
func (a *attempt) await(ctx context.Context, r acquireReply) error {
	if r.code == answerNotQueued {
		return nil
	}
	refresh := a.terms.refresh()
	if messages := a.c.wire.Messages(a.keys.name); !messages.Up() && !messages.Trusted() {
		refresh = min(refresh, time.Second/2) // no messages arrive
	}
	refresh = refresh*9/10 + rand.N(refresh/5) //nolint:gosec // jitter
	next := a.c.clock.Now() + refresh
	if r.code == answerHead && r.left >= 0 {
		next = min(next, a.c.clock.Now()+r.left+2*time.Millisecond)
	}
	for {
		timer := time.NewTimer(max(0, next-a.c.clock.Now()))
		select {
		case <-timer.C:
			return nil
		case <-a.wake:
			timer.Stop()
			if a.look.Swap(false) {
				return nil
			}
			if left := a.endsIn.Swap(0); left > 0 {
				next = min(next, a.c.clock.Now()+time.Duration(left)+2*time.Millisecond)
			}
		case <-ctx.Done():
			timer.Stop()
			return ended(ctx)
		case <-a.c.closing:
			timer.Stop()
			return ErrClosed
		}
	}
}
