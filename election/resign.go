package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// Resign releases leadership. The context of OnStartedLeading is done with ErrResigned;
// when the callback has returned, the next candidate in the queue leads. Run then campaigns
// again, at the end of the queue.
//
// Resign returns when leadership is released. If ctx ends before, it returns ctx's error,
// and the release continues. Within OnStartedLeading, pass a context that ends. Otherwise
// Resign deadlocks, because it waits for the callback to return. The error is ErrNotLeader
// if this replica does not lead. It is lockcore.ErrNotHeld joined with the cause if the
// lease was lost meanwhile.
func (le *LeaderElector) Resign(ctx context.Context) error {
	now, err := le.mine()
	if err == nil {
		err = now.resign(ctx)
	}
	return le.election.failed("resign", err)
}

// TransferTo hands leadership over to the first candidate with the identity. It moves this
// candidate to the head of the queue and then resigns like Resign. If no candidate has the
// identity, the error is ErrNoCandidate, and this replica remains the leader. While the work
// drains, no other candidate passes the chosen one, not even one that rejoins at an older
// place. Only a later TransferTo puts another candidate first. If the candidate does not
// answer within a second of the release, the next one leads. If the server does not answer, TransferTo does not resign.
func (le *LeaderElector) TransferTo(ctx context.Context, identity string) error {
	now, err := le.mine()
	if err == nil {
		err = now.promote(ctx, identity)
	}
	if err == nil {
		err = now.resign(ctx)
	}
	return le.election.failed(fmt.Sprintf("transfer to %q in", identity), err)
}

// mine returns the leadership, or why this replica does not lead.
func (le *LeaderElector) mine() (*leadership, error) {
	now := le.current()
	if now == nil {
		return nil, ErrNotLeader
	}
	if lost := now.Err(); lost != nil {
		return nil, errors.Join(ErrNotLeader, lost)
	}
	return now, nil
}

// promote moves the first candidate with the identity to the head of the queue. The error is
// ErrNotHeld if the leadership has ended.
func (l *leadership) promote(ctx context.Context, identity string) error {
	if cause := l.Err(); cause != nil {
		return errors.Join(lockcore.ErrNotHeld, cause)
	}
	if err := l.e.one("TransferTo", "the candidates on several servers have no queue. Resign lets any of them lead"); err != nil {
		return err
	}
	return l.lease.Promote(ctx, identity, ErrNoCandidate)
}

// giveUp ends the work.
func (l *leadership) giveUp(cause error) {
	l.resigned.Store(true)
	l.stop(cause)
}

// resign ends the work and waits for the release.
func (l *leadership) resign(ctx context.Context) error {
	l.giveUp(ErrResigned)
	select {
	case <-l.released:
		return l.err
	case <-ctx.Done():
		return errors.Join(ctx.Err(), errors.New("election: leadership is released as soon as OnStartedLeading has returned"))
	}
}

// An asked is the cause of a leader's context that ended because of Election.Resign or
// Election.TransferTo.
type asked struct{ ResignRequest }

func (e *asked) Error() string {
	text := "election: resigned, asked by " + e.By
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports true for ErrResigned.
func (e *asked) Is(target error) bool { return target == ErrResigned }

// Resign asks the leader to resign, and returns its record. The leader logs the lockcore.Operator of ctx. The leader drains as after
// LeaderElector.Resign. It notices the request at once by a message,
// and at the latest at its next renewal, within RetryPeriod. Resign does not wait for that.
//
// token is the Token of the term that the caller means. A later leader is not asked. 0 means the
// present leader. The request has no effect if the leader dies before it reads it, or if the leader
// is already draining.
//
// The errors are ErrNoLeader, ErrTermOver, ErrNewerSchema, and a *noonlock.ConfigError on a Client of
// lockcore.NewQuorum. If the error matches lockcore.ErrUnknown, also together with one of the others,
// the leader may have been asked.
func (e *Election) Resign(ctx context.Context, token uint64) (LeaderRecord, error) {
	r, err := e.term(ctx, token)
	if err == nil {
		err = e.ask(ctx, r.Token, "")
	}
	return r, e.failed("ask for the resignation of the leader of", err)
}

// TransferTo asks the leader to hand leadership over to the first candidate with the identity, as
// LeaderElector.TransferTo does. Otherwise, it is like Resign. If no candidate has the identity, the
// error is ErrNoCandidate. If the candidate leaves before the leader notices the request, the
// leader logs that and continues to lead.
func (e *Election) TransferTo(ctx context.Context, token uint64, identity string) (LeaderRecord, error) {
	r, err := e.term(ctx, token)
	var all []Candidate
	if err == nil {
		all, err = e.Candidates(ctx)
	}
	if err == nil && !slices.ContainsFunc(all, func(c Candidate) bool { return c.Identity == identity }) {
		err = ErrNoCandidate
	}
	if err == nil {
		err = e.ask(ctx, r.Token, identity)
	}
	return r, e.failed(fmt.Sprintf("ask for a transfer to %q in", identity), err)
}

// term returns the record of the present leader if its token is the given one, or if that is 0.
func (e *Election) term(ctx context.Context, token uint64) (LeaderRecord, error) {
	err := e.one("Election.Resign", "on several servers, only LeaderElector.Resign in the process of the leader can do it")
	if err != nil {
		return LeaderRecord{}, err
	}
	r, err := e.Record(ctx)
	switch {
	case err != nil:
	case r.Left <= 0:
		err = ErrNoLeader
	case token != 0 && token != r.Token:
		err = ErrTermOver
	}
	return r, err
}

// ask asks the leader to resign if its lease has the token; to is the candidate that is to lead next.
// The leader gets the request with the record, after a message or after its next renewal. The
// errors are those of Election.Resign.
func (e *Election) ask(ctx context.Context, token uint64, to string) error {
	who, reason, err := e.lock.Client().Operator(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(ResignRequest{ID: e.lock.Client().NewID(), By: who, Reason: reason, To: to})
	if err != nil {
		return err
	}
	ask := e.scripts.resign.Call(wire.Keys(e.keys.lock, e.keys.leader),
		strconv.FormatUint(token, 10), string(text), e.keys.channel)
	// The leader may have resigned before the second try. The caller must not believe that nobody was asked.
	_, _, err = e.lock.Act(ctx, ask, func(answer any) error {
		switch n, err := ask.Number(answer, nil); {
		case err != nil:
			return err
		case n == 0:
			return ErrNoLeader
		case n == -1:
			return ErrNewerSchema
		case n == -2:
			return ErrTermOver
		}
		return nil
	})
	return err
}

// obey carries out the request of an operator to the present leadership, if the observed record has a new one,
// in the background. A request that fails is not retried: the operator may repeat it.
func (le *LeaderElector) obey() {
	le.mu.Lock()
	now, request := le.leadership, le.observed.Asked
	isNew := now != nil && request != nil && le.observed.Token == now.lease.Token() && now.request != request.ID
	if isNew {
		now.request = request.ID
	}
	le.mu.Unlock()
	if !isNew {
		return
	}
	le.election.lock.Client().Background(func(ctx context.Context) {
		if now.Err() != nil {
			return
		}
		obeyed, log := le.metrics.resigns, le.log.WithValues("token", now.lease.Token(), "by", request.By, "reason", request.Reason)
		if request.To != "" {
			obeyed, log = le.metrics.transfers, log.WithValues("to", request.To)
			if err := now.promote(ctx, request.To); err != nil {
				lock.Log(log, err, "leadership not transferred")
				return
			}
		}
		log.Info("resigning at the request of an operator")
		obeyed.Inc()
		now.giveUp(&asked{*request})
	})
}
