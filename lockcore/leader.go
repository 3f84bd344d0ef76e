package lockcore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// An Election is a lock whose holder leads and says so in a record that
// everybody can read and watch. Candidates stand in the lock's line, under the
// same promises as Mutex.Lock.
//
// It is a handle without state and safe for concurrent use.
type Election struct {
	c        *Client
	name     string
	keys     *electionKeys
	terms    *leaseTerms
	metadata map[string]string
	encoded  string // metadata as JSON
}

// ElectionConfig is how a candidate stands for an election. All candidates
// should use the same Lease times.
type ElectionConfig struct {
	// Lease is the hold on the lead. Its Identity is the candidate's.
	Lease LeaseConfig

	// Metadata is what the record says of the leader besides its identity: an
	// address, a version. At most 4096 bytes as JSON; no secrets, as everybody
	// who may read the record sees it.
	Metadata map[string]string
}

const maxMetadata = 4096

// Election returns the election of a name: 1 to 191 bytes of UTF-8 without
// control characters, spaces and braces. It sends nothing. The error is a
// *ConfigError.
func (c *Client) Election(name string, cfg ElectionConfig) (*Election, error) {
	if textFault(name, 200-len(electionNames), true) != "" {
		return nil, &ConfigError{Field: "name", Value: abbreviate(name), Rule: "1 to 191 bytes of UTF-8 without control characters, spaces and braces"}
	}
	terms, err := cfg.Lease.terms(c.identity)
	if err != nil {
		return nil, err
	}
	encoded := []byte("{}")
	if len(cfg.Metadata) > 0 {
		if encoded, err = json.Marshal(cfg.Metadata); err != nil {
			return nil, fmt.Errorf("lockcore: ElectionConfig.Metadata: %w", err)
		}
	}
	if len(encoded) > maxMetadata {
		return nil, refuse("ElectionConfig.Metadata", "at most 4096 bytes as JSON", "%d bytes", len(encoded))
	}
	c.metrics.kind(kindElection)
	return &Election{
		c: c, name: name, keys: c.keys.election(name), terms: terms,
		metadata: maps.Clone(cfg.Metadata), encoded: string(encoded),
	}, nil
}

// Name is the name of the election.
func (e *Election) Name() string { return e.name }

// Identity is under which this candidate stands.
func (e *Election) Identity() string { return e.terms.identity }

// A Leadership is the right to lead for one term: the Lease, and its number. Give
// it up with Resign.
type Leadership struct {
	*Lease
	e *Election

	// Term is how many leaderships the election has had, this one included, as
	// long as somebody led at least once a week and the server kept its data. It
	// is for people: what orders two leaders for a resource is the Token.
	Term uint64
	// Since is when the term began, on the server's clock.
	Since time.Time
}

// Campaign stands in line until this candidate leads, and the record says so. It
// fails like Mutex.Lock.
func (e *Election) Campaign(ctx context.Context) (*Leadership, error) {
	const op = "lockcore: campaign"
	k := &leaderKind{e: e}
	m := &Mutex{c: e.c, keys: e.keys.lockKeys, terms: e.terms, kind: k}
	lease, err := m.lock(ctx)
	if err != nil {
		return nil, opError(op, e.name, err)
	}
	l := &Leadership{Lease: lease, e: e}
	err = l.claim(ctx, k)
	if cause := l.checkClock(); err == nil && cause != nil {
		err = errors.Join(ErrNotAcquired, cause) // the answer took too long
	}
	if err != nil {
		// The lock is taken and nobody leads: whatever else fails, give it back. If
		// that is not answered soon it goes on behind.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.terms.timeout())
		defer cancel()
		_ = lease.Unlock(ctx)
		return nil, opError(op, e.name, err)
	}
	return l, nil
}

// claim writes the record, for as long as the lease is valid.
func (l *Leadership) claim(ctx context.Context, k *leaderKind) error {
	e, s := l.e, l.c.scripts.leaderClaim
	req := s.Call([]string{e.keys.lock, e.keys.leader},
		l.a.value, millis(e.terms.ttl), l.token, e.terms.identity, e.encoded)
	bound, stop := l.Bind(ctx)
	defer stop()
	answer, err := l.c.newRetry(e.terms.timeout(), 0).do(bound, req, wire.MayRetryLater)
	if err != nil {
		return errors.Join(ErrNotAcquired, context.Cause(bound), err)
	}
	return l.begin(k, answer)
}

