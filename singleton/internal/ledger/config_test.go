package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Parameters are checked, and long errors are cut.
func TestLedgerRefusals(t *testing.T) {
	inBubble(t, func(e *env) {
		c := e.Client("a")
		for _, c2 := range []struct {
			name  string
			cfg   ledger.Config
			field string
		}{
			{"", ledger.Config{}, "name"},
			{"a b", ledger.Config{}, "name"},
			{"a{b", ledger.Config{}, "name"},
			{strings.Repeat("x", 201), ledger.Config{}, "name"},
			{"draw", ledger.Config{Lease: new(testenv.TTL(time.Millisecond))}, "LeaseConfig.TTL"},
		} {
			_, err := ledger.New(c, c2.name, c2.cfg)
			var refused *noonlock.ConfigError
			if !errors.As(err, &refused) || refused.Field != c2.field {
				e.Errorf("Ledger(%q, %+v): %v, want %s refused", c2.name, c2.cfg, err, c2.field)
			}
		}
		l := e.jobLedger(c, ledger.Config{})
		st := e.opened(l)
		good := st.Last.Add(time.Second)
		claim := func(tick time.Time) error {
			_, err := l.Claim(e.Context(), ledger.RunID{Tick: tick}, st, time.Time{})
			return err
		}
		for what, err := range map[string]error{
			"tick":                  claim(time.Time{}),
			"tick of 1970":          claim(time.UnixMilli(0)),
			"tick of a microsecond": claim(good.Add(time.Microsecond)),
			"tick far ahead":        claim(time.UnixMilli(1 << 48)),
			"runs":                  func() error { _, err := e.job().Runs(e.Context(), 0); return err }(),
			"Skip":                  l.Skip(e.Context(), st, ledger.Skip{}),
		} {
			testenv.MustIs(e, err, noonlock.ErrConfig)
			if err == nil {
				e.Errorf("%s was not refused", what)
			}
		}
		run, err := l.Claim(e.Context(), ledger.RunID{Tick: good}, st, time.Time{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeFailed, strings.Repeat("é", 1000)+"\xff"))
		if kept := e.runs(1)[0].Error; len(kept) > 510 || !strings.HasPrefix(kept, "éé") {
			e.Errorf("an error of %d bytes was kept", len(kept))
		}
		for _, by := range []lockcore.Operator{{Who: "a\nb"}, {Reason: "\xff"}, {Reason: string(make([]byte, 201))}} {
			if err := l.Pause(lockcore.WithOperator(e.Context(), by)); err == nil {
				e.Errorf("%q was accepted", by)
			}
		}
		testenv.Must(e, c.Close(e.Context()))
		testenv.MustIs(e, claim(good), lockcore.ErrClosed)
		_, err = l.Open(e.Context(), st)
		testenv.MustIs(e, err, lockcore.ErrClosed)
	})
}
