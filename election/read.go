package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// Record reads the election's record from the server: the leader and its token.
// The record is the zero value if no replica has led for a week.
func (e *Election) Record(ctx context.Context) (LeaderRecord, error) {
	r, err := e.read(ctx)
	if err != nil {
		return LeaderRecord{}, e.opError("leader", err)
	}
	return r, nil
}

// read reads the record from the server, or from a majority of a quorum.
func (e *Election) read(ctx context.Context) (r LeaderRecord, err error) {
	if q := e.lock.Client().Quorum(); q != nil {
		return e.readQuorum(ctx, q)
	}
	request := e.scripts.read.Call(wire.Keys(e.keys.lock, e.keys.leader))
	reply, err := e.lock.Ask(ctx, request)
	if err != nil {
		return r, err
	}
	answer, _ := reply.([]any)
	if len(answer) < 2 || len(answer)%2 != 0 {
		return r, request.OddReply(reply)
	}
	return parseAnswer(answer)
}

// readQuorum returns the newest record of a majority of the servers. Each server has a copy of the record, and the
// token says which copy is newer.
//
//	renewal  Each renewal writes the record to the servers with an older record or none. The first renewal is sent
//	         when the work begins.
//	read     Each majority has a server with the record of the last leader whose first renewal was answered, unless
//	         that server has lost data.
//	end      The release writes the end to the servers. A reader that gets the answer of one of them sees it.
//
// A server that has lost data does not count for readers before it is let in again. While this server
// waits, the renewals of the leader write the record there. The lock is granted to an identity if a majority has
// this identity as the holder.
func (e *Election) readQuorum(ctx context.Context, q *lock.Quorum) (newest LeaderRecord, err error) {
	var request wire.Request
	answers, err := e.lock.AskAll(ctx, func() wire.Request {
		request = e.scripts.readMember.Call(wire.Keys(e.keys.lock, e.keys.leader, q.Marker), q.List())
		return request
	})
	if err != nil {
		return newest, err
	}
	var spoilt error
	granted, grants := "", map[string]int{}
	for _, a := range answers {
		list, _ := a.([]any)
		if len(list) < 3 {
			return newest, request.OddReply(a)
		}
		record, err := parseAnswer(list[1:])
		if grants[record.Granted]++; grants[record.Granted] >= q.Majority() {
			granted = record.Granted
		}
		switch {
		case errors.Is(err, ErrNewerSchema):
			return newest, err
		case err != nil:
			spoilt = err
		case newest.olderThan(record):
			record.Left = max(record.Left, newest.leftOf(record))
			newest = record
		default:
			newest.Left = max(newest.Left, record.leftOf(newest))
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

// renewal returns the request that renews the lease and the record at a server. age is the time since the work
// began, in ms.
func (e *Election) renewal(a *lock.Attempt, token uint64, age int64) wire.Request {
	c, k := e.lock.Client(), &e.keys
	if q := c.Quorum(); q != nil {
		return a.CountedRenewal(e.scripts.renewMember.Call(wire.Keys(k.lock, a.Tomb(), q.Marker, k.leader), a.Value(),
			a.TTL().Milliseconds(), q.List(), token, c.Identity(), e.metadata, age, k.channel))
	}
	return e.scripts.renew.Call(wire.Keys(k.lock, k.leader, k.terms), a.Value(), a.TTL().Milliseconds(),
		token, c.Identity(), e.metadata, age, k.channel)
}

// Terms returns the newest 100 terms of the last week, newest first. Each has a Holder, a Token, and the times Acquired
// and Released. Released is when the leader resigned, or when the next leader took over. A term that was over within a
// round trip may be missing. On a Client of lockcore.NewQuorum, the error is a *noonlock.ConfigError.
func (e *Election) Terms(ctx context.Context) ([]LeaderRecord, error) {
	err := e.refuseQuorum("Terms", "they are not kept on several servers")
	var now LeaderRecord
	if err == nil {
		now, err = e.Record(ctx)
	}
	var reply any
	if err == nil {
		reply, err = e.lock.Ask(ctx, wire.Command("lrange", e.keys.terms, "0", "-1").On(e.keys.terms))
	}
	rows, _ := reply.([]any)
	all := []LeaderRecord{}
	released := now.Released
	for _, row := range rows {
		r := LeaderRecord{Released: released}
		var begun, predecessorResigned int64 // ms; predecessorResigned is 0 if the leader before did not resign
		if _, err := fmt.Sscan(wire.Text(row), &r.Token, &begun, &predecessorResigned); err != nil {
			return nil, e.opError("terms", errSpoilt, err)
		}
		r.Holder = strings.SplitN(wire.Text(row), " ", 4)[3]
		r.Acquired = time.UnixMilli(begun).UTC()
		if released = r.Acquired; predecessorResigned > 0 {
			released = time.UnixMilli(predecessorResigned).UTC()
		}
		all = append(all, r)
	}
	return all, e.opError("terms", err)
}
