package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Request of an operator asks the leader to resign.
type Request struct {
	ID     string `json:"id"`               // differs for each request
	By     string `json:"by"`               // the operator, such as user@host
	Reason string `json:"reason,omitempty"` // may be empty
	To     string `json:"to,omitempty"`     // the candidate that is to lead next; empty: the first one
}

var (
	// ErrNoLeader means that nobody leads.
	ErrNoLeader = errors.New("election: no replica leads")

	// ErrTermOver means that the term that was meant is over.
	ErrTermOver = errors.New("election: the term is over")
)

var errAskQuorum = &lockcore.ConfigError{
	Field: "the Client of Election.Resign", Value: "of NewQuorum",
	Rule: "of New: on several servers, only LeaderElector.Resign in the process of the leader can do it",
}

// Ask asks the leader to resign if its lease has the token; to is the candidate that is to lead next,
// see Request. The default of by.Who is the identity of the Client. The leader gets the request with the
// record, after a message or after its next renewal. The errors are ErrNoLeader, ErrTermOver and
// ErrNewerSchema; joined with lockcore.ErrUnknown, the leader may have been asked.
func (e *Election) Ask(ctx context.Context, token uint64, by lockcore.Operator, to string) error {
	if !e.store.ordered() {
		return errAskQuorum
	}
	text, err := json.Marshal(Request{ID: e.lock.Client().NewID(), By: cmp.Or(by.Who, e.Identity()), Reason: by.Reason, To: to})
	if err != nil {
		return err
	}
	ask := e.scripts.resign.Call(wire.Keys(e.keys.lock, e.keys.fence, e.keys.leader),
		strconv.FormatUint(token, 10), string(text), e.keys.channel)
	// If the reply to a try is lost, the leader may have resigned before the next try. Do then joins
	// ErrUnknown, so that the caller does not believe that nobody was asked.
	within := 2 * e.lock.Timeout()
	ctx, cancel := context.WithTimeoutCause(ctx, within, wire.NoAnswer(within))
	defer cancel()
	retry := wire.NewRetry(e.lock.Timeout(), within, nil)
	return retry.Do(ctx, wire.MayRetry, func() error {
		switch n, err := ask.Number(e.lock.Once(ctx, ask)); {
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
}

// readRequest sets Asked.
func (r *Record) readRequest(fields map[string]string) error {
	if asked := fields["asked"]; asked == "" || asked != fields["token"] {
		return nil
	}
	r.Asked = &Request{}
	return json.Unmarshal([]byte(fields["request"]), r.Asked)
}

// request returns the ID of Asked.
func (r Record) request() string {
	if r.Asked == nil {
		return ""
	}
	return r.Asked.ID
}

// Noticed implements lock.Noticer: the record asks the leader to resign. Watchers of the record
// get the request.
func (k *termLease) Noticed(*lock.Attempt) {
	obs := k.e.watched
	obs.mu.Lock()
	o := obs.all[k.e.name]
	obs.mu.Unlock()
	if o != nil {
		obs.readSoon(o)
	}
}

// Background runs a task that Close of the Client waits for. It returns false, and does not run
// the task, if Close no longer waits.
func (l *Leadership) Background(task func(context.Context)) bool {
	return l.e.lock.Client().Background(task)
}