// begin takes the answer of leader_claim.
func (l *Leadership) begin(k *leaderKind, answer any) error {
	list, _ := answer.([]any)
	switch {
	case len(list) == 2:
		term, ok1 := list[0].(int64)
		since, ok2 := list[1].(int64)
		if !ok1 || !ok2 || term < 1 {
			break
		}
		l.Term, l.Since = uint64(term), time.UnixMilli(since).UTC()
		k.led.Store(&led{token: l.token, term: term, since: since})
		l.e.note(LeaderRecord{
			Holder: l.e.terms.identity, Token: l.token, Term: l.Term, Acquired: l.Since, Renewed: l.Since,
			Lease: l.e.terms.ttl, Metadata: l.e.metadata,
		})
		return nil
	case len(list) == 1 && list[0] == int64(0):
		if l.end(ErrLeaseLost) {
			l.c.noteLoss(l.Lease, ErrLeaseLost)
		}
		return errors.Join(ErrNotAcquired, ErrLeaseLost)
	case len(list) == 1 && list[0] == int64(-1):
		return errors.Join(ErrNotAcquired, ErrNewerSchema)
	}
	return l.c.scripts.leaderClaim.OddReply(answer)
}

// Resign gives the lead to the next in line, and if nobody is, writes down that
// nobody leads. It returns like Lease.Unlock. The work of the leader must be
// over.
func (l *Leadership) Resign(ctx context.Context) error {
	if err := l.Unlock(ctx); err != nil {
		return err
	}
	// Off the way of the hand-over: the record is in nobody's way. One try; if it
	// fails the record grows old instead, as after a death.
	e, s := l.e, l.c.scripts.leaderVacate
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx) // as Unlock does
	}
	ctx, cancel := context.WithTimeout(ctx, e.terms.timeout())
	defer cancel()
	req := s.Call([]string{e.keys.lock, e.keys.leader}, l.token)
	if _, err := l.c.disp.Do(ctx, req, e.terms.timeout()); err != nil {
		l.c.log.V(1).Info("leader record still names the leader that resigned", "election", e.name, "err", err)
	}
	return nil
}

// Drop ends the lease here and now without giving the lead to anybody: at the
// server it ends with its TTL, counted from the last renewal. It is for work that
// does not stop when it is told to. The cause of the context is ErrLeaseExpired
// joined with reason. An Unlock that comes after it, when the work is over after
// all, gives the rest of the TTL back. False if the lease had ended before.
func (l *Leadership) Drop(reason error) bool {
	if l.checkClock() != nil || !l.end(errors.Join(ErrLeaseExpired, reason)) {
		return false
	}
	l.c.dismiss(l.Lease)
	return true
}

// Ended is why the lease has ended, nil while it is valid: the cause of Context.
func (l *Leadership) Ended() error { return l.checkClock() }

// Over is how long ago the lease ended, 0 while it is valid.
func (l *Leadership) Over() time.Duration {
	if l.checkClock() == nil {
		return 0
	}
	return max(1, l.c.time.ticks()-time.Duration(l.over.Load())) // ended is ended, however short ago
}

// leaderKind is the attempt of a candidate: a mutex's, whose renewals keep the
// record, too, once there is one.
type leaderKind struct {
	mutexKind
	e   *Election
	led atomic.Pointer[led]
}

// led is what the record says of a term besides what the Election knows.
type led struct {
	token       uint64
	term, since int64
}

func (k *leaderKind) renewal(a *attempt) wire.Request {
	now := k.led.Load()
	if now == nil {
		return k.mutexKind.renewal(a)
	}
	return a.c.scripts.leaderRenew.Call([]string{k.e.keys.lock, k.e.keys.leader},
		a.value, millis(a.terms.ttl), now.token, a.terms.identity, k.e.encoded, now.term, now.since)
}

// list runs a script that answers a list and may be repeated.
func (e *Election) list(ctx context.Context, req wire.Request) ([]any, error) {
	if ctx == nil {
		return nil, refuse("ctx", "a context", "%s", "nil")
	}
	answer, err := e.c.insist(ctx, req, e.terms.timeout(), 2*e.terms.timeout())
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok {
		return nil, req.OddReply(answer)
	}
	return list, nil
}
