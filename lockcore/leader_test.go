package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const boardKey = "election/board"

func (e *env) election(c *lockcore.Client, cfg lockcore.ElectionConfig) *lockcore.Election {
	e.Helper()
	el, err := c.Election("board", cfg)
	must(e, err)
	return el
}

func (e *env) campaign(el *lockcore.Election) *lockcore.Leadership {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	l, err := el.Campaign(ctx)
	must(e, err)
	return l
}

// The life of an election through the exported API.
func TestElection(t *testing.T) {
	onBoth(t, func(e *env) {
		a := e.election(e.client("a"), lockcore.ElectionConfig{Lease: ttl(5 * time.Second), Metadata: map[string]string{"k": "v"}})
		b := e.election(e.client("b"), lockcore.ElectionConfig{Lease: ttl(5 * time.Second)})
		if r, err := a.Leader(e.Context()); err != nil || r.Holder != "" || r.Term != 0 || r.Left != 0 {
			t.Errorf("before: %+v, %v", r, err)
		}
		var mu sync.Mutex
		var heard []string
		stop := b.Watch(func(r lockcore.LeaderRecord) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, fmt.Sprintf("%s %d", r.Holder, r.Term))
		})
		news := func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(heard, ", ")
		}
		e.until("it has read that nobody leads", func() bool { return news() == " 0" })
		l := e.campaign(a)
		if l.Term != 1 || l.Token() == 0 || a.Name() != "board" || a.Identity() != "a" {
			t.Errorf("term %d, token %d of %s for %s", l.Term, l.Token(), a.Identity(), a.Name())
		}
		r, err := b.Leader(e.Context())
		must(e, err)
		if r.Holder != "a" || r.Metadata["k"] != "v" || r.Left <= 0 || !r.Acquired.Equal(l.Since) {
			t.Errorf("the record is %+v", r)
		}
		e.until("it has heard of a", func() bool { return news() == " 0, a 1" })
		mustIs(t, l.Prefer(e.Context(), "b"), lockcore.ErrNoCandidate)
		must(e, l.Resign(e.Context()))
		mustIs(t, l.Resign(e.Context()), lockcore.ErrNotHeld)
		mustIs(t, l.Prefer(e.Context(), "b"), lockcore.ErrNotHeld)
		e.until("it has heard that nobody leads", func() bool { return news() == " 0, a 1,  1" })
		if r, err := b.Leader(e.Context()); err != nil || r.Released.IsZero() || r.Left != 0 {
			t.Errorf("after: %+v, %v", r, err)
		}
		l = e.campaign(b)
		e.until("it has heard of itself", func() bool { return news() == " 0, a 1,  1, b 2" })
		if l.Over() != 0 || !l.Drop(errors.New("enough")) || l.Drop(nil) || l.Over() == 0 || l.Remaining() != 0 {
			t.Error("it is not dropped, or twice")
		}
		mustIs(t, context.Cause(l.Context()), lockcore.ErrLeaseExpired)
		if e.pttl(boardKey) <= 0 {
			t.Error("the lock was given back")
		}
		stop()
		if stats := e.raw.PubSubNumSub(e.Context(), "noonlock:leader:board").Val(); stats["noonlock:leader:board"] != 0 {
			e.until("nobody listens", func() bool {
				return e.raw.PubSubNumSub(e.Context(), "noonlock:leader:board").Val()["noonlock:leader:board"] == 0
			})
		}
	})
}

