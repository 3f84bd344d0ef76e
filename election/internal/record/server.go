package record

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

func (s server) ready(ctx context.Context) error {
	_, _, err := s.read(ctx)
	return err
}

// read returns the answer of leader_look, and the fields of the record.
func (s server) read(ctx context.Context) (answer []any, fields map[string]string, err error) {
	ask := s.e.scripts.look.Call(wire.Keys(s.e.keys.lock, s.e.keys.fence, s.e.keys.leader))
	answer, err = s.e.list(ctx, ask)
	if err != nil {
		return nil, nil, err
	}
	if len(answer) < 2 || len(answer)%2 != 0 {
		return nil, nil, ask.OddReply(answer)
	}
	fields = fieldsOf(answer[2:])
	return answer, fields, checkSchema(fields)
}

func (s server) look(ctx context.Context) (r Record, err error) {
	answer, fields, err := s.read(ctx)
	if err != nil || len(fields) == 0 {
		return r, err
	}
	if r, err = readLeader(fields); err != nil {
		return r, err
	}
	// The counter expires a week after the last grant, even if that leader still leads.
	token := cmp.Or(wire.Text(answer[1]), fields["token"])
	if left, _ := answer[0].(int64); token == fields["token"] && r.Released.IsZero() {
		r.Left = time.Duration(left) * time.Millisecond
	}
	return r, nil
}

// claim writes the record, unless that was done while the grant was confirmed. It retries while the
// lease is valid.
func (s server) claim(ctx context.Context, l *Leadership, k *termLease) error {
	bound, stop := l.Bind(ctx)
	defer stop()
	token := strconv.FormatUint(l.Token(), 10)
	r := s.e.claimOf(l.Value(), token)
	if answer := k.early.wait(bound); tokenOf(answer) == token {
		return l.claimed(k, r, answer)
	}
	answer, err := s.e.lock.Persist(bound, r)
	if err != nil {
		return errors.Join(lockcore.ErrNotAcquired, context.Cause(bound), err)
	}
	return l.claimed(k, r, answer)
}

// claimOf returns the request that writes the record. An empty token is unknown.
func (e *Election) claimOf(value, token string) wire.Request {
	return e.scripts.claim.Call(wire.Keys(e.keys.lock, e.keys.leader, e.keys.fence),
		value, e.lock.TTL().Milliseconds(), token, e.Identity(), e.encoded, e.keys.channel)
}

// tokenOf returns the token in the reply of leader_claim, "" if there is none.
func tokenOf(answer any) string {
	if list, _ := answer.([]any); len(list) == 3 {
		return wire.Text(list[2])
	}
	return ""
}

// An earlyClaim is a leader_claim that was sent before the lease began.
type earlyClaim struct {
	stop   context.CancelFunc
	done   chan struct{}
	answer any // after done; nil: none
}

// wait returns the answer, nil if there is none.
func (c *earlyClaim) wait(ctx context.Context) any {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return c.answer
	case <-ctx.Done():
		return nil
	}
}

// end ends the request, and waits until it has ended.
func (c *earlyClaim) end() {
	if c != nil {
		c.stop()
		<-c.done
	}
}

// Granted implements lock.Early: the record is written while the grant is confirmed. If the grant has
// ended, the request changes nothing.
func (k *termLease) Granted(ctx context.Context, a *lock.Attempt) {
	k.early.end()
	ctx, stop := context.WithCancel(ctx)
	c := &earlyClaim{stop: stop, done: make(chan struct{})}
	k.early = c
	k.unbegun.Store(true)
	r := k.e.claimOf(a.Value(), "")
	go func() { // Campaign waits for it
		defer close(c.done)
		c.answer, _ = k.e.lock.Once(ctx, r) // without an answer, the claim is sent again
	}()
}

// claimed evaluates the reply of leader_claim.
func (l *Leadership) claimed(k *termLease, r wire.Request, answer any) error {
	list, _ := answer.([]any)
	switch {
	case len(list) == 3:
		term, ok1 := list[0].(int64)
		since, ok2 := list[1].(int64)
		if !ok1 || !ok2 || term < 1 {
			break
		}
		k.led.Store(&led{token: l.Token(), term: term, since: since})
		l.begun(term, since)
		return nil
	case len(list) == 1 && list[0] == int64(0):
		l.Lose()
		return errors.Join(lockcore.ErrNotAcquired, lockcore.ErrLeaseLost)
	case len(list) == 1 && list[0] == int64(-1):
		return errors.Join(lockcore.ErrNotAcquired, ErrNewerSchema)
	}
	return r.OddReply(answer)
}

func (s server) renewal(a *lock.Attempt, now *led) wire.Request {
	e := s.e
	return e.scripts.renew.Call(wire.Keys(e.keys.lock, e.keys.leader),
		a.Value(), a.TTL().Milliseconds(), now.token, e.Identity(), e.encoded, now.term, now.since, e.keys.channel)
}

func (s server) vacate(ctx context.Context, r wire.Request) error {
	_, err := s.e.lock.Once(ctx, r)
	return err
}

func (server) remember(Record) {}

// list does nothing: a candidate is listed by its place in the queue.
func (server) list() (stop func()) { return func() {} }

func (s server) candidates(ctx context.Context) ([]lock.Waiter, error) {
	return s.e.lock.Queue(ctx)
}

func (server) ordered() bool { return true }
