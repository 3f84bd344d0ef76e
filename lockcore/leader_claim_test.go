package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A record that cannot be written stands in the way of leading: Campaign says so,
// does not try on, and gives the lock back.
func TestElectionRecordCannotBeWritten(t *testing.T) {
	onBoth(t, func(e *env) {
		leader := e.key(boardKey, "leader")
		el := e.election(e.client("a"), lockcore.ElectionConfig{Lease: ttl(time.Hour)})
		for _, spoil := range []struct {
			do   func() error
			what error
		}{
			{func() error { return e.raw.Set(e.Context(), leader, "a string", 0).Err() }, nil},
			{func() error { return e.raw.HSet(e.Context(), leader, "v", 2).Err() }, lockcore.ErrNewerSchema},
		} {
			must(e, spoil.do())
			ctx, cancel := context.WithTimeout(e.Context(), patience)
			_, err := el.Campaign(ctx)
			if err == nil || ctx.Err() != nil {
				t.Errorf("Campaign: %v, %v", err, ctx.Err())
			}
			cancel()
			if spoil.what != nil {
				mustIs(t, err, spoil.what, lockcore.ErrNotAcquired)
			}
			if e.raw.Exists(e.Context(), e.key(boardKey, "lock")).Val() != 0 {
				t.Error("the lock was kept")
			}
			must(e, e.raw.Del(e.Context(), leader).Err())
		}
		must(e, e.campaign(el).Resign(e.Context()))
	})
}

// Nor does one lead whose record the server does not let it write.
func TestElectionRecordIsForbidden(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	must(e, e.raw.ACLSetUser(e.Context(), "narrow", "reset", "on", ">secret", "allkeys", "allchannels", "+@all", "-hset").Err())
	opt := e.direct()
	opt.Username, opt.Password = "narrow", "secret"
	el := e.election(e.clientWith(opt, lockcore.Config{Identity: "a"}), lockcore.ElectionConfig{Lease: ttl(time.Hour)})
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	if l, err := el.Campaign(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("Campaign: %+v, %v", l, err)
	}
	e.until("the lock is given back", func() bool { return e.raw.Exists(e.Context(), e.key(boardKey, "lock")).Val() == 0 })
}

// A leader that may not read the record any more leads on, and writes over nothing
// that it has not read.
func TestElectionRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	must(e, e.raw.ACLSetUser(e.Context(), "narrow", "reset", "on", ">secret", "allkeys", "allchannels", "+@all").Err())
	opt := e.direct()
	opt.Username, opt.Password = "narrow", "secret"
	cfg := lockcore.LeaseConfig{TTL: time.Second, RenewInterval: 100 * time.Millisecond}
	l := e.campaign(e.election(e.clientWith(opt, lockcore.Config{Identity: "a"}), lockcore.ElectionConfig{Lease: cfg}))
	must(e, e.raw.ACLSetUser(e.Context(), "narrow", "-hmget").Err())
	leader := e.key(boardKey, "leader")
	must(e, e.raw.HSet(e.Context(), leader, "v", 2, "holder", "newer", "token", 1).Err())
	e.pass(2 * time.Second)
	if err := l.Context().Err(); err != nil {
		t.Errorf("it does not lead any more: %v", err)
	}
	if got := e.raw.HGet(e.Context(), leader, "holder").Val(); got != "newer" {
		t.Errorf("the record was written over: %q", got)
	}
}

// A candidate whose claim goes unanswered gives up when its lease has ended, not
// when somebody answers at last; and one whose ctx ends does so at once.
func TestElectionClaimUnanswered(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		inBubble(t, func(e *env) {
			c, f := e.linked("a")
			el := e.election(c, lockcore.ElectionConfig{Lease: ttl(2 * time.Second)})
			held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("leader_claim"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			failed := make(chan error, 1)
			go func() {
				_, err := el.Campaign(ctx)
				failed <- err
			}()
			must(e, held.Wait(e.Context(), 1))
			f.Partition()
			begin, longest := e.clock(), 3*time.Second
			if cancelled {
				longest = time.Second
				cancel()
				mustIs(t, <-failed, lockcore.ErrNotAcquired, context.Canceled)
			} else {
				mustIs(t, <-failed, lockcore.ErrNotAcquired, lockcore.ErrLeaseExpired)
			}
			if took := e.clock() - begin; took > longest {
				t.Errorf("cancelled %v: it gave up after %v", cancelled, took)
			}
			held.Lift()
			f.Heal()
		})
	}
}

// The server lacks replicas for a moment: a claim is tried on while the lease lasts.
func TestElectionClaimWhileTheServerIsShort(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.linked("a")
		el := e.election(c, lockcore.ElectionConfig{})
		held := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("leader_claim"), Count: 1})
		led := make(chan error, 1)
		go func() {
			_, err := el.Campaign(e.Context())
			led <- err
		}()
		must(e, held.Wait(e.Context(), 1))
		e.bubble.Server().SetError("NOREPLICAS Not enough good replicas to write.")
		held.Lift()
		e.pass(time.Second)
		e.bubble.Server().SetError("")
		must(e, <-led)
	})
}
