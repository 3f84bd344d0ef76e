package election_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The server restarts with its data: the leadership continues, and the queue stays.
//
// Caught mutant: the leadership ends when the connection breaks.
func TestFault14_RestartWithData(t *testing.T) {
	t.Parallel()
	test := func(e *env, restart func()) {
		cfg := quick("")
		cfg.LeaseDuration, cfg.RenewDeadline = 15*time.Second, 14*time.Second
		a, b := e.replica(e.Client("a"), cfg), e.replica(e.Client("b"), cfg)
		e.queueUp(a, b)
		before := e.record()["renewed"]
		restart()
		e.Until("it renews again", func() bool { return e.record()["renewed"] > before })
		if _, n := a.term(); n != 1 || !a.le.IsLeader() {
			t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
		}
		b.never()
		// A candidate without a connection is passed over, which is not the subject of this
		// test.
		e.Until("both are subscribed again", func() bool {
			return e.Subscribers("election/"+electionName, "leader:"+electionName) == 2
		})
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.history.Require(e)
	}
	t.Run("bubble", func(t *testing.T) {
		t.Parallel()
		inBubble(t, func(e *env) {
			test(e, func() {
				e.Bubble.Stop()
				e.Pass(2 * time.Second)
				must(e, e.Bubble.Start(false))
			})
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		e := realEnv(t, "appendonly yes", "appendfsync always")
		test(e, func() { e.Real.Restart(e) })
	})
}

// The server restarts empty. The leader notices at its next renewal, and one replica leads
// with a greater token. Terms begin again.
//
// Caught mutant: a token counter that begins at 1.
func TestFault15_EmptyRestart(t *testing.T) {
	onBoth(t, func(e *env) {
		a, _, _ := e.trio()
		first := a.leads(1)
		e.LoseData()
		mustIs(e, a.ended(1), lockcore.ErrLeaseLost)
		second := e.anotherLead(first)
		if second.Token <= first.Token {
			t.Errorf("token %d after %d", second.Token, first.Token)
		}
	})
}

// anotherLead waits for a term with another token.
func (e *env) anotherLead(than election.Term) (found election.Term) {
	e.Helper()
	e.Until("there is another term", func() bool {
		var r map[string]string
		if r = e.record(); r["holder"] == "" || r["token"] == strconv.FormatUint(than.Token, 10) {
			return false
		}
		token, err := strconv.ParseUint(r["token"], 10, 64)
		must(e, err)
		term, err := strconv.ParseUint(r["term"], 10, 64)
		must(e, err)
		found = election.Term{Token: token, Number: term}
		return true
	})
	return found
}

// The server restarts with an old snapshot, in which another replica leads. That replica
// does not become the leader by it. The leader loses its lease at its next renewal, and the
// election continues. (Class D: tokens from after the snapshot may be granted again.)
//
// Caught mutant: a candidate concludes from the record that it leads.
func TestFault16_OldSnapshot(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		lock, fence, rec := e.Raw.Get(e.Context(), key("lock")).Val(), e.Raw.Get(e.Context(), key("fence")).Val(), e.record()
		must(e, a.le.Resign(e.Context()))
		b.leads(1)
		e.queued(1)
		_, err := e.Raw.TxPipelined(e.Context(), func(p redis.Pipeliner) error {
			p.Del(e.Context(), key("lock"), key("fence"), key("leader"), key("queue"), key("seen"))
			p.Set(e.Context(), key("lock"), lock, leaseDuration)
			p.Set(e.Context(), key("fence"), fence, time.Hour)
			p.HSet(e.Context(), key("leader"), rec)
			return nil
		})
		must(e, err)
		mustIs(e, b.ended(1), lockcore.ErrLeaseLost)
		if a.le.IsLeader() {
			t.Error("it leads by the old lock")
		}
		e.Until("one replica leads", func() bool { return a.le.IsLeader() || b.le.IsLeader() })
	})
}

// The lock is lost in a failover. The leader notices at its next renewal. Its successor's
// token is greater.
//
// Caught mutant: leader_renew does not check the lock's holder.
func TestFault17_LockLostInFailover(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b, _ := e.trio()
		first := a.leads(1)
		must(e, e.Raw.Del(e.Context(), key("lock")).Err())
		mustIs(e, a.ended(1), lockcore.ErrLeaseLost)
		second := b.leads(1) // it looks once per lease
		if second.Token <= first.Token || second.Number != 2 {
			t.Errorf("term %+v after %+v", second, first)
		}
	})
}

// The record is lost or spoilt, and the lock is not. Leadership does not depend on the
// record, which is written again where possible.
//
// Caught mutants: leader_renew without pcall; a record that is only updated, never created.
func TestRecordLost(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := quick("")
		cfg.LeaseDuration, cfg.RenewDeadline = 4*time.Second, 3*time.Second
		a := e.replica(e.Client("a"), cfg)
		term := a.run().leads(1)
		must(e, e.Raw.Del(e.Context(), key("leader")).Err())
		e.Until("it is written again", func() bool { return e.record()["term"] == "1" })
		if r := e.record(); r["holder"] != "a" || r["token"] != strconv.FormatUint(term.Token, 10) || r["acquired"] != strconv.FormatInt(term.Since.UnixMilli(), 10) {
			t.Errorf("the record is %v", r)
		}
		// A key of another type, records of an invalid and of a future version, and one
		// with false content.
		for _, spoil := range []func(){
			func() {
				must(e, e.Raw.Del(e.Context(), key("leader")).Err())
				must(e, e.Raw.Set(e.Context(), key("leader"), "x", 0).Err())
			},
			func() {
				must(e, e.Raw.Del(e.Context(), key("leader")).Err())
				must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "nonsense", "holder", "y").Err())
			},
			func() {
				must(e, e.Raw.Del(e.Context(), key("leader")).Err())
				must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "2", "holder", "x").Err())
			},
		} {
			spoil()
			e.Pass(2 * cfg.LeaseDuration)
			if _, n := a.term(); n != 1 || !a.le.IsLeader() {
				t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
			}
		}
		if r := e.record(); r["holder"] != "x" {
			t.Errorf("a newer version's record was changed to %v", r)
		}
		if _, err := a.le.Record(e.Context()); err == nil {
			t.Error("a newer version's record is read")
		}
		must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "1", "holder", "liar", "token", "5").Err())
		e.Until("it is written again", func() bool { return e.record()["holder"] == "a" })
	})
}

