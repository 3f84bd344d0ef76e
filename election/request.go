package election

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/noonlock/noonlock/internal/wire"
)

// Resign asks the leader to resign, and returns its record. The leader logs the lockcore.Operator of ctx, and drains as
// after LeaderElector.Resign. The leader gets the request at once by a message, or else with its next renewal, within
// RetryPeriod. Resign does not wait for the leader.
//
// token is the Token of the term that is to end; 0 means the present one. A later leader is not asked. The request has
// no effect if the leader dies before it reads the request, or is already draining.
//
// The errors are ErrNoLeader, ErrTermOver, ErrNewerSchema, and a *noonlock.ConfigError on a Client of
// lockcore.NewQuorum. If the error matches lockcore.ErrUnknown, also together with another of these errors,
// the leader may have been asked.
func (e *Election) Resign(ctx context.Context, token uint64) (LeaderRecord, error) {
	r, err := e.term(ctx, token)
	if err == nil {
		err = e.ask(ctx, r.Token, "")
	}
	return r, e.opError("ask for the resignation of the leader of", err)
}

// TransferTo is like Resign, but asks the leader to hand leadership over to the first candidate with the identity, as
// LeaderElector.TransferTo does. If no candidate has the identity, the error is ErrNoCandidate. If the candidate
// leaves before the leader reads the request, the leader logs that and continues to lead.
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
	return r, e.opError(fmt.Sprintf("ask for a transfer to %q in", identity), err)
}

// term returns the record of the present leader. The error is ErrTermOver if token is neither 0 nor its token.
func (e *Election) term(ctx context.Context, token uint64) (LeaderRecord, error) {
	err := e.refuseQuorum("Election.Resign", "on several servers, only LeaderElector.Resign in the process of the leader can do it")
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

// ask stores a request to the leader with the token. to is the next leader, or empty. The leader reads the
// request with the record, after a message or after its next renewal.
func (e *Election) ask(ctx context.Context, token uint64, to string) error {
	by, reason, err := e.lock.Client().Operator(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(ResignRequest{ID: e.lock.Client().NewID(), By: by, Reason: reason, To: to})
	if err != nil {
		return err
	}
	request := e.scripts.resign.Call(wire.Keys(e.keys.lock, e.keys.leader),
		strconv.FormatUint(token, 10), string(text), e.keys.channel)
	// If the reply to the first try is lost, the leader may have resigned before the second try. Act then adds
	// lockcore.ErrUnknown, so that the caller does not believe that nobody was asked.
	_, _, err = e.lock.Act(ctx, request, func(answer any) error {
		switch n, err := request.Number(answer, nil); {
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
