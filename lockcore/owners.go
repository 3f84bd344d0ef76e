package lockcore

import (
	"errors"
	"time"
)

// owners tells apart the tokens of an owner whose leases are valid here from those whose
// leases have ended here while the server still has an entry of theirs: an acquire that
// was executed late, for example, leaves one that outlives its lease. A lease that begins
// then must not get their token. It is guarded by Client.mu.
type owners map[ownerKey]*ownerTokens

type ownerKey struct{ name, owner string }

type ownerTokens struct {
	valid map[uint64]int // leases by token
	ended uint64         // the newest token whose leases expired here; 0: none
	until time.Duration  // when no entry of it can be left at the server
}

func ownerOfAttempt(a *attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

// begin counts a lease. If its token had ended here the owner is inside elsewhere, too.
func (o owners) begin(l *Lease) {
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

// over counts the end of a lease.
func (o owners) over(l *Lease, cause error, now time.Duration) {
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

// sweep forgets the tokens of which the server has nothing left.
func (o owners) sweep(now time.Duration) {
	for key, t := range o {
		if len(t.valid) == 0 && t.until < now {
			delete(o, key)
		}
	}
}

// ended is the token that a lease of this attempt must not get, 0 if there is none.
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
