package record

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A quorum is an election on several servers. Each server has a copy of the record, and the
// token says which copy is newer.
//
//	claim    the greatest term of a majority is read, and the record is written with a renewal
//	         to all servers. The leadership begins when a majority has both
//	renewal  it writes the record to each server that has an older one, or none
//	read     of the answers of a majority, the one with the greatest token. Each majority has a
//	         server with the record of the last claim, unless that server has lost data
//	end      it is written to all servers. A reader that gets the answer of one of them sees it
//
// A server that has lost data does not count for readers before it is let in again. While it
// waits, the renewals of the leader write the record there.
type quorum struct {
	e  *Election
	of *lock.Quorum

	mu   sync.Mutex
	seen Record // the newest that was read; reads of a handle never go back
	at   time.Duration
}

func (q *quorum) ready(ctx context.Context) error {
	_, err := q.look(ctx)
	return err
}

func (q *quorum) look(ctx context.Context) (Record, error) {
	newest, _, err := q.newest(ctx)
	return newest, err
}

// newest returns the newest record of a majority, and the clock of a server.
func (q *quorum) newest(ctx context.Context) (newest Record, now time.Time, err error) {
	k := &q.e.keys
	var r wire.Request
	answers, err := q.e.lock.AskAll(ctx, func() wire.Request {
		r = q.e.scripts.view.Call(wire.Keys(k.lock, k.leader, q.of.Marker()), q.of.List())
		return r
	})
	if err != nil {
		return newest, now, err
	}
	var spoilt error
	for _, a := range answers {
		one, at, err := q.read(r, a)
		switch {
		case errors.Is(err, ErrNewerSchema):
			return newest, now, err
		case err != nil:
			spoilt = err
		case newest.olderThan(one):
			one.Left = max(one.Left, newest.leftOf(one))
			newest = one
		default:
			newest.Left = max(newest.Left, one.leftOf(newest))
		}
		if at.After(now) {
			now = at
		}
	}
	if newest.Token == 0 && spoilt != nil {
		return newest, now, spoilt
	}
	return q.latest(newest), now, nil
}

// read reads the answer of one server.
func (q *quorum) read(r wire.Request, answer any) (one Record, now time.Time, err error) {
	list, _ := answer.([]any)
	if len(list) < 3 {
		return one, now, r.OddReply(answer)
	}
	left, _ := list[1].(int64)
	ms, ok := list[2].(int64)
	if !ok {
		return one, now, r.OddReply(answer)
	}
	now = time.UnixMilli(ms)
	fields := fieldsOf(list[3:])
	if len(fields) == 0 {
		return one, now, nil
	}
	if err = checkSchema(fields); err == nil {
		one, err = readLeader(fields)
	}
	if one.Released.IsZero() {
		// The lock may be that of a candidate that has only a minority.
		one.Left = max(0, min(time.Duration(left)*time.Millisecond, one.Renewed.Add(one.Lease).Sub(now)))
	}
	return one, now, err
}

// olderThan reports whether another record is of a later term, of the end of the same one, or of
// a later renewal.
func (r Record) olderThan(o Record) bool {
	ended := func(r Record) int {
		if r.Released.IsZero() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(r.Token, o.Token), ended(r)-ended(o), r.Renewed.Compare(o.Renewed)) < 0
}

// leftOf returns Left if the other record describes the same leadership.
func (r Record) leftOf(o Record) time.Duration {
	if r.Token != o.Token || !o.Released.IsZero() {
		return 0
	}
	return r.Left
}

func (q *quorum) remember(r Record) { q.latest(r) }

// latest returns the record, or a newer one that was read before. That is necessary if the
// servers of the newer one do not answer, and one of the others has lost its data.
func (q *quorum) latest(r Record) Record {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.e.lock.Client().Elapsed()
	if r.Token < q.seen.Token || r.Token == q.seen.Token && !q.seen.Released.IsZero() {
		old := q.seen
		old.Left = max(0, old.Left-(now-q.at))
		return old
	}
	q.seen, q.at = r, now
	return r
}

