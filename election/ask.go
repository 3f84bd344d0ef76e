package election

import (
	"context"
	"fmt"
	"slices"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
)

// A ResignRequest is a request of an operator that the leader resigns. Its fields are strings: ID
// differs for each request, By is the operator, Reason may be empty, and To is the candidate that is
// to lead next. To is empty after Election.Resign.
type ResignRequest = record.Request

// A ResignedError is the cause of a leader's context that ended because of Election.Resign or
// Election.TransferTo. It matches ErrResigned.
type ResignedError struct {
	ResignRequest // By, Reason and To
}

func (e *ResignedError) Error() string {
	text := "election: resigned, asked by " + e.By
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	return text
}

// Is reports true for ErrResigned.
func (e *ResignedError) Is(target error) bool { return target == ErrResigned }

// By returns a handle on the election for an operator. The leader logs who asks, and why. The error is
// a *ConfigError.
func (e *Election) By(by lockcore.Operator) (*Election, error) {
	for _, text := range []struct{ field, value string }{{"Operator.Who", by.Who}, {"Operator.Reason", by.Reason}} {
		if rule := input.Remark(text.value); rule != "" {
			return nil, &ConfigError{Field: text.field, Value: input.Quote(text.value), Rule: rule}
		}
	}
	return &Election{election: e.election, by: by}, nil
}

// Resign asks the leader to resign, and returns its record. The leader drains as after
// LeaderElector.Resign; the cause is a *ResignedError. It notices the request at once by a message,
// and at the latest at its next renewal, within RetryPeriod. Resign does not wait for that.
//
// token is the Token of the term that the caller means. A later leader is not asked. 0 means the
// present leader. The request has no effect if the leader dies before it reads it, or if the leader
// is already draining.
//
// The errors are ErrNoLeader, ErrTermOver, ErrNewerSchema, and a *lockcore.ConfigError on a Client of
// lockcore.NewQuorum. If the error matches lockcore.ErrUnknown, also together with one of the others,
// the leader may have been asked. If the server does not answer, Resign returns an error after at
// most 14 s.
func (e *Election) Resign(ctx context.Context, token uint64) (LeaderRecord, error) {
	r, err := e.term(ctx, token)
	if err == nil {
		err = e.election.Ask(ctx, r.Token, e.by, "")
	}
	if err != nil {
		err = fmt.Errorf("election: ask leader of %q to resign: %w", e.Name(), err)
	}
	return r, err
}

// TransferTo asks the leader to hand leadership over to the first candidate with the identity, as
// LeaderElector.TransferTo does. Otherwise, it is like Resign. If no candidate has the identity, the
// error is ErrNoCandidate. If the candidate leaves before the leader notices the request, the
// leader logs that and continues to lead. If the server does not answer, TransferTo returns an
// error after at most 21 s.
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
		err = e.election.Ask(ctx, r.Token, e.by, identity)
	}
	if err != nil {
		err = fmt.Errorf("election: ask leader of %q to transfer to %q: %w", e.Name(), identity, err)
	}
	return r, err
}

// term returns the record of the present leader if its token is the given one, or if that is 0.
func (e *Election) term(ctx context.Context, token uint64) (LeaderRecord, error) {
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

// asked returns the newest request of an operator to the present leadership, if it has not been
// returned before. le.mu is held.
func (le *LeaderElector) asked() (now *leadership, request *record.Request) {
	now, request = le.leadership, le.observed.Asked
	if now == nil || request == nil || le.observed.Token != now.lease.Token() || now.request == request.ID {
		return nil, nil
	}
	now.request = request.ID
	return now, request
}

// obey carries out a request, in the background. A request that fails is not retried: the operator
// may repeat it.
func (le *LeaderElector) obey(now *leadership, request *record.Request) {
	if request == nil {
		return
	}
	now.lease.Background(func(ctx context.Context) {
		if now.lease.Err() != nil {
			return
		}
		log := le.log.WithValues("term", now.lease.Term, "by", request.By, "reason", request.Reason)
		if request.To != "" {
			found, err := now.lease.Promote(ctx, request.To)
			if err == nil && !found {
				err = ErrNoCandidate
			}
			log = log.WithValues("to", request.To)
			if err != nil {
				lock.Log(log, err, "leadership not transferred")
				return
			}
		}
		log.Info("resigning at the request of an operator")
		le.metrics.obeyed(request.To != "")
		now.resign(&ResignedError{*request})
	})
}
