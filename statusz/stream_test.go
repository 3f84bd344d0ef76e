package statusz_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// within changes something, and in a bubble it must be shown in that time.
func within(e *testenv.Env, most time.Duration, what string, change func() error, shown func() bool) {
	e.Helper()
	testenv.Must(e, change())
	began := time.Now()
	e.Until(what, shown)
	if took := time.Since(began); e.Bubble != nil && took > most {
		e.Errorf("after %s: %s", took, what)
	}
}

// Changes are shown: another leader, a pause, a run, another holder, new and lost names. In a
// bubble, the time until then is known.
func TestFollowsChanges(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		a, _ := actors.Elector(e, e.Client("a"), "board", election.Config{})
		actors.Elector(e, e.Client("b"), "board", election.Config{})
		j, _ := actors.Runner(e, e.Client("c"), "draw", "@every 24h", singleton.JobConfig{}, actors.Nothing)
		l := e.Hold(e.Client("d"), "orders")
		page := newPage(e, e.Client("page"), statusz.Config{})
		b := open(e, page, "")
		e.Until("all is shown", func() bool {
			return b.row("elections", "board").listed() == 1 && b.row("jobs", "draw").text("replicas") == "1" && b.row("locks", "orders").text("holder") == "d"
		})
		within(e, time.Second, "b is shown as the leader", func() error { return a.Resign(e.Context()) }, func() bool {
			return b.row("elections", "board").text("leader") == "b"
		})
		within(e, time.Second, "the pause is shown", func() error { return j.Pause(e.Context()) }, func() bool { return b.row("jobs", "draw").text("state") == "paused" })
		within(e, time.Second, "the end of the pause is shown", func() error { return j.Resume(e.Context()) }, func() bool { return b.row("jobs", "draw").text("state") == "idle" })
		within(e, 2*time.Second, "a run is shown", func() error { _, err := j.Trigger(e.Context()); return err }, func() bool {
			r := b.row("jobs", "draw")
			return r.listed() == 0 && len(r.Runs) == 1 && r.Runs[0].Class == "succeeded"
		})
		within(e, 3*time.Second, "the release is shown", func() error { return l.Unlock(e.Context()) }, func() bool { return b.row("locks", "orders").Gone })
		within(e, 12*time.Second, "the lock is not shown any more", func() error { return nil }, func() bool {
			s, _ := b.section("locks")
			return s.All == 0
		})
		if e.Bubble == nil { // it would only wait for the next look
			return
		}
		e.Hold(e.Client("d"), "orders")
		within(e, 15*time.Second, "the lock is shown again", func() error { return nil }, func() bool { return b.row("locks", "orders").text("holder") == "d" })
	})
}

// A leader is shown when it begins and stops. One that dies sends no message: its row shows that when its lease
// ends.
func TestFollowsLeaders(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		client, network := e.Linked("a")
		le, stop := actors.Elector(e, client, "board", election.Config{LeaseDuration: 3 * time.Second})
		b := open(e, newPage(e, e.Client("page"), statusz.Config{}), "")
		leads := func() bool { return b.row("elections", "board").text("leader") == "a" }
		e.Until("it is shown", leads)
		nothing := func() error { return nil }
		stop()
		within(e, time.Second, "the term ends", nothing, func() bool { return !leads() })
		e.Background(le.Run)
		within(e, time.Second, "the next term begins", nothing, leads)
		e.Pass(100 * time.Millisecond)
		network.Partition()
		within(e, 4*time.Second, "it has ended", nothing, func() bool { return !leads() })
	})
}

// Without messages, the page shows the end of a run after 10 s. A triggered run that fails changes
// only the history.
func TestFollowsJobsWithoutMessages(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		j, _ := actors.Runner(e, e.Client("a"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, func(context.Context, singleton.Run) error { return errors.New("no") })
		client, network := e.Linked("page")
		lost, err := network.Add(lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: func(message []string) bool {
			return strings.HasPrefix(message[1], "noonlock:job:")
		}})
		testenv.Must(e, err)
		b := open(e, newPage(e, client, statusz.Config{}), "")
		e.Until("the job is shown", func() bool { return b.row("jobs", "draw").text("replicas") == "1" })
		e.Pass(time.Second)
		_, err = j.Trigger(e.Context())
		testenv.Must(e, err)
		e.Until("the run is shown", func() bool { return len(b.row("jobs", "draw").Runs) == 1 })
		lockcoretest.MustFire(e, lost)
	})
}