// A leader of more than a week is one, although the counter of tokens is gone, which
// ends a week after a grant. Its successor's token is greater all the same.
func TestElectionForLongerThanAWeek(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		a := e.election(e.client("a"), lockcore.ElectionConfig{Lease: ttl(time.Hour)})
		b := e.election(e.client("b"), lockcore.ElectionConfig{Lease: ttl(time.Hour)})
		first := e.campaign(a)
		for day := range 16 {
			e.pass(12 * time.Hour)
			r, err := b.Leader(e.Context())
			must(e, err)
			if r.Holder != "a" || r.Left <= 0 || r.Left > time.Hour || first.Remaining() <= 0 {
				t.Fatalf("after %d half days the record is %+v", day+1, r)
			}
		}
		if n := e.raw.Exists(e.Context(), e.key(boardKey, "fence")).Val(); n != 0 {
			t.Error("the counter is still there")
		}
		must(e, first.Resign(e.Context()))
		if r, err := b.Leader(e.Context()); err != nil || r.Left != 0 {
			t.Errorf("after it has resigned: %+v, %v", r, err)
		}
		second := e.campaign(b)
		if r, err := a.Leader(e.Context()); err != nil || r.Holder != "b" || r.Left <= 0 || second.Token() <= first.Token() {
			t.Errorf("the record is %+v, %v; token %d after %d", r, err, second.Token(), first.Token())
		}
	})
}

// A record is read once for each change, however many watch it, and a flood of
// messages costs little.
func TestElectionWatchReadsOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.linked("b")
		b := e.election(c, lockcore.ElectionConfig{})
		a := e.election(e.client("a"), lockcore.ElectionConfig{})
		told := 0
		for range 100 {
			e.Cleanup(b.Watch(func(lockcore.LeaderRecord) { told++ }))
		}
		e.pass(time.Second)
		reads, err := f.Add(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: time.Nanosecond, Match: e.script("leader_look")})
		must(e, err)
		told = 0
		e.campaign(a)
		e.pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() != 1 {
			t.Errorf("%d were told, %d reads", told, reads.Fired())
		}
		for range 1000 {
			must(e, e.raw.Publish(e.Context(), "noonlock:leader:board", "forged").Err())
		}
		e.pass(10 * time.Millisecond)
		if told != 100 || reads.Fired() > 3 {
			t.Errorf("after forged messages %d were told, %d reads", told, reads.Fired())
		}
	})
}

// A watch of a channel ends while another one begins: it does not take the
// subscription along. (The race is too narrow for this test to hit it each time.)
func TestWatchesComeAndGo(t *testing.T) {
	onBoth(t, func(e *env) {
		el := e.election(e.client("a"), lockcore.ElectionConfig{})
		listening := func() bool {
			const channel = "noonlock:leader:board"
			heard, err := e.raw.PubSubNumSub(e.Context(), channel).Result()
			must(e, err)
			return heard[channel] == 1
		}
		stop := el.Watch(func(lockcore.LeaderRecord) {})
		e.until("it listens", listening)
		for range 200 {
			var wg sync.WaitGroup
			wg.Go(stop)
			next := el.Watch(func(lockcore.LeaderRecord) {})
			wg.Wait()
			e.until("it still listens", listening)
			stop = next
		}
		stop()
	})
}

func TestElectionInput(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.client("a")
		for _, name := range []string{"", "a b", "{a}", "a\x00", strings.Repeat("n", 192)} {
			_, err := c.Election(name, lockcore.ElectionConfig{})
			mustIs(t, err, lockcore.ErrConfig)
		}
		_, err := c.Election("board", lockcore.ElectionConfig{Metadata: map[string]string{"k": strings.Repeat("v", 4096)}})
		mustIs(t, err, lockcore.ErrConfig)
		_, err = c.Election("board", lockcore.ElectionConfig{Lease: ttl(-1)})
		mustIs(t, err, lockcore.ErrConfig)
		el := e.election(c, lockcore.ElectionConfig{})
		_, err = el.Campaign(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		_, err = el.Leader(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		_, err = el.Candidates(nil) //nolint:staticcheck // that is the test
		mustIs(t, err, lockcore.ErrConfig)
		mustIs(t, e.campaign(el).Prefer(nil, "b"), lockcore.ErrConfig) //nolint:staticcheck // that is the test
	})
}