// claim begins a term: it writes the record to a majority, with a renewal.
func (q *quorum) claim(ctx context.Context, l *Leadership, k *termLease) error {
	bound, stop := l.Bind(ctx)
	defer stop()
	last, now, err := q.newest(bound)
	if err == nil {
		to := &led{token: l.Token(), term: int64(last.Term) + 1, since: now.UnixMilli(), claims: true}
		k.led.Store(to)
		if err = l.Renew(bound); err == nil {
			k.led.Store(&led{token: to.token, term: to.term, since: to.since})
			l.begun(to.term, to.since)
			return nil
		}
	}
	return errors.Join(lockcore.ErrNotAcquired, context.Cause(bound), err)
}

// renewal returns the request for each server.
func (q *quorum) renewal(a *lock.Attempt, now *led) wire.Request {
	k, must := &q.e.keys, 0
	if now.claims {
		must = 1
	}
	return q.of.Counted(a, q.e.scripts.keep.Call(wire.Keys(k.lock, a.Tomb(), q.of.Marker(), k.leader),
		a.Value(), a.TTL().Milliseconds(), q.of.List(), now.token, q.e.Identity(), q.e.encoded, now.term, now.since, k.channel, must))
}

// vacate writes the end of a term to all servers.
func (q *quorum) vacate(ctx context.Context, r wire.Request) error {
	_, err := q.e.lock.AskAll(ctx, func() wire.Request { return r })
	return err
}

func (*quorum) ordered() bool { return false }

// errNoQueue is the error of Promote.
var errNoQueue = &lockcore.ConfigError{
	Field: "the Client of TransferTo", Value: "of NewQuorum",
	Rule: "of New: the candidates on several servers have no queue. Resign lets any of them lead",
}

const (
	// listAfter is how long a candidate waits before it is listed. A free lock needs no list.
	listAfter = 100 * time.Millisecond
	// listedFor is how long a candidate that has died is listed, in TTLs.
	listedFor = 3
)

// list lists the candidate at all servers, until the returned function is called.
func (q *quorum) list() (stop func()) {
	done := make(chan struct{})
	id, ttl := q.e.lock.Client().NewID(), q.e.lock.TTL()
	q.e.lock.Client().Background(func(ctx context.Context) {
		tell := func(keep time.Duration) {
			r := q.e.scripts.waiting.Call(wire.Keys(q.e.keys.waiting), id, keep.Milliseconds(), q.e.Identity())
			_, _ = q.e.lock.AskAll(ctx, func() wire.Request { return r })
		}
		listed := false
		for pause := listAfter; retry.Sleep(ctx, pause, done); pause = ttl {
			tell(listedFor * ttl)
			listed = true
		}
		if listed {
			tell(0)
		}
	})
	return func() { close(done) }
}

// candidates returns those of a majority of the servers, in the order of their arrival.
func (q *quorum) candidates(ctx context.Context) ([]lock.Waiter, error) {
	r := q.e.scripts.waiting.Call(wire.Keys(q.e.keys.waiting), "", 0, "")
	answers, err := q.e.lock.AskAll(ctx, func() wire.Request { return r })
	if err != nil {
		return nil, err
	}
	all := map[string]lock.Waiter{}
	for _, a := range answers {
		list, _ := a.([]any)
		if len(list) == 0 {
			return nil, r.OddReply(a)
		}
		for id, value := range fieldsOf(list[1:]) {
			since, rest, _ := strings.Cut(value, " ")
			_, identity, found := strings.Cut(rest, " ")
			ms, err := strconv.ParseInt(since, 10, 64)
			if err != nil || !found {
				continue // this library did not write it
			}
			at := time.UnixMilli(ms).UTC()
			if known, ok := all[id]; !ok || at.Before(known.Since) {
				all[id] = lock.Waiter{Identity: identity, Since: at}
			}
		}
	}
	waiters := make([]lock.Waiter, 0, len(all))
	for _, w := range all {
		waiters = append(waiters, w)
	}
	slices.SortFunc(waiters, func(a, b lock.Waiter) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Identity, b.Identity))
	})
	return waiters, nil
}
