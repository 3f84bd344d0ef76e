package lockcore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// A Mutex is a named lock that at most one lease holds at a time. It is a
// handle without state: make it once or for each use, in any number of
// goroutines and processes.
type Mutex struct {
	c     *Client
	keys  *lockKeys
	terms *leaseTerms
	kind  lineKind // of a Mutex, or of what is built on one
}

// Mutex returns the lock of a name: 1 to 200 bytes of UTF-8 without control
// characters, spaces and braces. It sends nothing. The error is a *ConfigError.
func (c *Client) Mutex(name string, cfg LeaseConfig) (*Mutex, error) {
	return c.lock(name, mutexKind{}, cfg)
}

// lock is a lock of a kind.
func (c *Client) lock(name string, k lineKind, cfg LeaseConfig) (*Mutex, error) {
	if err := checkUserName(name); err != nil {
		return nil, err
	}
	terms, err := cfg.terms(c.identity)
	if err != nil {
		return nil, err
	}
	terms.keepTokens = c.tokenRetention
	c.metrics.kind(k.name())
	return &Mutex{c: c, keys: c.keys.lock(name), terms: terms, kind: k}, nil
}

// Name is the name of the lock.
func (m *Mutex) Name() string { return m.keys.name }

// TryLock takes the lock if it is free and nobody stands in line for it. If not,
// the error is ErrNotAcquired and a *HeldError. If no answer comes it asks
// again for two thirds of a TTL, at most six seconds, and then fails with what
// went wrong; an error that is ErrUnknown means that the lock may have been
// taken and is being given back behind.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	lease, err := m.tryLock(ctx)
	if err != nil {
		return nil, opError("lockcore: try lock", m.keys.name, err)
	}
	return lease, nil
}

func (m *Mutex) tryLock(ctx context.Context) (*Lease, error) {
	start := m.c.clock.Now()
	lease, err := m.take(ctx)
	m.c.metrics.asked(m.kind.name(), m.c.clock.Now()-start, err)
	return lease, err
}

// take is one try.
func (m *Mutex) take(ctx context.Context) (*Lease, error) {
	a, err := m.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	r, t0, err := a.askUntil(ctx, modeTry, 2*m.terms.timeout())
	lease, err := m.settle(ctx, a, &r, t0, err)
	if lease != nil || err != nil {
		return lease, err
	}
	m.c.forget(a)
	return nil, m.heldBy(&r)
}

// heldBy is the error that says what the server answered of the holder: of its value the
// identity and the owner may be shown.
func (m *Mutex) heldBy(r *acquireReply) *HeldError {
	p, _ := parseAttempt(r.holder)
	held := &HeldError{Name: m.keys.name, Holder: p.identity, TTL: r.left}
	if k, owned := p.kind.(ownedKind); owned {
		held.Owner = k.owner
	}
	return held
}

// A sighting is what a waiter was answered of the holder, and when it had asked.
type sighting struct {
	reply acquireReply
	at    time.Duration
}

func (s *sighting) note(r acquireReply, at time.Duration, err error) {
	if err == nil && r.code >= answerHead && r.code <= answerBusy {
		s.reply, s.at = r, at
	}
}

// explain joins the error of a wait that was ended with who held the lock.
func (m *Mutex) explain(ctx context.Context, s *sighting, err error) error {
	if !errors.Is(err, ErrNotAcquired) || s.reply.holder == "" || ctx.Err() == nil {
		return err
	}
	held := m.heldBy(&s.reply)
	if held.TTL >= 0 {
		held.TTL = max(0, held.TTL-(m.c.clock.Now()-s.at))
	}
	return errors.Join(err, held)
}

// Lock takes the lock, waiting in line for it until ctx ends; the error is then
// ErrNotAcquired joined with ctx's, and with a *HeldError that names the holder. Who
// waits is served in order of arrival.
//
// Waiting costs one look per TTL. Once in line an outage of the server is
// waited out; before that Lock fails if the server has not answered for a TTL,
// at least three seconds.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	lease, err := m.lock(ctx)
	if err != nil {
		return nil, opError("lockcore: lock", m.keys.name, err)
	}
	return lease, nil
}

func (m *Mutex) lock(ctx context.Context) (*Lease, error) {
	start := m.c.clock.Now()
	var seen sighting
	lease, err := m.wait(ctx, &seen)
	m.c.metrics.asked(m.kind.name(), m.c.clock.Now()-start, err)
	if err != nil {
		err = m.explain(ctx, &seen, err)
	}
	return lease, err
}

