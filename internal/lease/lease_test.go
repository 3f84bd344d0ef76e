package lease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
)

var (
	errExpired = errors.New("expired")
	errMaxHeld = errors.New("held for long enough")
	errLost    = errors.New("lost")
)

// times are those of a lease with a TTL of 3 s.
var times = lease.Times{
	Valid: 3*time.Second - lease.Margin(3*time.Second), Renew: time.Second, Retry: 50 * time.Millisecond, Try: time.Second,
}

// A sent renewal is what the server is asked.
type sent struct {
	connection, leases int
	at                 time.Duration
}

// A server answers renewals.
type server struct {
	mu     sync.Mutex
	sent   []sent
	answer func(ctx context.Context, s sent) (answered, held bool) // nil: at once
	doubts int
	begun  time.Time
}

func (s *server) Renew(ctx context.Context, connection int, t0, within time.Duration, leases []*lease.Lease) ([]bool, bool) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	now := sent{connection, len(leases), time.Since(s.begun)}
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
		switch done[i] = answered; {
		case answered && held:
			l.Extend(t0)
		case answered:
			l.End(errLost)
		}
	}
	return done, answered
}

func (s *server) Late(time.Duration) {}

func (s *server) Mark() time.Duration { return time.Since(s.begun) }

func (s *server) Doubt(time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubts++
}

// count is how many pipelines it was sent.
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

// hang is a server that does not answer.
func hang(ctx context.Context, _ sent) (bool, bool) {
	<-ctx.Done()
	return false, false
}

// A holder notes what it is told.
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
	synctest.Test(t, func(t *testing.T) {
		s := &server{begun: time.Now()}
		c := lease.NewClock(clock, func(error) {})
		k := lease.NewKeeper(lease.Config{Clock: c, Renewer: s, Expired: errExpired, MaxHeld: errMaxHeld})
		defer k.Close()
		test(t, k, c, s)
	})
}

// A lease that is not renewed ends at t0 + Valid, and not a millisecond later. Those who
// ask, wait for its context, or hold one that is bound to it see it at that instant.
func TestALeaseEndsInTime(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		once := times
		once.Renew = 0
		h := make(holder, 1)
		t0 := c.Now()
		time.Sleep(200 * time.Millisecond) // the answer comes
		l := begin(t, k, t0, &once, h)
		bound, stop := l.Bind(t.Context())
		defer stop()
		time.Sleep(once.Valid - 200*time.Millisecond - time.Millisecond)
		synctest.Wait()
		if l.Err() != nil || l.Remaining() != time.Millisecond || bound.Err() != nil {
			t.Errorf("a moment before the end: %v, %v remaining", l.Err(), l.Remaining())
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
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

// Leases of different times are renewed by few pipelines, and none ends. MaxHold does.
func TestLeasesAreRenewed(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
		capped := times
		capped.MaxHold = 10 * time.Second
		h := make(holder, 1)
		begin(t, k, c.Now(), &capped, h)
		var all []*lease.Lease
		for i := range 600 {
			one := times
			one.Renew += time.Duration(i) * time.Millisecond / 10
			all = append(all, begin(t, k, c.Now(), &one, make(holder, 1)))
		}
		time.Sleep(time.Minute)
		for i, l := range all {
			if l.Err() != nil {
				t.Fatalf("lease %d has ended: %v", i, l.Err())
			}
		}
		if n := s.count(); n > 2*60 {
			t.Errorf("%d pipelines in a minute", n)
		}
		if cause := <-h; !errors.Is(cause, errMaxHeld) {
			t.Errorf("the capped lease ended as %v", cause)
		}
		for _, l := range all {
			l.End(errLost)
		}
	})
}

