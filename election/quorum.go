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
//	renewal  it writes the record to each server that has an older one, or none. The first one is sent when the
//	         work begins
//	read     of the answers of a majority, the one with the greatest token. Each majority has a server with the
//	         record of the last leader whose first renewal was answered, unless that server has lost data
//	end      the release writes it to the servers. A reader that gets the answer of one of them sees it
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

// look returns the newest record of a majority. The lock is granted to somebody if a majority has the same holder.
func (q *quorum) look(ctx context.Context) (newest LeaderRecord, err error) {
	k := &q.e.keys
	var r wire.Request
	answers, err := q.e.lock.AskAll(ctx, func() wire.Request {
		r = q.e.scripts.view.Call(wire.Keys(k.lock, k.leader, q.of.Marker()), q.of.List())
		return r
	})
	if err != nil {
		return newest, err
	}
	var spoilt error
	granted, grants := "", map[string]int{}
	for _, a := range answers {
		list, _ := a.([]any)
		if len(list) < 3 {
			return newest, r.OddReply(a)
		}
		one, err := readAnswer(list[1:])
		if grants[one.Granted]++; grants[one.Granted] >= q.of.Majority() {
			granted = one.Granted
		}
		switch {
		case errors.Is(err, ErrNewerSchema):
			return newest, err
		case err != nil:
			spoilt = err
		case newest.olderThan(one):
			one.Left = max(one.Left, newest.leftOf(one))
			newest = one
		default:
			newest.Left = max(newest.Left, one.leftOf(newest))
		}
	}
	if newest.Token == 0 && spoilt != nil {
		return newest, spoilt
	}
	newest = q.latest(newest)
	if newest.Granted = granted; granted != "" {
		newest.Left = 0
	}
	return newest, nil
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

// renewal returns the request for each server.
func (q *quorum) renewal(a *lock.Attempt, token uint64, age int64) wire.Request {
	e, k := q.e, &q.e.keys
	return q.of.Counted(a, e.scripts.keep.Call(wire.Keys(k.lock, a.Tomb(), q.of.Marker(), k.leader), a.Value(), a.TTL().Milliseconds(),
		q.of.List(), token, e.lock.Client().Identity(), e.metadata, age, k.channel))
}
