package election_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The server restarts with an old snapshot, in which another replica leads. That replica
// does not become the leader by it. The leader loses its lease at its next renewal, and the
// election continues. (Class D: tokens from after the snapshot may be granted again.)
//
// Caught mutant: a candidate concludes from the record that it leads.
func TestFault16_OldSnapshot(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.replica(e.Client("a"), e.quick()), e.replica(e.Client("b"), e.quick())
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

// The record is lost or spoilt, and the lock is not. Leadership does not depend on the
// record, which is written again where possible.
//
// Caught mutants: leader_renew without pcall; a record that is only updated, never created.
func TestRecordLost(t *testing.T) {
	onBoth(t, func(e *env) {
		cfg := e.quick()
		cfg.LeaseDuration, cfg.RenewDeadline = 20*time.Second, 15*time.Second
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
			least := cfg.LeaseDuration - 2*time.Second
			must(e, e.Raw.PExpire(e.Context(), key("lock"), least).Err())
			e.Until("it is renewed", func() bool { return e.Raw.PTTL(e.Context(), key("lock")).Val() > least })
			if _, n := a.term(); n != 1 || !a.le.IsLeader() {
				t.Errorf("it has led %d times, leads now: %v", n, a.le.IsLeader())
			}
		}
		if r := e.record(); r["holder"] != "x" {
			t.Errorf("a newer version's record was changed to %v", r)
		}
		if _, err := a.le.Election().Record(e.Context()); err == nil {
			t.Error("a newer version's record is read")
		}
		must(e, e.Raw.HSet(e.Context(), key("leader"), "v", "1", "holder", "liar", "token", "5").Err())
		e.Until("it is written again", func() bool { return e.record()["holder"] == "a" })
	})
}