// While the server fails, hangs, or answers late, renewals go on in half of what is left,
// and on other connections. If it answers again before the end, the lease goes on.
func TestRenewalsOutliveAnOutage(t *testing.T) {
	for name, answer := range map[string]func(context.Context, sent) (bool, bool){
		"fails": func(context.Context, sent) (bool, bool) { return false, false },
		"hangs": hang,
	} {
		for _, lasts := range []time.Duration{1800 * time.Millisecond, 4 * time.Second} {
			t.Run(fmt.Sprintf("%s for %v", name, lasts), func(t *testing.T) {
				inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
					h := make(holder, 1)
					l := begin(t, k, c.Now(), &times, h)
					time.Sleep(500 * time.Millisecond)
					s.set(answer)
					time.Sleep(lasts)
					s.set(nil)
					time.Sleep(5 * time.Second)
					if survives := lasts < 2*time.Second; (l.Err() == nil) != survives {
						t.Errorf("after %d renewals: %v", s.count(), l.Err())
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					if name == "hangs" && s.doubts == 0 {
						t.Error("no connection was doubted")
					}
					l.End(errLost)
				})
			})
		}
	}
}

// An answer that comes after the end revives nothing, and one that is older than another
// takes nothing away.
func TestALateAnswerRevivesNothing(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		once := times
		once.Renew = 0
		t0 := c.Now()
		l := begin(t, k, t0, &once, make(holder, 1))
		time.Sleep(time.Second)
		l.Extend(c.Now())
		l.Extend(t0)
		if l.Remaining() != once.Valid {
			t.Errorf("%v remain", l.Remaining())
		}
		time.Sleep(once.Valid + time.Second)
		l.Extend(c.Now())
		if l.Err() == nil || l.Remaining() != 0 {
			t.Errorf("%v, %v remain", l.Err(), l.Remaining())
		}
	})
}

// The server says that the lease is another's: it ends at once, and Lost is not called.
func TestTheServerSaysThatItIsLost(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
		s.set(func(context.Context, sent) (bool, bool) { return true, false })
		h := make(holder, 1)
		l := begin(t, k, c.Now(), &times, h)
		<-l.Context().Done()
		if !errors.Is(l.Err(), errLost) || time.Since(s.begun) != times.Renew || len(h) != 0 {
			t.Errorf("after %v: %v, %d", time.Since(s.begun), l.Err(), len(h))
		}
		time.Sleep(time.Minute)
		if s.count() != 1 {
			t.Errorf("%d renewals of a lease that has ended", s.count())
		}
	})
}

// A holder that blocks when it is told, and renewals that hang, delay no other end.
func TestNothingDelaysAnEnd(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, s *server) {
		s.set(hang)
		blocked := make(holder) // nobody receives
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
			if late != 0 {
				t.Errorf("a context was done %v late", late)
			}
		}
		for range 50 {
			if cause := <-blocked; !errors.Is(cause, errExpired) {
				t.Errorf("a lease ended as %v", cause)
			}
		}
	})
}

// The process is paused: no timer has run yet, and the first who asks sees the end.
func TestAPauseIsSeenAtTheFirstUse(t *testing.T) {
	var mu sync.Mutex
	var paused time.Duration
	start := sync.OnceValue(time.Now) // in the bubble
	clock := func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Since(start()) + paused
	}
	inBubble(t, clock, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		for name, err := range map[string]func(l *lease.Lease) error{
			"Err":     func(l *lease.Lease) error { return l.Err() },
			"Context": func(l *lease.Lease) error { return l.Context().Err() },
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
			l := begin(t, k, c.Now(), &times, make(holder, 1))
			if err(l) != nil {
				t.Errorf("%s before the pause: %v", name, err(l))
			}
			mu.Lock()
			paused += times.Valid
			mu.Unlock()
			if err(l) == nil {
				t.Errorf("%s sees no end after the pause", name)
			}
		}
	})
}

// A user's clock that blocks holds nobody up, and leases end by Go's clock.
func TestAClockThatBlocks(t *testing.T) {
	block := sync.OnceValue(func() chan struct{} { return make(chan struct{}) }) // in the bubble
	inBubble(t, func() time.Duration { <-block(); return 0 }, func(t *testing.T, k *lease.Keeper, c *lease.Clock, _ *server) {
		once := times
		once.Renew = 0
		begun := time.Now()
		l := begin(t, k, c.Ticks(), &once, make(holder, 1))
		<-l.Context().Done()
		if took := time.Since(begun); took < once.Valid || took > once.Valid+50*time.Millisecond {
			t.Errorf("the lease was valid for %v, want %v", took, once.Valid)
		}
		close(block())
	})
}
