package election_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Each rule of client-go's validation, and each of ours, with an error that names the
// field, the value and the rule; and the allowed values up to the bound.
func TestValidation(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c := e.Client("a")
		s := time.Second
		for i, test := range []struct {
			cb   election.Callbacks
			name string
			cfg  election.Config
			want string // "": allowed
		}{
			{idle, "board", election.Config{}, ""},
			{idle, "board", election.Config{LeaseDuration: 100 * time.Millisecond}, ""},
			{idle, "board", election.Config{LeaseDuration: 15 * s, RenewDeadline: 14847 * time.Millisecond}, ""},
			{idle, "board", election.Config{LeaseDuration: 15 * s, RenewDeadline: 14848 * time.Millisecond}, "Config.RenewDeadline is 14.848s; it must be less than LeaseDuration minus the margin for clocks, 14.848s"},
			{idle, "board", election.Config{LeaseDuration: 10 * s, RenewDeadline: 10 * s}, "Config.RenewDeadline is 10s; it must be less than LeaseDuration"},
			{idle, "board", election.Config{RenewDeadline: 6 * s, RetryPeriod: 4999 * time.Millisecond}, ""},
			{idle, "board", election.Config{RenewDeadline: 6 * s, RetryPeriod: 5 * s}, "Config.RetryPeriod is 5s; it must be less than RenewDeadline/1.2, 5s"},
			{idle, "board", election.Config{RenewDeadline: 12 * s, RetryPeriod: 8 * s}, "Config.RetryPeriod is 8s; it must be at most half of LeaseDuration, 7.5s"},
			{idle, "board", election.Config{LeaseDuration: -s}, "Config.LeaseDuration is -1s; it must be 0 (15s) or whole milliseconds from 100ms to 24h"},
			{idle, "board", election.Config{RetryPeriod: 9999 * time.Microsecond}, "Config.RetryPeriod is 9.999ms; it must be 0 (two fifteenths of LeaseDuration) or at least 10ms"},
			{idle, "board", election.Config{RetryPeriod: 10 * time.Millisecond}, ""},
			{idle, "board", election.Config{RenewDeadline: 12 * s, RetryPeriod: 7500 * time.Millisecond}, ""},
			{idle, "board", election.Config{LeaseDuration: 24 * time.Hour}, ""},
			{idle, "board", election.Config{RenewDeadline: -1}, "Config.RenewDeadline is -1ns; it must be 0 (two thirds of LeaseDuration) or positive"},
			{idle, "board", election.Config{DrainTimeout: -1}, "Config.DrainTimeout is -1ns; it must be 0 (no limit) or positive"},
			{idle, "board", election.Config{Metadata: map[string]string{"a": strings.Repeat("b", 5000)}}, "election: Config.Metadata is 5008 bytes; it must be at most 4096 bytes as JSON"},
			{idle, "", election.Config{}, `election: name is ""`},
			{idle, strings.Repeat("n", 191), election.Config{}, ""},
			{idle, strings.Repeat("n", 192), election.Config{}, "it must be 1 to 191 bytes"},
			{election.Callbacks{OnStoppedLeading: idle.OnStoppedLeading}, "board", election.Config{}, "Callbacks.OnStartedLeading is nil; it must be a function"},
			{election.Callbacks{OnStartedLeading: idle.OnStartedLeading}, "board", election.Config{}, "Callbacks.OnStoppedLeading is nil; it must be a function"},
		} {
			_, err := election.NewLeaderElector(c, test.name, test.cb, test.cfg)
			if test.want == "" {
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, noonlock.ErrConfig) {
				t.Errorf("%d: %v, want %q", i, err, test.want)
			}
		}
		if _, err := election.NewLeaderElector(nil, "board", idle, election.Config{}); !errors.Is(err, noonlock.ErrConfig) ||
			err.Error() != "election: client is nil; it must be a *lockcore.Client" {
			t.Errorf("nil client: %v", err)
		}
		for _, refused := range []func() error{
			func() error { _, err := election.NewElection(nil, "board"); return err },
			func() error { _, err := election.NewElection(c, "a b"); return err },
			func() error { _, err := election.Elections(e.Context(), nil, nil); return err },
		} {
			mustIs(e, refused(), noonlock.ErrConfig)
		}
		// A handle has no lease, so LockDelay does not refuse it.
		_, err := election.NewElection(e.ClientWith(e.Direct(), lockcore.Config{LockDelay: time.Second}), "board")
		must(e, err)
		testenv.Equal(t, "keys", e.Raw.DBSize(e.Context()).Val(), 0)
	})
}

