package record_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election/internal/record"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A record that cannot be written prevents leadership: Campaign returns an error, does not
// retry, and releases the lock.
func TestElectionRecordCannotBeWritten(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		leader := key("leader")
		el := election(e, e.Client("a"), record.Config{Lease: testenv.TTL(time.Hour)})
		for _, spoil := range []struct {
			do   func() error
			what error
		}{
			{func() error { return e.Raw.Set(e.Context(), leader, "a string", 0).Err() }, nil},
			{func() error { return e.Raw.HSet(e.Context(), leader, "v", 2).Err() }, record.ErrNewerSchema},
		} {
			testenv.Must(e, spoil.do())
			ctx, cancel := context.WithTimeout(e.Context(), testenv.Patience)
			_, err := el.Campaign(ctx)
			if err == nil || ctx.Err() != nil {
				t.Errorf("Campaign: %v, %v", err, ctx.Err())
			}
			cancel()
			if spoil.what != nil {
				testenv.MustIs(t, err, spoil.what, lockcore.ErrNotAcquired)
			}
			if e.Raw.Exists(e.Context(), key("lock")).Val() != 0 {
				t.Error("the lock was kept")
			}
			testenv.Must(e, e.Raw.Del(e.Context(), leader).Err())
		}
		testenv.Must(e, campaign(e, el).Resign(e.Context()))
	})
}

// A candidate whose claim is not answered fails when its lease has ended, and does not wait
// for a later answer. If its ctx ends, it fails at once.
func TestElectionClaimUnanswered(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("a")
			el := election(e, c, record.Config{Lease: testenv.TTL(2 * time.Second)})
			held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: scripts().Match(e, "leader_claim"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := el.Campaign(ctx)
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

// The server has too few replicas for a moment: a claim is retried while the lease lasts.
func TestElectionClaimWhileTheServerIsShort(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		c, f := e.Linked("a")
		el := election(e, c, record.Config{})
		held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: scripts().Match(e, "leader_claim"), Count: 1})
		led := make(chan error, 1)
		go func() {
			_, err := el.Campaign(e.Context())
			led <- err
		}()
		testenv.Must(e, held.Wait(e.Context(), 1))
		e.Bubble.Server().SetError("NOREPLICAS Not enough good replicas to write.")
		held.Lift()
		e.Pass(time.Second)
		e.Bubble.Server().SetError("")
		testenv.Must(e, <-led)
	})
}

// A candidate that hears of its grant writes the record while it confirms the grant. If that
// request is not answered, it writes the record afterwards, of the same term.
func TestElectionClaimsWhileItConfirms(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		testenv.InBubble(t, func(e *testenv.Env) {
			c, f := e.Linked("b")
			leader := campaign(e, election(e, e.Client("a"), record.Config{}))
			led := make(chan *record.Leadership, 1)
			go func() { led <- campaign(e, election(e, c, record.Config{})) }()
			e.Until("it is queued", func() bool { return e.Raw.ZCard(e.Context(), key("queue")).Val() == 1 })
			if lost {
				f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: scripts().Match(e, "leader_claim"), Count: 1})
			}
			looks := func(cmd []string) bool {
				return slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasPrefix(arg, "look ") })
			}
			confirmation := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: looks})
			testenv.Must(e, leader.Resign(e.Context()))
			testenv.Must(e, confirmation.Wait(e.Context(), 1))
			e.Until("the record names the next leader", func() bool { return e.Raw.HGet(e.Context(), key("leader"), "holder").Val() == "b" })
			if len(led) > 0 {
				t.Error("it leads before the grant is confirmed")
			}
			confirmation.Lift()
			next := <-led
			if next.Term != leader.Term+1 || next.Token() <= leader.Token() || e.Raw.HGet(e.Context(), key("leader"), "token").Val() != strconv.FormatUint(next.Token(), 10) {
				t.Errorf("lost %v: term %d and token %d after %d and %d", lost, next.Term, next.Token(), leader.Term, leader.Token())
			}
			testenv.Must(e, next.Resign(e.Context()))
		})
	}
}
