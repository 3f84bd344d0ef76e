package election

import (
	"context"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// Record reads the election's record from the server: the leader and its token.
// It is the zero value if no replica has led for a week.
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
