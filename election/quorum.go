package election

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
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
	seen LeaderRecord // the newest that was read; reads of a handle never go back
	at   time.Duration
}

func (q *quorum) look(ctx context.Context) (LeaderRecord, error) {
	newest, _, err := q.newest(ctx)
	return newest, err
}

// newest returns the newest record of a majority, and the clock of a server.
func (q *quorum) newest(ctx context.Context) (newest LeaderRecord, now time.Time, err error) {
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
func (q *quorum) read(r wire.Request, answer any) (one LeaderRecord, now time.Time, err error) {
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
	one, err = readRecord(fields)
	if one.Released.IsZero() {
		// The lock may be that of a candidate that has only a minority.
		one.Left = max(0, min(time.Duration(left)*time.Millisecond, one.Renewed.Add(one.Lease).Sub(now)))
	}
	return one, now, err
}

// olderThan reports whether another record is of a later term, of the end of the same one, or of
// a later renewal.
func (r LeaderRecord) olderThan(o LeaderRecord) bool {
	return cmp.Or(cmp.Compare(r.Token, o.Token), r.Released.Compare(o.Released), r.Renewed.Compare(o.Renewed)) < 0
}

// leftOf returns Left if the other record describes the same leadership.
func (r LeaderRecord) leftOf(o LeaderRecord) time.Duration {
	if r.Token != o.Token || !o.Released.IsZero() {
		return 0
	}
	return r.Left
}

// latest returns the record, or a newer one that was read before. That is necessary if the
// servers of the newer one do not answer, and one of the others has lost its data.
func (q *quorum) latest(r LeaderRecord) LeaderRecord {
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
func (q *quorum) claim(ctx context.Context, l *leadership) error {
	last, now, err := q.newest(ctx)
	if err == nil || errors.Is(err, errSpoilt) {
		term := term{Number: last.Term + 1, Token: l.lease.Token(), Since: now.UTC()}
		l.led.Store(&led{term: term, claims: true})
		if err = l.lease.Renew(ctx); err == nil {
			l.led.Store(&led{term: term})
			return nil
		}
	}
	return errors.Join(context.Cause(ctx), err)
}

// renewal returns the request for each server.
func (q *quorum) renewal(a *lock.Attempt, now *led) wire.Request {
	e, k, must := q.e, &q.e.keys, 0
	if now.claims {
		must = 1
	}
	return q.of.Counted(a, e.scripts.keep.Call(wire.Keys(k.lock, a.Tomb(), q.of.Marker(), k.leader), a.Value(), a.TTL().Milliseconds(),
		q.of.List(), now.Token, e.lock.Client().Identity(), e.metadata, now.Number, now.Since.UnixMilli(), k.channel, must))
}

// vacate writes the end of a term to all servers.
func (q *quorum) vacate(ctx context.Context, r wire.Request) error {
	_, err := q.e.lock.AskAll(ctx, func() wire.Request { return r })
	return err
}