// The defaults are those of client-go, and the others follow from LeaseDuration. The test
// observes the lock's TTL, the times of renewals, and the end of a term.
func TestDefaults(t *testing.T) {
	t.Parallel()
	inBubble(t, func(e *env) {
		c, f := e.Linked("a")
		a := e.replica(c, election.Config{})
		a.run().leads(1)
		e.Pass(time.Minute) // in step
		renewed := func() int64 {
			return testenv.Call(strconv.ParseInt(e.record()["renewed"], 10, 64)).Must(e)
		}
		before := renewed()
		e.Until("it renews", func() bool { return renewed() != before })
		if every := renewed() - before; every < 1990 || every > 2010 {
			t.Errorf("renewed after %d ms", every)
		}
		if ttl := e.Raw.PTTL(e.Context(), key("lock")).Val(); ttl < 14990*time.Millisecond || ttl > 15*time.Second {
			t.Errorf("the lock's TTL is %v", ttl)
		}
		cut := f.Partition()
		begin := e.Clock()
		mustIs(e, a.ended(1), lockcore.ErrLeaseExpired)
		if took := e.Clock() - begin; took < 9990*time.Millisecond || took > 10*time.Second {
			t.Errorf("the lead ended %v after the last renewal", took)
		}
		lockcoretest.MustFire(e, cut)
		f.Heal()
	})
}

// Every call returns within its documented bound, whatever the network does.
func TestFault69_EveryCallReturnsInTime(t *testing.T) {
	testenv.EveryCallIsBounded(t, false, everyCall)
}

// The calls that a quorum serves return in time when they are the first ones of their Client, too.
func TestFault69_FirstCallsToAQuorumReturnInTime(t *testing.T) {
	testenv.FirstCallsAreBounded(t, func(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
		le, err := election.NewLeaderElector(c, "vacant", idle, election.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown})
		testenv.Must(e, err)
		add("LeaderElector.Run", func(ctx context.Context) { _ = le.Run(ctx) })
		add("LeaderElector.Resign", func(ctx context.Context) { _ = le.Resign(ctx) })
		add("LeaderElector.Ready", func(context.Context) { _ = le.Ready() })
		board := testenv.Call(election.NewElection(c, "vacant")).Must(e)
		add("Election.Record", func(ctx context.Context) { _, _ = board.Record(ctx) })
		add("Election.Watch", func(ctx context.Context) { board.Watch(ctx) })
	})
}

func everyCall(e *testenv.Env, c *lockcore.Client, ttl time.Duration, add testenv.AddCall) {
	callbacks := idle
	callbacks.OnNewLeader = func(string) {}
	cfg := election.Config{LeaseDuration: ttl, ShutdownTimeout: testenv.BoundShutdown}
	elector := func(name string) *election.LeaderElector {
		return testenv.Call(election.NewLeaderElector(c, name, callbacks, cfg)).Must(e)
	}
	// leading returns an elector that leads, and a function that ends its Run.
	leading := func(name string) (le *election.LeaderElector, stop func(context.Context)) {
		le = elector(name)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = le.Run(ctx)
		}()
		e.Until(name+" leads", le.IsLeader)
		e.Cleanup(cancel)
		return le, func(ends context.Context) {
			<-ends.Done()
			cancel()
			<-done
		}
	}
	resigns, _ := leading("resigns")
	transfers, _ := leading("transfers")
	_, stop := leading("stops")
	vacant, queued := elector("vacant"), elector("stops")
	add("LeaderElector.Run while it leads", stop)
	add("LeaderElector.Run of a vacant election", func(ctx context.Context) { _ = vacant.Run(ctx) })
	add("LeaderElector.Run in the queue", func(ctx context.Context) { _ = queued.Run(ctx) })
	add("LeaderElector.Resign", func(ctx context.Context) { _ = resigns.Resign(ctx) })
	add("LeaderElector.TransferTo", func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") })
	add("LeaderElector.TransferTo with 1 s", func(ctx context.Context) { _ = transfers.TransferTo(ctx, "x") })
	board := testenv.Call(election.NewElection(c, "transfers")).Must(e)
	add("Election.Record", func(ctx context.Context) { _, _ = board.Record(ctx) })
	add("Election.Candidates", func(ctx context.Context) { _, _ = board.Candidates(ctx) })
	add("Election.Terms", func(ctx context.Context) { _, _ = board.Terms(ctx) })
	add("Election.Watch", func(ctx context.Context) { board.Watch(ctx) })
	add("Election.Resign", func(ctx context.Context) { _, _ = board.Resign(ctx, 0) })
	add("Election.TransferTo", func(ctx context.Context) { _, _ = board.TransferTo(ctx, 0, "x") })
	add("Elections", func(ctx context.Context) { _, _ = election.Elections(ctx, c, nil) })
	add("LeaderElector.Check", func(context.Context) { _ = transfers.Check(0) })
	add("LeaderElector.Ready", func(context.Context) { _ = transfers.Ready() })
}
