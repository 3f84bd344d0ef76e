package lock

import (
	"errors"
	"time"
)

func ownerOfAttempt(a *Attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

// add records a new lease. If it has the ended token, the owner also holds the lock in
// another process, so the token is valid again.
func (o owners) add(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	if !ok {
		return
	}
	t := o[key]
	if t == nil {
		t = &ownerTokens{leases: map[*Lease]struct{}{}}
		o[key] = t
	}
	t.leases[l] = struct{}{}
	t.newest = max(t.newest, l.token)
	if l.token >= t.ended {
		t.ended = 0
	}
}

// remove records the end of a lease. now is used only if it has expired.
func (o owners) remove(l *Lease, cause error, now time.Duration) {
	key, ok := ownerOfAttempt(l.a)
	t := o[key]
	if !ok || t == nil {
		return
	}
	delete(t.leases, l)
	if errors.Is(cause, ErrLeaseExpired) {
		t.ended = max(t.ended, l.token)
		t.until = max(t.until, now+l.a.terms.ttl+tombTTL)
	}
	if len(t.leases) == 0 && t.ended == 0 {
		delete(o, key)
	}
}

// sweep deletes owners without leases whose ended token the server cannot have any more.
func (o owners) sweep(now time.Duration) {
	for key, t := range o {
		if len(t.leases) == 0 && t.until < now {
			delete(o, key)
		}
	}
}

// ended returns the token that a lease of this attempt must not get, or 0: the greatest
// one whose leases have expired here, if none of them is valid. It asks the leases, because
// their contexts are done before remove is called, and their time can be over before anything
// has noticed it.
func (a *Attempt) ended() uint64 {
	key, ok := ownerOfAttempt(a)
	if !ok {
		return 0
	}
	c := a.c
	now := c.clock.Now() // may call the user's clock, so without the mutex
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.owners[key]
	if t == nil {
		return 0
	}
	ended, valid := t.ended, uint64(0)
	for l := range t.leases {
		switch cause := l.life.Over(now); {
		case errors.Is(cause, ErrLeaseExpired):
			ended = max(ended, l.token)
		case cause == nil && l.token == t.newest && l.token >= t.ended:
			return 0 // the server has this token or a later one
		case cause == nil:
			valid = max(valid, l.token)
		}
	}
	if valid >= ended {
		return 0
	}
	return ended
}
