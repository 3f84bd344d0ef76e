package lease_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

var (
	errExpired = errors.New("expired")
	errLost    = errors.New("lost")
)

// times are the timings of a lease with a TTL of 3 s.
var times = lease.Times{
	Valid: 3*time.Second - lease.Margin(3*time.Second), Renew: time.Second, Retry: 50 * time.Millisecond, Try: time.Second,
}

// sent is a batch that a server receives.
type sent struct {
	leases int
	at     time.Duration
}

// A server answers the batches of one stream.
type server struct {
	mu     sync.Mutex
	sent   []sent
	answer func(ctx context.Context, s sent) (answered, held bool) // nil: answer immediately
	begun  time.Time
}

// A network is a Renewer that knows the server of each lease.
type network struct {
	first *server

	mu    sync.Mutex
	moved map[lease.Holder]*server // the others are at the first server
}

func (n *network) Stream(l *lease.Lease) lease.Stream { return n.at(l) }

func (n *network) at(l *lease.Lease) *server {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cmp.Or(n.moved[l.Holder()], n.first)
}

// place places the leases of a holder on a server.
func (n *network) place(h lease.Holder, s *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.moved[h] = s
}

func (n *network) Renew(ctx context.Context, stream lease.Stream, t0, within time.Duration, leases []*lease.Lease) []bool {
	s := stream.(*server)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	now := sent{len(leases), time.Since(s.begun)}
	s.mu.Lock()
	s.sent = append(s.sent, now)
	answer := s.answer
	s.mu.Unlock()
	answered, held := true, true
	if answer != nil {
		answered, held = answer(ctx, now)
	}
	done := make([]bool, len(leases))
	for i, l := range leases {
		switch done[i] = answered && n.at(l) == s; {
		case done[i] && held:
			l.Extend(t0)
		case done[i]:
			l.End(errLost)
		}
	}
	return done
}

func (*network) Late(time.Duration) {}

// count returns the number of batches received.
func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// set changes how the server answers.
func (s *server) set(answer func(context.Context, sent) (bool, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// hang does not answer.
func hang(ctx context.Context, _ sent) (bool, bool) {
	<-ctx.Done()
	return false, false
}

// A holder receives the cause of the lease's end.
type holder chan error

func (h holder) Lost(cause error) { h <- cause }

// begin starts a lease.
func begin(t *testing.T, k *lease.Keeper, t0 time.Duration, times *lease.Times, h lease.Holder) *lease.Lease {
	t.Helper()
	l := &lease.Lease{}
	k.Begin(t.Context(), l, t0, times, h)
	return l
}

// inBubble runs a test with a Keeper whose clock is the bubble's, or clock.
func inBubble(t *testing.T, clock func() time.Duration, test func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server)) {
	t.Helper()
	inNetwork(t, clock, func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) { test(t, k, c, n.first) })
}

// inNetwork is like inBubble, for tests with several servers.
func inNetwork(t *testing.T, clock func() time.Duration, test func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &network{first: &server{begun: time.Now()}, moved: map[lease.Holder]*server{}}
		c := lease.NewClock(clock)
		k := lease.NewKeeper(c, n, errExpired)
		defer k.Close()
		test(t, k, c, n)
	})
}

// A lease that is not renewed ends at exactly t0 + Valid, also after an answer to an older request. Err, the lease's
// context and a bound context all end at that instant, and a late answer does not revive the lease.
func TestLeaseEndsInTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		once := times
		once.Renew = 0
		h := make(holder, 1)
		t0 := c.Now()
		time.Sleep(200 * time.Millisecond) // the time until the answer
		l := begin(t, k, t0, &once, h)
		l.Extend(t0 - 100*time.Millisecond)
		bound, stop := l.Bind(t.Context())
		defer stop()
		time.Sleep(once.Valid - 200*time.Millisecond - time.Millisecond)
		synctest.Wait()
		if l.Err() != nil || l.Remaining() != time.Millisecond || bound.Err() != nil {
			t.Errorf("a moment before the end: %v, %v remaining", l.Err(), l.Remaining())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		l.Extend(c.Now())
		for _, ctx := range []context.Context{l.Context(), bound} {
			select {
			case <-ctx.Done():
			default:
				t.Error("a context is not done")
			}
			if !errors.Is(context.Cause(ctx), errExpired) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
		}
		if cause := <-h; !errors.Is(cause, errExpired) || l.Remaining() != 0 || l.Overdue() <= 0 {
			t.Errorf("%v, %v remaining, overdue by %v", cause, l.Remaining(), l.Overdue())
		}
	})
}

