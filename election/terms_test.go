package election_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// over is the context of a caller that does not wait.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A reign is a leader and its first candidate, each on its own network. A second candidate, c, is queued behind them.
type reign struct {
	*env
	a, b       *replica
	client     *lockcore.Client     // of a
	net, other *lockcoretest.Faults // of a and b
}

func (r *reign) stop() error   { r.a.cancel(errStopped); return nil }
func (r *reign) resign() error { return r.a.le.Resign(r.Context()) }
func (r *reign) lose() error   { return r.Raw.Del(r.Context(), key("lock")).Err() }

// What ends a term, and what follows. Work that ends by choice drains, and the lease is renewed meanwhile. The
// next candidate leads when the work has returned, or when a lost lease has expired. What arrives late changes
// nothing, and Run campaigns again after an outage of any length.
//
// Caught mutants: release before the callback has returned; the lease is bound to Run's context; Run returns after a
// loss; a renewal creates the lock.
func TestFault07_52_TermsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end    func(r *reign) error
		fails  error         // of end
		cause  error         // of the context of the work
		next   string        // "": b
		within time.Duration // until the next leader
		once   bool          // with Config.Once
		stops  bool          // Run returns
		run    error         // what it returns
		queue  int64         // who is queued in the end; 0: two
	}{
		"the context of Run ends":  {end: (*reign).stop, cause: errStopped, stops: true},
		"Resign":                   {end: (*reign).resign, cause: election.ErrResigned},
		"Resign, and nobody waits": {end: func(r *reign) error { return r.a.le.Resign(over()) }, fails: context.Canceled, cause: election.ErrResigned},
		"Resign with Once":         {end: (*reign).resign, cause: election.ErrResigned, once: true, stops: true},
		"TransferTo":               {end: func(r *reign) error { return r.a.le.TransferTo(r.Context(), "c") }, cause: election.ErrResigned, next: "c"},
		"TransferTo a candidate that is cut off": {end: func(r *reign) error {
			r.other.Partition()
			r.other.Cut()
			return r.a.le.TransferTo(r.Context(), "b")
		}, cause: election.ErrResigned, within: time.Second, next: "c"},
		"a candidate is stopped before": {end: func(r *reign) error {
			r.b.stop()
			return r.resign()
		}, cause: election.ErrResigned, next: "c", queue: 1},
		"the lock is deleted":           {end: (*reign).lose, cause: lockcore.ErrLeaseLost, within: leaseDuration},
		"the lock is deleted with Once": {end: (*reign).lose, cause: lockcore.ErrLeaseLost, within: leaseDuration, once: true, stops: true, run: lockcore.ErrLeaseLost},
		"the network is gone": {end: func(r *reign) error {
			r.net.Partition()
			return nil
		}, cause: lockcore.ErrLeaseExpired, within: leaseDuration},
		"the Client is closed": {end: func(r *reign) error { return r.client.Close(r.Context()) }, cause: lockcore.ErrClosed, within: leaseDuration, stops: true, run: lockcore.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				cfg := quick()
				cfg.Once = c.once
				r := &reign{env: e}
				r.client, r.net = e.Linked("a")
				second, net := e.Linked("b")
				r.other = net
				a, b, last := e.replica(r.client, cfg), e.replica(second, quick()), e.replica(e.Client("c"), quick())
				r.a, r.b = a, b
				finish := make(chan struct{})
				a.work = func(ctx context.Context) {
					<-ctx.Done()
					<-finish
				}
				e.queueUp(a, b, last)
				first := a.leads(1)
				e.Pass(2 * leaseDuration)
				mustIs(e, a.le.Run(e.Context()), election.ErrRunning)
				begin, ended := e.Clock(), make(chan error, 1)
				go func() { ended <- c.end(r) }()
				if errors.Is(c.cause, errStopped) || errors.Is(c.cause, election.ErrResigned) {
					e.Pass(2 * leaseDuration)
					if !a.le.IsLeader() || a.le.Check(time.Minute) != nil || a.stops != 0 {
						e.Errorf("while it drains: leader %v, check %v, %d stops", a.le.IsLeader(), a.le.Check(time.Minute), a.stops)
					}
					b.never()
					last.never()
					begin = e.Clock()
				}
				close(finish)
				next := map[string]*replica{"b": b, "c": last}[cmp.Or(c.next, "b")]
				if term := next.leads(1); term <= first || e.Clock()-begin > c.within+20*time.Millisecond {
					e.Errorf("token %d after %d, %v later", term, first, e.Clock()-begin)
				}
				if err := <-ended; !errors.Is(err, c.fails) {
					e.Errorf("it was ended: %v, want %v", err, c.fails)
				}
				if cause := a.ended(1); !errors.Is(cause, c.cause) {
					e.Errorf("the cause is %v, want %v", cause, c.cause)
				}
				e.Pass(time.Minute)
				r.net.Heal() // late requests are delivered
				r.other.Heal()
				if c.stops {
					a.wait()
					if !errors.Is(a.err, c.run) {
						e.Errorf("Run: %v, want %v", a.err, c.run)
					}
				}
				if c.stops && c.run == nil { // Run may be called again
					a.done = make(chan struct{})
					a.run()
				}
				if c.run == nil {
					e.queued(cmp.Or(c.queue, 2))
					e.Until("it knows the leader", func() bool { return a.le.Leader() == next.le.Identity() })
				}
				if _, n := next.term(); n != 1 || !next.le.IsLeader() || a.le.IsLeader() || a.stops != 1 {
					e.Errorf("the next one has led %d times, leads %v; this one leads %v, after %d stops", n, next.le.IsLeader(), a.le.IsLeader(), a.stops)
				}
				e.oneAtATime()
			})
		})
	}
}

