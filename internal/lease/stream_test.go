package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// other adds a second server to a network, and returns it.
func (n *network) other() *server { return &server{begun: time.Now()} }

// A server that does not answer does not delay the renewals of another server's leases.
// Those are renewed exactly as if they were alone, and the leases of the dead server end
// in time.
func TestDeadStreamDelaysNoOther(t *testing.T) {
	for name, dead := range map[string]func(context.Context, sent) (bool, bool){
		"hangs":  hang,
		"fails":  func(context.Context, sent) (bool, bool) { return false, false },
		"frozen": func(context.Context, sent) (bool, bool) { time.Sleep(5 * time.Second); return false, false }, // ctx ends without effect
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) {
				second := n.other()
				second.set(dead)
				short := lease.Times{Valid: 97 * time.Millisecond, Renew: 33 * time.Millisecond, Retry: 2 * time.Millisecond, Try: 50 * time.Millisecond}
				var doomed []*lease.Lease
				for range 5 { // before and after the live ones, with all kinds of timings
					for _, times := range []*lease.Times{&times, &short} {
						h := make(holder, 1)
						n.place(h, second)
						doomed = append(doomed, begin(t, k, c.Now(), times, h))
					}
				}
				live := []*lease.Lease{begin(t, k, c.Now(), &short, make(holder, 1)), begin(t, k, c.Now(), &times, make(holder, 1))}
				for range 300 {
					time.Sleep(10 * time.Millisecond)
					synctest.Wait()
					if left := live[0].Remaining(); left < short.Valid-short.Renew {
						t.Fatalf("the short lease has only %v left", left)
					}
				}
				for i, l := range doomed {
					if !errors.Is(l.Err(), errExpired) {
						t.Errorf("lease %d of the dead server: %v", i, l.Err())
					}
				}
				if late := doomed[1].Overdue() + short.Valid; late < 3*time.Second {
					t.Errorf("a lease of the dead server ended %v after its begin, want %v", 3*time.Second-doomed[1].Overdue(), short.Valid)
				}
				n.first.mu.Lock()
				for i, s := range n.first.sent {
					if late := s.at % short.Renew; late != 0 {
						t.Errorf("batch %d of the live server was sent at %v", i, s.at)
					}
				}
				n.first.mu.Unlock()
				for _, l := range live {
					testenv.Must(t, l.Err())
					l.End(errLost)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// A lease whose name moves to another server is renewed there at the next try, whether
// the former server refuses, hangs or still answers. A late answer of the former server
// changes nothing. The lease stays valid.
func TestLeaseMovesBetweenStreams(t *testing.T) {
	for name, former := range map[string]func(context.Context, sent) (bool, bool){
		"refuses":        func(context.Context, sent) (bool, bool) { return false, false },
		"hangs":          hang,
		"freezes":        func(context.Context, sent) (bool, bool) { time.Sleep(5 * time.Second); return false, false },
		"reports a loss": func(context.Context, sent) (bool, bool) { time.Sleep(1500 * time.Millisecond); return true, false },
		"renews late":    func(context.Context, sent) (bool, bool) { time.Sleep(1500 * time.Millisecond); return true, true },
		"answers":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) {
				second := n.other()
				h, stays := make(holder, 1), make(holder, 1)
				l := begin(t, k, c.Now(), &times, h)
				rest := begin(t, k, c.Now(), &times, stays)
				n.place(stays, n.other())                               // the first server has no lease after the move
				for i, to := range []*server{second, n.first, second} { // there and back
					from := n.at(l)
					from.set(former)
					time.Sleep(1065 * time.Millisecond) // not the instant of a retry; a renewal is answered, refused or in flight
					n.place(h, to)
					to.set(nil)
					before, received := from.count(), to.count()
					time.Sleep(2003 * time.Millisecond)
					synctest.Wait()
					testenv.Must(t, l.Err())
					if to.count() == received {
						t.Errorf("move %d: the new server received no renewal", i)
					}
					if n := from.count(); n != before {
						t.Errorf("move %d: the former server received %d more renewals", i, n-before)
					}
				}
				time.Sleep(time.Minute)
				if l.Err() != nil || rest.Err() != nil {
					t.Errorf("%v, %v", l.Err(), rest.Err())
				}
				if last := second.count(); last < 30 || last > 100 {
					t.Errorf("the last server received %d renewals in a minute", last)
				}
				l.End(errLost)
				rest.End(errLost)
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// Each lease that has moved is renewed at once, and no other. So is one whose grant or renewal was under
// way during the call of RenewMoved, and one that began before it and is added later.
func TestRenewMoved(t *testing.T) {
	inNetwork(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) {
		renewed := func(what string, want int) {
			t.Helper()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			n.first.mu.Lock()
			defer n.first.mu.Unlock()
			got := 0
			for _, s := range n.first.sent {
				got += s.leases
			}
			if n.first.sent = nil; got != want {
				t.Errorf("%s: %d renewals, want %d", what, got, want)
			}
		}
		began := c.Now()
		long := lease.Times{Valid: time.Hour, Renew: 20 * time.Minute, Retry: time.Second, Try: time.Second}
		stays := begin(t, k, began, &long, make(holder, 1))
		moved := func(l *lease.Lease) bool { return l != stays }
		waiting := begin(t, k, c.Now(), &times, make(holder, 1))
		time.Sleep(100 * time.Millisecond)
		granted := c.Now()
		time.Sleep(100 * time.Millisecond)
		k.RenewMoved(moved)
		renewed("one waits", 1)
		late := begin(t, k, granted, &times, make(holder, 1))
		renewed("one was granted before", 1)
		renewed("both were renewed", 0)

		n.first.set(func(context.Context, sent) (bool, bool) { time.Sleep(200 * time.Millisecond); return true, true })
		time.Sleep(time.Second)
		renewed("the renewals are under way", 2)
		k.RenewMoved(moved)
		n.first.set(nil)
		time.Sleep(300 * time.Millisecond)
		renewed("they were answered", 2)
		time.Sleep(500 * time.Millisecond)
		renewed("and answered again", 0)
		time.Sleep(time.Minute)
		if waiting.Err() != nil || late.Err() != nil {
			t.Errorf("%v, %v", waiting.Err(), late.Err())
		}
		testenv.Equal(t, "what the lease that has not moved has left", stays.Remaining(), time.Hour-(c.Now()-began))
		stays.End(errLost)
		waiting.End(errLost)
		late.End(errLost)
		time.Sleep(10 * time.Second)
	})
}

// A lease is renewed in time although a lease with a longer TTL, on the same stream, is
// due first and can wait longer for its answer.
func TestFault66_LongLeaseDoesNotDelayAShortOne(t *testing.T) {
	inNetwork(t, nil, func(t *testing.T, k *lease.Keeper, c *lease.Clock, n *network) {
		long := lease.Times{Valid: time.Minute, Renew: 20 * time.Second, Retry: time.Second, Try: 10 * time.Second}
		l := begin(t, k, c.Now()-long.Renew-50*time.Millisecond, &long, make(holder, 1)) // due in the past
		n.first.set(func(ctx context.Context, s sent) (bool, bool) {                     // the first connection is dead
			if n.first.count() == 1 {
				return hang(ctx, s)
			}
			return true, true
		})
		time.Sleep(5 * time.Millisecond)
		another := begin(t, k, c.Now()-long.Renew, &long, make(holder, 1)) // waits for the answer
		short := begin(t, k, c.Now(), &lease.Times{Valid: 97 * time.Millisecond, Renew: 33 * time.Millisecond, Retry: 2 * time.Millisecond, Try: 50 * time.Millisecond}, make(holder, 1))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		testenv.Must(t, short.Err())
		for _, l := range []*lease.Lease{l, another, short} {
			l.End(errLost)
		}
	})
}