// Many leases that end at one instant end a little earlier, 2 µs for each in steps of 256, so
// that even the last one ends in time. The cause is the same. A few leases are not affected, and
// neither are leases that end later.
func TestManyLeasesEndEarlier(t *testing.T) {
	for leases, want := range map[int]time.Duration{
		250: 0, 2000: 3584 * time.Microsecond, 5119: 10240 * time.Microsecond, 20_000: 20 * time.Millisecond,
	} {
		t.Run(strconv.Itoa(leases), func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
				once, later := times, times
				once.Renew, later.Renew = 0, 0
				later.Valid += 30 * time.Millisecond
				last := begin(t, k, c.Now(), &later, make(holder, 1))
				all := make([]*lease.Lease, 0, leases)
				for range leases {
					all = append(all, begin(t, k, c.Now(), &once, make(holder, 1)))
				}
				<-all[leases-1].Context().Done()
				synctest.Wait()
				testenv.Equal(t, "the time that remains after the end", all[0].Remaining(), 0)
				if early := once.Valid - c.Now(); early != want {
					t.Errorf("the leases ended %v before their time, want %v", early, want)
				}
				for _, l := range all {
					if !errors.Is(context.Cause(l.Context()), errExpired) {
						t.Fatalf("the cause is %v", context.Cause(l.Context()))
					}
				}
				testenv.Must(t, last.Err())
			})
		})
	}
}

// Few pipelines and goroutines renew leases with different timings, and no lease ends. When the server answers that
// they are lost, they end immediately, are renewed no more, and Lost is not called.
func TestLeasesAreRenewed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
		var all []*lease.Lease
		h := make(holder, 600)
		before := testenv.Goroutines()
		for i := range 600 {
			one := times
			one.Renew += time.Duration(i) * time.Millisecond / 10
			all = append(all, begin(t, k, c.Now(), &one, h))
		}
		time.Sleep(time.Minute)
		for _, l := range all {
			testenv.Must(t, l.Err())
		}
		if n := s.count(); n > 2*60 {
			t.Errorf("%d pipelines in a minute", n)
		}
		if n := testenv.Goroutines() - before; n > 5 {
			t.Errorf("%d goroutines for 600 leases", n)
		}
		s.set(func(context.Context, sent) (bool, bool) { return true, false })
		time.Sleep(times.Renew + 60*time.Millisecond)
		renewals := s.count()
		time.Sleep(time.Minute)
		testenv.Equal(t, "renewals of leases that have ended", s.count(), renewals)
		for _, l := range all {
			if !errors.Is(l.Cause(), errLost) || len(h) > 0 {
				t.Errorf("%v; Lost was called %d times", l.Cause(), len(h))
			}
		}
	})
}

// A Holder that blocks and renewals that hang do not delay the end of other leases.
func TestNothingDelaysAnEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
		s.set(hang)
		blocked := make(holder) // Lost blocks
		var ends []time.Duration
		var mu sync.Mutex
		var wg sync.WaitGroup
		begun := time.Now()
		for i := range 50 {
			one := times
			one.Valid += time.Duration(i) * 10 * time.Millisecond
			l := begin(t, k, c.Now(), &one, blocked)
			wg.Go(func() {
				<-l.Context().Done()
				mu.Lock()
				defer mu.Unlock()
				ends = append(ends, time.Since(begun)-one.Valid)
			})
		}
		wg.Wait()
		for _, late := range ends {
			testenv.Equal(t, "how late a context was done", late, 0)
		}
		for range 50 {
			if cause := <-blocked; !errors.Is(cause, errExpired) {
				t.Errorf("a lease ended as %v", cause)
			}
		}
	})
}

// A looking Holder calls a function when its lease ends.
type looking struct{ look func() }

func (h *looking) Lost(error) { h.look() }

// Many leases end at one instant. All their contexts, and those bound to them, are done before code of the
// application runs because of that: functions of context.AfterFunc, and Holders, which write to the log.
func TestFault67_AllContextsEndFirst(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		once := times
		once.Renew = 0
		var mu sync.Mutex
		var ends []<-chan struct{}
		calls, early := 0, 0
		look := func() {
			mu.Lock()
			defer mu.Unlock()
			calls++
			for _, end := range ends {
				select {
				case <-end:
				default:
					early++
				}
			}
		}
		const n = 500
		for range n {
			l := begin(t, k, c.Now(), &once, &looking{look})
			bound, stop := l.Bind(t.Context())
			defer stop()
			child, cancel := context.WithTimeout(bound, time.Hour)
			defer cancel()
			context.AfterFunc(l.Context(), look)
			context.AfterFunc(child, func() {
				look()
				if !errors.Is(context.Cause(child), errExpired) {
					t.Errorf("the cause is %v", context.Cause(child))
				}
			})
			mu.Lock()
			ends = append(ends, l.Context().Done(), bound.Done())
			mu.Unlock()
		}
		time.Sleep(once.Valid)
		synctest.Wait()
		if calls != 3*n || early > 0 {
			t.Errorf("%d calls, want %d; contexts that were not done then: %d", calls, 3*n, early)
		}
	})
}