// A callback that does not return fails Check when its time is over, and Ready if this replica can neither lead nor
// campaign meanwhile. Work that has returned never does, whatever happens to the lease.
func TestFault77_83_CallbacksThatHang(t *testing.T) {
	t.Parallel()
	const lease, never = 15 * time.Second, -1
	type process struct {
		*env
		le     *election.LeaderElector
		net    *lockcoretest.Faults
		jump   func(time.Duration)
		cancel context.CancelFunc
		leave  chan struct{} // ends the work if it does not hang
	}
	for name, c := range map[string]struct {
		event   func(p *process)
		hangs   string // "work", "stopped" for OnStoppedLeading, or nothing
		grace   time.Duration
		unready bool
		cause   error // of Check's error
	}{
		"the lease is lost": {func(p *process) {
			must(p, p.Raw.Del(p.Context(), key("lock")).Err())
			p.Until("it is noticed", func() bool { return !p.le.IsLeader() })
		}, "work", 0, true, lockcore.ErrLeaseLost},
		"Resign":                   {func(p *process) { _ = p.le.Resign(over()) }, "work", lease, false, nil},
		"OnStoppedLeading":         {func(p *process) { _ = p.le.Resign(over()) }, "stopped", lease, true, nil},
		"the process is stopped":   {func(p *process) { p.cancel() }, "work", never, true, nil},
		"stopped, and then Resign": {func(p *process) { p.cancel(); p.Pass(10 * time.Minute); _ = p.le.Resign(over()) }, "work", 0, true, nil},
		"it returns, and the release is not answered": {func(p *process) {
			p.net.Partition()
			p.Pass(lease*2/3 - time.Second)
			close(p.leave)
			p.Pass(2 * time.Second)
		}, "", never, false, nil},
		"it returns before a pause": {func(p *process) { p.net.Partition(); close(p.leave); p.jump(time.Hour) }, "", never, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(e *env) {
				client, net, clock := e.jumping("a")
				hold, leave := make(chan struct{}), make(chan struct{})
				le, err := election.NewLeaderElector(client, electionName, election.Callbacks{
					OnStartedLeading: func(ctx context.Context) {
						select {
						case <-ctx.Done():
						case <-leave:
						}
						if c.hangs == "work" {
							<-hold
						}
					},
					OnStoppedLeading: func() {
						if c.hangs == "stopped" {
							<-hold
						}
					},
				}, election.Config{LeaseDuration: lease})
				must(e, err)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- le.Run(ctx) }()
				e.Until("it leads", le.IsLeader)
				e.Pass(time.Minute)
				must(e, le.Check(0))
				must(e, le.Ready())
				c.event(&process{e, le, net, clock.Advance, cancel, leave})
				if c.grace != 0 {
					e.Pass(lease - 10*time.Millisecond)
					testenv.Must(e, le.Check(0))
				}
				e.Pass(20 * time.Millisecond)
				must(e, le.Check(2*time.Hour))
				for tolerance, later := range map[time.Duration]time.Duration{0: 0, time.Minute: 2 * time.Minute} {
					e.Pass(later)
					if c.grace == never {
						must(e, le.Check(tolerance))
					} else if mustIs(e, le.Check(tolerance), election.ErrOverdue); c.cause != nil {
						mustIs(e, le.Check(tolerance), c.cause)
					}
				}
				if unready := errors.Is(le.Ready(), election.ErrNotReady); c.hangs != "" && unready != c.unready {
					e.Errorf("Ready: %v", le.Ready())
				}
				net.Cut()
				net.Heal()
				cancel()
				close(hold)
				must(e, <-done)
				must(e, le.Check(0))
			})
		})
	}
}