// wait stands in line.
func (m *Mutex) wait(ctx context.Context, seen *sighting) (*Lease, error) {
	patience := max(m.terms.ttl, 3*time.Second)
	messages := m.c.wire.Messages(m.keys.name)
	if !messages.Up() {
		// Subscribe before joining, but not for a lock that is free.
		a, err := m.begin(ctx, false)
		if err != nil {
			return nil, err
		}
		r, t0, err := a.askUntil(ctx, modeTry, patience)
		seen.note(r, t0, err)
		if lease, err := m.settle(ctx, a, &r, t0, err); lease != nil || err != nil {
			return lease, err
		}
		m.c.forget(a)
		messages.Start(ctx)
	}
	a, err := m.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	waiting := m.c.metrics.kind(m.kind.name()).waiting
	waiting.Inc()
	defer waiting.Dec()
	r, t0, err := a.askUntil(ctx, modeJoin, patience)
	for waited := false; ; waited = true {
		seen.note(r, t0, err)
		lease, err2 := m.settle(ctx, a, &r, t0, err)
		if heard := a.grantedAt.Swap(0); heard > 0 && lease != nil {
			m.c.metrics.handover.Observe((m.c.clock.Now() - time.Duration(heard)).Seconds())
		} else if heard > 0 {
			m.c.metrics.lapsed.Inc()
		} else if lease != nil && waited {
			messages.Suspect(m.terms.ttl) // a message may have been missed, or its lock just ended
		}
		if lease != nil || err2 != nil {
			return lease, err2
		}
		if r.left == -1*time.Millisecond && !a.warned {
			a.warned = true
			m.c.log.Error(errEndless, "waiting for a lock that has no TTL", "name", m.keys.name)
		}
		if err := a.await(ctx, r); err != nil {
			m.c.forget(a)
			return nil, err
		}
		mode := modeLook
		if r.code == answerGone {
			mode = modeJoin
			if a.trusted && !messages.Retest(ctx) {
				// It was passed over because nobody seemed to listen for it, and
				// would be again: it goes on as one of whom that cannot be known.
				place := a.place
				m.c.forget(a)
				if a, err = m.begin(ctx, true); err != nil {
					return nil, err
				}
				a.place = place
			}
		}
		r, t0, err = a.askUntil(ctx, mode, 0)
	}
}

var errEndless = errors.New("lockcore: a foreign client has set the key, and it may never end")

// begin makes an attempt, known to the Client from now on.
func (m *Mutex) begin(ctx context.Context, waits bool) (*attempt, error) {
	if ctx == nil {
		return nil, refuse("ctx", "a context", "%s", "nil")
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	a := m.c.newAttempt(m.kind, m.keys, m.terms, waits)
	a.line = m.kind
	if !m.c.enlist(a) {
		return nil, ErrClosed
	}
	return a, nil
}

// settle makes a lease of an answer that says held. It returns neither a lease
// nor an error if the answer, r from then on, says to wait.
func (m *Mutex) settle(ctx context.Context, a *attempt, r *acquireReply, t0 time.Duration, err error) (*Lease, error) {
	for tries := 0; err == nil && r.code == answerHeld; tries++ {
		ended := m.c.endedToken(a) >= r.token && a.ended < r.token // while the answer was on its way
		if m.c.clock.Now() < t0+m.terms.times.Valid && !ended {
			return m.c.hold(ctx, a, r.token, t0)
		}
		// The answer took so long that nothing of the lease is left. Asking
		// again extends it; a server that is always this slow is refused.
		if tries == 2 {
			m.c.forget(a)
			return nil, errors.Join(ErrNotAcquired, ErrLeaseExpired, errors.New("lockcore: the server's answers take longer than the lease is valid"))
		}
		*r, t0, err = a.ask(ctx, modeTry, m.terms.timeout())
	}
	switch {
	case err != nil:
		m.c.forget(a)
		if ctx.Err() != nil {
			return nil, errors.Join(ended(ctx), err)
		}
		return nil, err
	case r.code == answerWrongKind:
		m.c.forget(a)
		return nil, ErrWrongKind
	case r.code == answerUpgrade:
		m.c.forget(a)
		return nil, errors.Join(ErrNotAcquired, ErrUpgrade)
	case r.code == answerBuried:
		// Only a forged message can have buried an attempt that is still asking.
		m.c.forget(a)
		return nil, errors.Join(ErrNotAcquired, errors.New("lockcore: the attempt was given up by somebody else"))
	}
	return nil, nil
}

// await returns when it is time to look again, or why not to.
func (a *attempt) await(ctx context.Context, r acquireReply) error {
	if r.code == answerGone {
		return nil
	}
	refresh := a.terms.refresh()
	if messages := a.c.wire.Messages(a.keys.name); !messages.Up() && !messages.Trusted() {
		refresh = min(refresh, time.Second/2) // nobody can tell us anything
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
			if left := a.left.Swap(0); left > 0 {
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