// gaining returns a clock that is ahead of the bubble's by gained nanoseconds, for inBubble.
func gaining(gained *atomic.Int64) func() time.Duration {
	start := sync.OnceValue(time.Now) // in the bubble
	return func() time.Duration { return time.Since(start()) + time.Duration(gained.Load()) }
}

// After a pause of the process or a suspend, no timer has fired yet. The first reading of the clock, by a call or by a
// renewal, closes the channels of all contexts whose leases are over. A call reports the end of its lease at once, and
// no server receives a renewal of a lease that is over, even if the renewals of several streams are due at one instant.
func TestFault05_FirstReadingEndsAllContexts(t *testing.T) {
	for name, read := range map[string]func(l *lease.Lease) error{
		"a renewal": func(l *lease.Lease) error { time.Sleep(times.Renew); return l.Cause() },
		"Err":       func(l *lease.Lease) error { return l.Err() },
		"Context":   func(l *lease.Lease) error { return l.Context().Err() },
		"Bind": func(l *lease.Lease) error {
			bound, stop := l.Bind(context.Background())
			defer stop()
			return bound.Err()
		},
		"Remaining": func(l *lease.Lease) error {
			if l.Remaining() == 0 {
				return errExpired
			}
			return nil
		},
	} {
		var suspended atomic.Int64
		inNetwork(t, gaining(&suspended), func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) {
			once, second, h := times, n.other(), make(holder, 1)
			once.Renew = 0
			once.Valid *= 2
			n.place(h, second)
			first, other := begin(t, k, c.Now(), &times, make(holder, 1)), begin(t, k, c.Now(), &times, h)
			fixed := begin(t, k, c.Now(), &once, make(holder, 1))
			ends := map[string]<-chan struct{}{
				"first": first.Context().Done(), "other": other.Context().Done(), "fixed": fixed.Context().Done(),
			}
			testenv.Must(t, read(first))
			time.Sleep(100 * time.Millisecond)
			renewals := n.first.count() + second.count()
			suspended.Store(int64(10 * time.Second))
			if read(first) == nil {
				t.Errorf("%s does not report the end", name)
			}
			synctest.Wait()
			for kind, done := range ends {
				select {
				case <-done:
				default:
					t.Errorf("%s: the context of the %s lease is not done", name, kind)
				}
			}
			time.Sleep(time.Minute)
			testenv.Equal(t, name+": renewals", n.first.count()+second.count(), renewals)
		})
	}
}

// A Client that holds many leases ends them up to 20 ms early. With a TTL of 2 s or more they
// outlive an outage of 0.62 TTL nevertheless, and with a shorter one an outage that is 20 ms
// shorter. It begins right before a renewal, which is the worst moment.
func TestToleranceWithManyLeases(t *testing.T) {
	const most = 20 * time.Millisecond
	for ttl, lost := range map[time.Duration]time.Duration{
		200 * time.Millisecond: most, 500 * time.Millisecond: most, time.Second: most, 2 * time.Second: 0, 10 * time.Second: 0,
	} {
		t.Run(ttl.String(), func(t *testing.T) {
			outlives := func(outage time.Duration) (yes bool) {
				inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
					long := lease.Times{Valid: time.Hour}
					for range 10_000 {
						begin(t, k, c.Now(), &long, make(holder, 1))
					}
					l := begin(t, k, c.Now(), &lease.Times{
						Valid: ttl - lease.Margin(ttl), Renew: ttl / 3, Retry: ttl / 48, Try: ttl / 3,
					}, make(holder, 1))
					time.Sleep(2*(ttl/3) - time.Millisecond)
					s.set(func(context.Context, sent) (bool, bool) { return false, false })
					time.Sleep(outage)
					s.set(nil)
					time.Sleep(ttl)
					yes = l.Err() == nil
				})
				return yes
			}
			full := ttl * 62 / 100
			if !outlives(full - lost) {
				t.Errorf("the lease was lost in an outage of %v", full-lost)
			}
			if ttl <= time.Second/2 && outlives(full) {
				t.Errorf("the lease outlived an outage of %v: the documentation says less", full)
			}
		})
	}
}
