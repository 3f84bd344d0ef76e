package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// calm is a config whose lease survives a stall of a busy machine.
func calm() election.Config {
	return election.Config{LeaseDuration: 20 * time.Second, RetryPeriod: 200 * time.Millisecond}
}

// operator returns a handle on the election, and the context of ann@host.
func (e *env) operator() (board *election.Election, ann context.Context) {
	e.Helper()
	board = testenv.Call(election.NewElection(e.Client("operator"), electionName)).Must(e)
	return board, lockcore.WithOperator(e.Context(), lockcore.Operator{Who: "ann@host", Reason: "rollout"})
}

// An operator asks the leader to resign, or to transfer leadership. The leader notices it by
// message, or if messages are lost, at its next renewal. It drains, and the cause says who asks and
// why. The leader logs and counts it.
// Mutants: no message; the renewal does not tell; the request is carried out twice.
func TestOperatorResigns(t *testing.T) {
	for name, deaf := range map[string]bool{"by message": false, "by renewal": true} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(e *env) {
				var log testenv.Log
				reg := prometheus.NewRegistry()
				opt, net := e.Link()
				client := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Info(""), Registerer: reg})
				cfg := calm()
				if deaf {
					net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel(e.Channel("election/"+electionName, "leader:0:"+electionName))})
				} else {
					cfg.RetryPeriod = 2 * time.Second
				}
				a, b, c := e.replica(client, cfg), e.replica(e.Client("b"), calm()), e.replica(e.Client("c"), calm())
				drained := make(chan struct{})
				a.work = func(ctx context.Context) {
					<-ctx.Done()
					<-drained
				}
				e.queueUp(a, b, c)
				board, ann := e.operator()
				for _, by := range []lockcore.Operator{{Who: "a\nb"}, {Reason: strings.Repeat("x", 201)}} {
					testenv.Call(board.Resign(lockcore.WithOperator(e.Context(), by), 0)).MustFail(e, noonlock.ErrConfig)
				}
				begin := e.Clock()
				r := testenv.Call(board.Resign(ann, 0)).Must(e)
				if r.Holder != "a" || r.Token != a.leads(1) {
					e.Errorf("asked is %+v", r)
				}
				e.Until("a knows it", func() bool { return a.leading().Err() != nil })
				if took := e.Clock() - begin; !deaf && e.Bubble != nil && took > time.Second {
					e.Errorf("it took %v", took)
				}
				cause := context.Cause(a.leading())
				if !errors.Is(cause, election.ErrResigned) || cause.Error() != "election: resigned, asked by ann@host: rollout" {
					e.Errorf("the cause is %v", cause)
				}
				r, err := board.Resign(ann, r.Token) // while it drains
				if err != nil || r.Asked == nil || r.Asked.By != "ann@host" || r.Asked.Reason != "rollout" {
					e.Errorf("asked again: %+v, %v", r.Asked, err)
				}
				b.never()
				close(drained)
				second := b.recorded(1)
				testenv.Call(board.Resign(ann, r.Token)).MustFail(e, election.ErrTermOver)
				testenv.Call(board.TransferTo(ann, 0, "x")).MustFail(e, election.ErrNoCandidate)
				e.queued(2)
				r = testenv.Call(board.TransferTo(ann, second, "a")).Must(e)
				a.recorded(2)
				mustIs(e, b.ended(1), election.ErrResigned)
				if r.Holder != "b" {
					e.Errorf("asked is %+v", r)
				}
				e.queued(2)
				_, err = board.TransferTo(ann, 0, "b")
				must(e, err)
				b.recorded(2)
				c.never()
				e.Until("it is logged", func() bool {
					return log.Count("resigning at the request of an operator", `"by"="ann@host" "reason"="rollout" "to"="b"`) == 1
				})
				for _, action := range []string{"resign", "transfer"} {
					if n := value(e, reg, "noonlock_election_interventions_total", "action", action); n < 1 || n > 2 {
						e.Errorf("%s is counted %v times", action, n)
					}
				}
				r, err = board.Record(e.Context())
				if err != nil || r.Asked != nil {
					e.Errorf("the new leader was asked: %+v, %v", r.Asked, err)
				}
				e.oneAtATime()
			})
		})
	}
}

// If the reply is lost, and the leader has resigned before the request is sent again, the operator
// gets ErrUnknown: somebody was asked. So does a leader whose candidate was promoted and has left.
func TestFault26_OperatorLosesTheReply(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		client, net := e.Linked("operator")
		net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("leader_resign"), Count: 1})
		board := testenv.Call(election.NewElection(client, electionName)).Must(e)
		a, b := e.replica(e.Client("a"), calm()), e.replica(e.Client("b"), calm())
		e.queueUp(a, b)
		_, err := board.Resign(e.Context(), 0)
		mustIs(e, err, election.ErrTermOver)
		mustIs(e, err, lockcore.ErrUnknown)
		mustIs(e, a.ended(1), election.ErrResigned)
		b.leads(1)
	})
	inBubble(t, func(e *env) {
		client, net := e.Linked("a")
		a, b := e.replica(client, calm()), e.replica(e.Client("b"), calm())
		e.queueUp(a, b)
		lost := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("lock_promote"), Count: 1})
		answered := make(chan error, 1)
		go func() { answered <- a.le.TransferTo(e.Context(), "b") }()
		must(e, lost.Wait(e.Context(), 1))
		b.stop()
		mustIs(e, <-answered, election.ErrNoCandidate, lockcore.ErrUnknown)
	})
}

// A leader whose successor has left meanwhile remains the leader, and says so.
func TestOperatorTransfersToACandidateThatLeaves(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var log testenv.Log
		opt, net := e.Link()
		client := e.ClientWith(opt, lockcore.Config{Identity: "a", Logger: log.Info("")})
		a, b := e.replica(client, calm()), e.replica(e.Client("b"), calm())
		e.queueUp(a, b)
		late := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("lock_promote"), Count: 1})
		board, ann := e.operator()
		_, err := board.TransferTo(ann, 0, "b")
		must(e, err)
		must(e, late.Wait(e.Context(), 1))
		b.stop()
		e.queued(0)
		late.Lift()
		e.Until("it is logged", func() bool {
			return log.Count("leadership not transferred", election.ErrNoCandidate.Error(), `"by"="ann@host"`, `"to"="b"`) == 1
		})
		e.Pass(time.Minute)
		if _, n := a.term(); n != 1 || !a.le.IsLeader() {
			e.Errorf("a does not lead any more, term %d", n)
		}
		testenv.Equal(e, "lines about a refused transfer", log.Count("not transferred"), 1)
		_, err = board.Resign(ann, 0)
		must(e, err)
		a.leads(2)
	})
}

// leading returns the context of its newest work.
func (r *replica) leading() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx
}
