package election

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A server keeps the record of an election beside its lock, on one server. It implements store.
type server struct{ e *Election }

func (s server) look(ctx context.Context) (r LeaderRecord, err error) {
	ask := s.e.scripts.look.Call(wire.Keys(s.e.keys.lock, s.e.keys.fence, s.e.keys.leader))
	reply, err := s.e.lock.Ask(ctx, ask)
	if err != nil {
		return r, err
	}
	answer, _ := reply.([]any)
	if len(answer) < 2 || len(answer)%2 != 0 {
		return r, ask.OddReply(reply)
	}
	fields := fieldsOf(answer[2:])
	if len(fields) == 0 {
		return r, nil
	}
	if r, err = readRecord(fields); err != nil {
		return r, err
	}
	// The counter expires a week after the last grant, even if that leader still leads.
	token := cmp.Or(wire.Text(answer[1]), fields["token"])
	if left, _ := answer[0].(int64); token == fields["token"] && r.Released.IsZero() {
		r.Left = time.Duration(left) * time.Millisecond
	}
	return r, nil
}

// claimOf returns the request that writes the record. An empty token is unknown.
func (e *Election) claimOf(value, token string) wire.Request {
	return e.scripts.claim.Call(wire.Keys(e.keys.lock, e.keys.leader, e.keys.fence, e.keys.terms),
		value, e.lock.TTL().Milliseconds(), token, e.lock.Client().Identity(), e.metadata, e.keys.channel)
}

// Granted implements lock.Early: the record is written while the grant is confirmed. If the grant has
// ended, the request changes nothing.
func (l *leadership) Granted(ctx context.Context, a *lock.Attempt) {
	l.unbegun.Store(true)
	early, r := make(chan any, 1), l.e.claimOf(a.Value(), "")
	l.early = early
	go func() {
		reply, _ := l.e.lock.Once(ctx, r) // without a reply, the claim is sent again
		early <- reply
	}()
}

// claim writes the record, unless that was done while the grant was confirmed. It retries while the
// lease is valid.
func (s server) claim(ctx context.Context, l *leadership) error {
	token := strconv.FormatUint(l.lease.Token(), 10)
	r := s.e.claimOf(l.lease.Value(), token)
	var reply any
	if l.early != nil {
		select {
		case reply = <-l.early:
		case <-ctx.Done():
		}
	}
	answer, _ := reply.([]any)
	if len(answer) != 3 || wire.Text(answer[2]) != token {
		var err error
		if reply, err = s.e.lock.Persist(ctx, r); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		answer, _ = reply.([]any)
	}
	switch {
	case len(answer) == 3:
		number, ok1 := answer[0].(int64)
		since, ok2 := answer[1].(int64)
		if !ok1 || !ok2 || number < 1 {
			break
		}
		l.led.Store(&led{term: term{Number: uint64(number), Token: l.lease.Token(), Since: time.UnixMilli(since).UTC()}})
		return nil
	case len(answer) == 1 && answer[0] == int64(0):
		l.lease.Lose()
		return lockcore.ErrLeaseLost
	case len(answer) == 1 && answer[0] == int64(-1):
		return ErrNewerSchema
	}
	return r.OddReply(reply)
}

func (s server) renewal(a *lock.Attempt, now *led) wire.Request {
	e := s.e
	return e.scripts.renew.Call(wire.Keys(e.keys.lock, e.keys.leader), a.Value(), a.TTL().Milliseconds(),
		now.Token, e.lock.Client().Identity(), e.metadata, now.Number, now.Since.UnixMilli(), e.keys.channel)
}

func (s server) vacate(ctx context.Context, r wire.Request) error {
	_, err := s.e.lock.Once(ctx, r)
	return err
}