// Two masters: the old one has lost its replicas and refuses writes, including renewals.
// The leader on its side stops before its lease ends.
//
// Caught mutant: a refused renewal counts as a renewal.
func TestFault18_RenewalsFailTheReplicaCheck(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.replica(e.Client("a"), quick(""))
		a.run().leads(1)
		e.Bubble.Server().SetError("NOREPLICAS Not enough good replicas to write.")
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		if a.le.IsLeader() {
			t.Error("it leads")
		}
		e.Pass(time.Minute)
		if _, n := a.term(); n != 1 {
			t.Errorf("it has led %d times", n)
		}
		e.Bubble.Server().SetError("")
		a.leads(2)
		e.history.Require(e)
	})
}

// The server refuses requests for a while. If the lease outlasts that, the leadership
// continues. Otherwise one replica leads when the server is back.
//
// Caught mutant: an error of a renewal ends the leadership.
func TestFault19_ServerRefusesForAWhile(t *testing.T) {
	t.Parallel()
	for _, refusal := range []string{
		"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory",
		"MASTERDOWN Link with MASTER is down", "CLUSTERDOWN The cluster is down", "BUSY Redis is busy running a script.",
		"OOM command not allowed when used memory > 'maxmemory'.", "MISCONF Redis is configured to save RDB snapshots",
	} {
		t.Run(refusal[:6], func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				a, b := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick(""))
				e.queueUp(a, b)
				e.Bubble.Server().SetError(refusal)
				e.Pass(600 * time.Millisecond)
				e.Bubble.Server().SetError("")
				e.Pass(2 * leaseDuration)
				if _, n := a.term(); n != 1 || !a.le.IsLeader() {
					t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
				}
				b.never()
				e.Bubble.Server().SetError(refusal)
				mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
				e.Pass(3 * time.Minute)
				e.Bubble.Server().SetError("")
				e.Until("one replica leads", func() bool { return a.le.IsLeader() || b.le.IsLeader() })
				e.history.Require(e)
			})
		})
	}
}

// The server's clock is set back by an hour: the leader keeps leading. If it dies, its lock
// stays for an hour longer. An operator sees it and can free it. (Class D.)
//
// Caught mutant: a leader compares the server's clock with its own.
func TestFault36_ServerClockSetBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("a")
		a, b := e.replica(c, quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		first := a.leads(1)
		e.Bubble.StepClock(-time.Hour)
		e.Pass(5 * leaseDuration)
		if _, n := a.term(); n != 1 || !a.le.IsLeader() {
			t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
		}
		cut := f.Partition()
		e.Bubble.StepClock(-time.Hour) // after its last renewal
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		e.Pass(time.Minute)
		b.never()
		r, err := b.le.Record(e.Context())
		must(e, err)
		if r.Holder != "a" || r.Left < 30*time.Minute {
			t.Errorf("the record says %+v", r)
		}
		must(e, e.Raw.Del(e.Context(), key("lock")).Err()) // the operator
		if second := b.leads(1); second.Token <= first.Token {
			t.Errorf("token %d after %d", second.Token, first.Token)
		}
		lockcoretest.MustFire(e, cut)
		f.Heal()
	})
}

// The clocks of the replicas differ by minutes, and are set: they only measure durations.
//
// Caught mutant: a deadline computed from the server's time and the local clock.
func TestFault37_ClocksOfReplicasDiffer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		var all []*replica
		for name, offset := range map[string]time.Duration{"early": -5 * time.Minute, "late": 5 * time.Minute, "right": 0} {
			c, _, clock := e.jumping(name)
			clock.Advance(offset)
			all = append(all, e.replica(c, quick("")))
		}
		e.queueUp(all...)
		for round := range 2 {
			for _, r := range all {
				r.leads(round + 1)
				e.queued(2)
				begin := e.Clock()
				must(e, r.le.Resign(e.Context()))
				e.WaitIdle()
				if took := e.Clock() - begin; took != 0 {
					t.Errorf("the hand-over took %v", took)
				}
			}
		}
		e.Pass(5 * leaseDuration)
		if _, n := all[0].term(); n != 3 || !all[0].le.IsLeader() {
			t.Errorf("it has led %d times", n)
		}
		e.history.Require(e)
	})
}

// The server's clock steps back by days between two terms: tokens and terms still increase,
// because the counter remains.
//
// Caught mutant: a token computed from the server's time only.
func TestFault38_TokensWhenTheClockStepsBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a, b := e.replica(e.Client("a"), quick("")), e.replica(e.Client("b"), quick(""))
		e.queueUp(a, b)
		last, _ := a.term()
		for i, r := range []*replica{b, a, b, a} {
			e.Bubble.StepClock(-24 * time.Hour)
			leader := []*replica{a, b}[i%2]
			must(e, leader.le.Resign(context.Background()))
			now := r.leads(1 + (i+1)/2)
			if now.Token <= last.Token || now.Number != last.Number+1 {
				t.Errorf("step %d: term %+v after %+v", i, now, last)
			}
			last = now
			e.queued(1)
		}
		e.history.Require(e)
	})
}