// After an outage of any kind, the page of 1,007 jobs is live within 2 s of the first connection that the
// server accepts. Until then, it says since when it is out of date, and keeps what it shows.
func TestOutages(t *testing.T) {
	for name, outage := range testenv.Outages() {
		for _, lasts := range []time.Duration{6 * time.Second, 47 * time.Second} {
			t.Run(name+" for "+lasts.String(), func(t *testing.T) {
				testenv.InBubble(t, func(e *testenv.Env) {
					for i := range 1007 {
						testenv.Must(e, e.Raw.HSet(e.Context(), fmt.Sprintf("noonlock:{job/job-%04d}:job", i), "v", 1).Err())
					}
					l := e.Hold(e.Client("a"), "orders")
					o := outage(e)
					var back, accepted atomic.Int64
					dial := o.Options.Dialer
					o.Options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
						c, err := dial(ctx, network, addr)
						if now := time.Now().UnixNano(); err == nil && back.Load() > 0 {
							accepted.CompareAndSwap(back.Load(), now)
						}
						return c, err
					}
					client := e.ClientWith(o.Options, lockcore.Config{Identity: "page"})
					page := newPage(e, client, statusz.Config{})
					b := open(e, page, "")
					e.Until("the page is live", b.isLive)
					e.Pass(12 * time.Second)
					began := time.Now()
					o.Begin()
					e.Until("the page is out of date", func() bool { return !b.isLive() })
					lives := b.lives
					e.Pass(lasts - time.Since(began))
					_, stale, since := b.state()
					r := b.row("locks", "orders")
					kept := r.text("holder") == "a" && r.Token == l.Token()
					if stale == "" || b.lives > lives || since.Before(began.Add(-time.Second)) || since.After(began.Add(11*time.Second)) || !kept {
						e.Errorf("after %s: stale since %s: %q, %+v", lasts, since.Sub(began), stale, r)
					}
					late := open(e, page, "")
					e.Pass(4 * time.Second)
					if live, stale, _ := late.state(); live || stale == "" {
						e.Errorf("a browser that comes meanwhile: live %t, %q", live, stale)
					}
					now := time.Now().UnixNano()
					accepted.Store(now)
					back.Store(now)
					o.End()
					e.Until("the page is live", func() bool { return b.isLive() && late.isLive() })
					if took := time.Since(time.Unix(0, accepted.Load())); took > 2*time.Second {
						e.Errorf("live %s after the first connection", took)
					}
				})
			})
		}
	}
}

// Long lists have pages, and names can be filtered.
func TestPagesAndFilter(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		for i := range 60 {
			testenv.Must(e, e.Raw.Set(e.Context(), fmt.Sprintf("noonlock:{lock-%02d}:lock", i), "x", 0).Err())
		}
		page := newPage(e, e.Client("page"), statusz.Config{})
		for _, c := range []struct {
			query                 string
			fit, page, pages, len int
			first                 string
		}{
			{"", 60, 1, 3, 25, "lock-00"},
			{"locks=2", 60, 2, 3, 25, "lock-25"},
			{"locks=3&jobs=9", 60, 3, 3, 10, "lock-50"},
			{"locks=99", 60, 3, 3, 10, "lock-50"},
			{"locks=0", 60, 1, 3, 25, "lock-00"},
			{"locks=-1", 60, 1, 3, 25, "lock-00"},
			{"locks=9223372036854775807", 60, 3, 3, 10, "lock-50"},
			{"locks=x&elections=%00", 60, 1, 3, 25, "lock-00"},
			{"q=K-3", 10, 1, 1, 10, "lock-30"},
			{"q=none", 0, 1, 1, 0, ""},
			{"q=" + strings.Repeat("x", 201), 60, 1, 3, 25, "lock-00"},
			{"q=%ff%00%3C", 0, 1, 1, 0, ""},
		} {
			b := open(e, page, c.query)
			e.Until("the page of "+c.query, func() bool {
				s, read := b.section("locks")
				return s.State == "found" && read == c.len
			})
			s, _ := b.section("locks")
			if s.All != 60 || s.Fit != c.fit || s.Page != c.page || s.Pages != c.pages || len(s.Names) != c.len || c.len > 0 && s.Names[0] != c.first {
				e.Errorf("%q: %+v", c.query, s)
			}
			b.stop()
		}
	})
}

// Queues and holders of any length fit on the page.
func TestLongQueueIsShortened(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		e.Hold(e.Client("a"), "orders")
		m, err := e.Client("w").Mutex("orders", testenv.TTL(time.Minute))
		testenv.Must(e, err)
		for range 30 {
			e.Background(func(ctx context.Context) error { _, err := m.Lock(ctx); return err })
		}
		b := open(e, newPage(e, e.Client("page"), statusz.Config{}), "")
		e.Until("the queue is shown", func() bool {
			r := b.row("locks", "orders")
			return r.listed() == 20 && r.Lists[0].More == 10
		})
	})
}

