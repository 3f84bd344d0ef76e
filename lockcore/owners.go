package lockcore

import (
	"errors"
	"time"
)

// owners records for each owner the tokens with valid leases in this process, and the token
// whose leases have expired here. The server may still have an entry with the expired token:
// for example, the entry of an acquire that was executed late outlives its lease. A new lease
// must not get that token. Client.mu guards owners.
type owners map[ownerKey]*ownerTokens

type ownerKey struct{ name, owner string }

type ownerTokens struct {
	valid map[uint64]int // number of valid leases by token
	ended uint64         // the greatest token with an expired lease; 0 if there is none
	until time.Duration  // from then on the server has no entry with the ended token
}

func ownerOfAttempt(a *attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

// add counts a new lease. If it has the ended token, the owner also holds the lock in
// another process, so the token is valid again.
func (o owners) add(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	if !ok {
		return
	}
	t := o[key]
	if t == nil {
		t = &ownerTokens{valid: map[uint64]int{}}
		o[key] = t
	}
	t.valid[l.token]++
	if l.token >= t.ended {
		t.ended = 0
	}
}

// remove counts the end of a lease.
func (o owners) remove(l *Lease, cause error, now time.Duration) {
	key, ok := ownerOfAttempt(l.a)
	t := o[key]
	if !ok || t == nil {
		return
	}
	if t.valid[l.token]--; t.valid[l.token] <= 0 {
		delete(t.valid, l.token)
	}
	if errors.Is(cause, ErrLeaseExpired) {
		t.ended = max(t.ended, l.token)
		t.until = max(t.until, now+l.a.terms.ttl+tombTTL)
	}
	if len(t.valid) == 0 && t.ended == 0 {
		delete(o, key)
	}
}

// sweep deletes owners without leases whose ended token the server cannot have any more.
func (o owners) sweep(now time.Duration) {
	for key, t := range o {
		if len(t.valid) == 0 && t.until < now {
			delete(o, key)
		}
	}
}

// ended returns the token that a lease of this attempt must not get, or 0.
func (o owners) ended(a *attempt) uint64 {
	key, ok := ownerOfAttempt(a)
	if t := o[key]; ok && t != nil && t.valid[t.ended] == 0 {
		return t.ended
	}
	return 0
}

func (c *Client) endedToken(a *attempt) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners.ended(a)
}
