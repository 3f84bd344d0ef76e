package election

import (
	"context"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A server keeps the record of an election beside its lock, on one server. It implements store.
type server struct{ e *Election }

func (s server) look(ctx context.Context) (r LeaderRecord, err error) {
	ask := s.e.scripts.look.Call(wire.Keys(s.e.keys.lock, s.e.keys.leader))
	reply, err := s.e.lock.Ask(ctx, ask)
	if err != nil {
		return r, err
	}
	answer, _ := reply.([]any)
	if len(answer) < 2 || len(answer)%2 != 0 {
		return r, ask.OddReply(reply)
	}
	return readAnswer(answer)
}

// readAnswer reads what leader_look answers: how long the leader of the record leads, to whom the lock is
// granted, and the fields of the record.
func readAnswer(answer []any) (r LeaderRecord, err error) {
	if fields := fieldsOf(answer[2:]); len(fields) > 0 {
		r, err = readRecord(fields)
	}
	if left, _ := answer[0].(int64); r.Token > 0 && r.Released.IsZero() {
		r.Left = max(0, time.Duration(left)*time.Millisecond)
	}
	r.Granted = wire.Text(answer[1])
	return r, err
}

func (s server) renewal(a *lock.Attempt, token uint64, age int64) wire.Request {
	e := s.e
	return e.scripts.renew.Call(wire.Keys(e.keys.lock, e.keys.leader, e.keys.terms), a.Value(), a.TTL().Milliseconds(),
		token, e.lock.Client().Identity(), e.metadata, age, e.keys.channel)
}
