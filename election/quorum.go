package election

import (
	"context"
	"errors"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// readQuorum returns the newest record of a majority of the servers. Each server has a copy of the record, and the
// token says which copy is newer.
//
//	renewal  Each renewal writes the record to the servers with an older one or none. The first one is sent when the
//	         work begins.
//	read     Each majority has a server with the record of the last leader whose first renewal was answered, unless
//	         that server has lost data.
//	end      The release writes the end to the servers. A reader that gets the answer of one of them sees it.
//
// A server that has lost data does not count for readers before it is let in again. While it
// waits, the renewals of the leader write the record there. The lock is granted to an identity if a majority has
// the same holder.
func (e *Election) readQuorum(ctx context.Context, q *lock.Quorum) (newest LeaderRecord, err error) {
	var r wire.Request
	answers, err := e.lock.AskAll(ctx, func() wire.Request {
		r = e.scripts.readMember.Call(wire.Keys(e.keys.lock, e.keys.leader, q.Marker), q.List())
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
		one, err := parseAnswer(list[1:])
		if grants[one.Granted]++; grants[one.Granted] >= q.Majority() {
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
	newest = e.newest.latest(newest, e.lock.Client().Elapsed())
	if newest.Granted = granted; granted != "" {
		newest.Left = 0
	}
	return newest, nil
}

// leftOf returns Left if the other record describes the same leadership.
func (r LeaderRecord) leftOf(o LeaderRecord) time.Duration {
	if r.Token != o.Token || !o.Released.IsZero() {
		return 0
	}
	return r.Left
}
