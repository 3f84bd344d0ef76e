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
		good := election.Callbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}}
		s := time.Second
		for i, test := range []struct {
			cb   election.Callbacks
			name string
			cfg  election.Config
			want string // "": allowed
		}{
			{good, "board", election.Config{}, ""},
			{good, "board", election.Config{LeaseDuration: 3 * s}, ""},
			{good, "board", election.Config{LeaseDuration: 100 * time.Millisecond}, ""},
			{good, "board", election.Config{LeaseDuration: 15 * s, RenewDeadline: 14847 * time.Millisecond}, ""},
			{good, "board", election.Config{LeaseDuration: 15 * s, RenewDeadline: 14848 * time.Millisecond}, "Config.RenewDeadline is 14.848s; it must be less than LeaseDuration minus the margin for clocks, 14.848s"},
			{good, "board", election.Config{LeaseDuration: 10 * s, RenewDeadline: 10 * s}, "Config.RenewDeadline is 10s; it must be less than LeaseDuration"},
			{good, "board", election.Config{LeaseDuration: 5 * s, RenewDeadline: 10 * s}, "Config.RenewDeadline is 10s"},
			{good, "board", election.Config{RenewDeadline: 6 * s, RetryPeriod: 4999 * time.Millisecond}, ""},
			{good, "board", election.Config{RenewDeadline: 6 * s, RetryPeriod: 5 * s}, "Config.RetryPeriod is 5s; it must be less than RenewDeadline/1.2, 5s"},
			{good, "board", election.Config{RenewDeadline: 12 * s, RetryPeriod: 8 * s}, "Config.RetryPeriod is 8s; it must be at most half of LeaseDuration, 7.5s"},
			{good, "board", election.Config{LeaseDuration: -s}, "Config.LeaseDuration is -1s; it must be 0 (15s) or whole milliseconds from 100ms to 24h"},
			{good, "board", election.Config{LeaseDuration: 25 * time.Hour}, "Config.LeaseDuration is 25h0m0s"},
			{good, "board", election.Config{LeaseDuration: s + 1}, "Config.LeaseDuration is 1.000000001s"},
			{good, "board", election.Config{RenewDeadline: -s}, "Config.RenewDeadline is -1s"},
			{good, "board", election.Config{RetryPeriod: -s}, "Config.RetryPeriod is -1s"},
			{good, "board", election.Config{RetryPeriod: 9999 * time.Microsecond}, "Config.RetryPeriod is 9.999ms; it must be 0 (two fifteenths of LeaseDuration) or at least 10ms"},
			{good, "board", election.Config{RetryPeriod: 10 * time.Millisecond}, ""},
			{good, "board", election.Config{RenewDeadline: 12 * s, RetryPeriod: 7500 * time.Millisecond}, ""},
			{good, "board", election.Config{LeaseDuration: 24 * time.Hour}, ""},
			{good, "board", election.Config{RenewDeadline: -1}, "Config.RenewDeadline is -1ns; it must be 0 (two thirds of LeaseDuration) or positive"},
			{good, "board", election.Config{DrainTimeout: -1}, "Config.DrainTimeout is -1ns; it must be 0 (no limit) or positive"},
			{good, "board", election.Config{Metadata: map[string]string{"a": strings.Repeat("b", 5000)}}, "election: Config.Metadata is 5008 bytes; it must be at most 4096 bytes as JSON"},
			{good, "", election.Config{}, `election: name is ""`},
			{good, strings.Repeat("n", 191), election.Config{}, ""},
			{good, strings.Repeat("n", 192), election.Config{}, "it must be 1 to 191 bytes"},
			{election.Callbacks{OnStoppedLeading: func() {}}, "board", election.Config{}, "Callbacks.OnStartedLeading is nil; it must be a function"},
			{election.Callbacks{OnStartedLeading: func(context.Context) {}}, "board", election.Config{}, "Callbacks.OnStoppedLeading is nil; it must be a function"},
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
		if _, err := election.NewLeaderElector(nil, "board", good, election.Config{}); !errors.Is(err, noonlock.ErrConfig) ||
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
