package election

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A record that cannot be written prevents leadership: the campaign returns an error and releases the lock. On a
// quorum, one server that cannot store it does no harm.
func TestRecordCannotBeWritten(t *testing.T) {
	onOneAndThree(t, func(e *trio) {
		a := e.election("a")
		most := len(e.servers)/2 + 1
		for _, spoil := range []struct {
			do   func(i int) error
			what error
		}{
			{func(i int) error { return e.raw(i).Set(e.Context(), key("leader"), "a string", 0).Err() }, lockcore.ErrNotAcquired},
			{func(i int) error { return e.raw(i).HSet(e.Context(), key("leader"), "v", 2).Err() }, ErrNewerSchema},
		} {
			for i := range most {
				testenv.Must(e, spoil.do(i))
			}
			testenv.Call(a.campaign(e.Context())).MustFail(e, spoil.what, lockcore.ErrNotAcquired)
			if errors.Is(spoil.what, ErrNewerSchema) {
				testenv.MustIs(e, a.prepare(e.Context()), ErrNewerSchema)
			}
			e.Until("the lock is free", func() bool { return e.raw(0).Exists(e.Context(), key("lock")).Val() == 0 })
			for i := range most {
				testenv.Must(e, e.raw(i).Del(e.Context(), key("leader")).Err())
			}
		}
		if most > 1 {
			testenv.Must(e, e.raw(0).Set(e.Context(), key("leader"), "x", 0).Err())
		}
		l := campaign(e.Env, a)
		if l.led.Load().Number != 1 || l.led.Load().Since.IsZero() {
			e.Errorf("term %d since %v", l.led.Load().Number, l.led.Load().Since)
		}
		testenv.Must(e, l.release(e.Context()))
	})
}

// A record that nobody can read prevents no leadership: the claim replaces it. Nor does a list of terms of another type.
func TestRecordIsSpoilt(t *testing.T) {
	onOneAndThree(t, func(e *trio) {
		for i := range e.servers {
			testenv.Must(e, e.raw(i).HSet(e.Context(), key("leader"), "v", "1", "token", "x", "term", "x").Err())
			testenv.Must(e, e.raw(i).Set(e.Context(), key("terms"), "x", 0).Err())
		}
		a := e.election("a")
		testenv.Call(a.Record(e.Context())).MustFail(e, errSpoilt)
		testenv.Must(e, a.prepare(e.Context()))
		l := campaign(e.Env, a)
		if r, err := a.Record(e.Context()); err != nil || r.Holder != "a" || r.Token != l.lease.Token() || r.Term != 1 {
			e.Errorf("the record is %+v, %v", r, err)
		}
	})
}

// A candidate whose claim is not answered fails when its lease has ended, and does not wait
// for a later answer. If its ctx ends, it fails at once.
func TestElectionClaimUnanswered(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("a")
			el := handle(e, c, 2*time.Second, nil)
			held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: lua().Match(e, "leader_claim"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := el.campaign(ctx)
				failed <- err
			}()
			testenv.Must(e, held.Wait(e.Context(), 1))
			f.Partition()
			begin, longest := e.Clock(), 3*time.Second
			if cancelled {
				longest = time.Second
				cancel()
				testenv.MustIs(t, <-failed, lockcore.ErrNotAcquired, context.Canceled)
			} else {
				testenv.MustIs(t, <-failed, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
			}
			if took := e.Clock() - begin; took > longest {
				t.Errorf("cancelled %v: it failed after %v", cancelled, took)
			}
			held.Lift()
			f.Heal()
		})
	}
}

// A candidate that hears of its grant writes the record while it confirms the grant. If that
// request is not answered, it writes the record afterwards, of the same term.
func TestElectionClaimsWhileItConfirms(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("b")
			leader := campaign(e, handle(e, e.Client("a"), 0, nil))
			led := make(chan *leadership, 1)
			go func() { led <- campaign(e, handle(e, c, 0, nil)) }()
			e.Until("it is queued", func() bool { return e.Raw.ZCard(e.Context(), key("queue")).Val() == 1 })
			if lost {
				f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: lua().Match(e, "leader_claim"), Count: 1})
			}
			looks := func(cmd []string) bool {
				return slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasPrefix(arg, "look ") })
			}
			confirmation := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: looks})
			testenv.Must(e, leader.release(e.Context()))
			testenv.Must(e, confirmation.Wait(e.Context(), 1))
			e.Until("the record names the next leader", func() bool { return e.Raw.HGet(e.Context(), key("leader"), "holder").Val() == "b" })
			if len(led) > 0 {
				t.Error("it leads before the grant is confirmed")
			}
			confirmation.Lift()
			next := <-led
			if next.led.Load().Number != leader.led.Load().Number+1 || next.lease.Token() <= leader.lease.Token() || e.Raw.HGet(e.Context(), key("leader"), "token").Val() != strconv.FormatUint(next.lease.Token(), 10) {
				t.Errorf("lost %v: term %d and token %d after %d and %d", lost, next.led.Load().Number, next.lease.Token(), leader.led.Load().Number, leader.lease.Token())
			}
			testenv.Must(e, next.release(e.Context()))
		})
	}
}