// All browsers share one reader. Without a browser, nothing is sent to Redis, and no goroutine
// is left.
func TestReadsOnceForAllBrowsers(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		actors.Elector(e, e.Client("a"), "board", election.Config{})
		e.Hold(e.Client("b"), "orders")
		actors.Runner(e, e.Client("c"), "draw", "@every 24h", singleton.JobConfig{}, actors.Nothing)
		client, network := e.Linked("page")
		page := newPage(e, client, statusz.Config{})
		var requests atomic.Int64
		_, err := network.Add(lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: func(cmd []string) bool {
			if cmd[0] != "PING" && cmd[0] != "HELLO" {
				requests.Add(1)
			}
			return false // nothing is dropped
		}})
		testenv.Must(e, err)
		count := func(d time.Duration) int64 {
			before := requests.Load()
			e.Pass(d)
			return requests.Load() - before
		}
		if n := count(time.Minute); n != 0 {
			e.Errorf("before the first browser, %d requests were sent", n)
		}
		first := open(e, page, "")
		e.Pass(15 * time.Second)
		one := count(time.Minute)
		for range 20 {
			open(e, page, "")
		}
		e.Pass(15 * time.Second)
		many := count(time.Minute)
		// A minute has 6 reads of the election and of the job with 2 requests each, 30 of the lock, 6 of the
		// marks of the job, and 6 searches of 4 kinds.
		if one < 60 || one > 150 || many > one+one/20 {
			e.Errorf("one browser causes %d requests in a minute, and 21 cause %d", one, many)
		}
		first.stop()
		page.Close()
		e.Pass(time.Second)
		if n := count(time.Minute); n != 0 {
			e.Errorf("after the last browser, %d requests were sent", n)
		}
	})
}

// While Redis refuses requests, all or some, the page is not live. It says what was not read and why, also to
// a browser that comes meanwhile. It is live again soon after an operator has mended that.
func TestRefusals(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	e.Hold(e.Client("a"), "orders")
	page := newPage(e, e.ClientWith(e.As("reader", "~noonlock:*", "&*", "+@all"), lockcore.Config{}), statusz.Config{})
	b := open(e, page, "")
	e.Until("the page is live", b.isLive)
	for _, c := range []struct{ deny, allow, what, why string }{
		{">other", ">secret", "the list of elections, the list of jobs", "WRONGPASS"},
		{"-@all", "+@all", "the list of elections, the list of jobs", "NOPERM"},
		{"-scan", "+@all", "the list of locks, 1 more. ", "NOPERM"},
		{"-pttl", "+@all", `lock "orders"`, "NOPERM"},
	} {
		set := func(rule string) {
			testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "reader", "resetpass", ">secret").Err())
			if strings.HasPrefix(rule, ">") {
				testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "reader", "resetpass", rule).Err())
				testenv.Must(e, e.Raw.Do(e.Context(), "client", "kill", "user", "reader").Err())
				return
			}
			testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "reader", rule).Err())
		}
		set(c.deny)
		refused := func(b *browser) bool {
			live, stale, _ := b.state()
			return !live && strings.HasPrefix(stale, "Redis refuses requests. Not read: ") && strings.Contains(stale, c.what) && strings.Contains(stale, c.why)
		}
		e.Until("the page says that Redis refuses after "+c.deny, func() bool { return refused(b) })
		late := open(e, page, "")
		e.Until("another browser says it, too", func() bool { return refused(late) })
		switch c.deny {
		case "-scan":
			if s, _ := b.section("locks"); s.State != "failed" || !strings.Contains(s.Error, "NOPERM") || !slices.Equal(s.Names, []string{"orders"}) {
				e.Errorf("locks %+v", s)
			}
		case "-pttl":
			if r := b.row("locks", "orders"); !strings.Contains(r.Error, "NOPERM") {
				e.Errorf("lock %+v", r)
			}
		}
		set(c.allow)
		e.Until("the page is live after "+c.allow, func() bool { return b.isLive() && late.isLive() })
		late.stop()
	}
}

// A search that fails keeps the names that it has not found again.
func TestFailedSearchKeepsNames(t *testing.T) {
	testenv.InBubble(t, func(e *testenv.Env) {
		e.Hold(e.Client("a"), "old")
		b := open(e, newPage(e, e.Client("page"), statusz.Config{}), "")
		shows := func(state string, names ...string) func() bool {
			return func() bool {
				s, _ := b.section("locks")
				return s.State == state && slices.Equal(s.Names, names)
			}
		}
		e.Until("the lock is shown", shows("found", "old"))
		e.Bubble.Server().Server().SetPreHook(func(p *server.Peer, cmd string, args ...string) bool {
			switch {
			case cmd != "SCAN":
				return false
			case args[0] == "0":
				p.WriteLen(2)
				p.WriteBulk("7")
				p.WriteLen(1)
				p.WriteBulk("noonlock:{new}:lock")
			default:
				p.WriteError("ERR broken")
			}
			return true
		})
		e.Until("a search has failed", shows("failed", "new", "old"))
		e.Bubble.Server().Server().SetPreHook(nil)
		e.Until("a search has found all names", shows("found", "old"))
	})
}
