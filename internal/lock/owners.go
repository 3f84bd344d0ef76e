package lock

func ownerOfAttempt(a *Attempt) (key ownerKey, ok bool) {
	k, ok := a.kind.(ownedKind)
	return ownerKey{a.keys.name, k.owner}, ok
}

func (o owners) add(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	if !ok {
		return
	}
	of := o[key]
	if of == nil {
		of = &ownerLeases{all: map[*Lease]struct{}{}}
		o[key] = of
	}
	of.all[l] = struct{}{}
	of.newest = max(of.newest, l.token)
}

func (o owners) remove(l *Lease) {
	key, ok := ownerOfAttempt(l.a)
	of := o[key]
	if !ok || of == nil {
		return
	}
	if delete(of.all, l); len(of.all) == 0 {
		delete(o, key)
	}
}

// besides returns a valid lease of the attempt's owner that has its newest token, or nil: one that writes
// before one that reads, which keeps no token for a writer. It asks the
// leases, because their time can be over before anything has noticed it. A lease with an earlier token
// does not count, so that tokens do not go back to it.
func (a *Attempt) besides() (beside *Lease) {
	key, _ := ownerOfAttempt(a)
	c := a.c
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if of := c.owners[key]; of != nil {
		for l := range of.all {
			if l.token == of.newest && l.life.ErrAt(now) == nil && (beside == nil || l.a.kind.Label() == kindWrite) {
				beside = l
			}
		}
	}
	return beside
}

// isStale reports whether a token that was granted is that of a lease which has ended meanwhile, or an
// earlier one than that of the lease that it was to keep.
func (a *Attempt) isStale(token uint64) bool {
	l := a.beside
	return l != nil && (token < l.token || token == l.token && l.life.ErrAt(a.c.clock.Now()) != nil)
}
