package cli_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// verify finds a tick that failed, and tells that apart from a history that it cannot judge.
func TestVerify(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.runs("good", "@every 1s", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{})
	e.runs("bad", "@every 1s", func(context.Context, singleton.Run) error { return errors.New("the disk is full") }, singleton.JobConfig{MaxAttempts: 1})
	e.Until("both ran", func() bool {
		return e.Raw.LLen(t.Context(), "noonlock:{job/good}:runs").Val() > 2 && e.Raw.LLen(t.Context(), "noonlock:{job/bad}:runs").Val() > 2
	})
	e.must("pause", "bad")
	seen := decode[singleton.Verification](t, e.noonctl("verify", "bad", "-o", "json").out)
	if len(seen.Findings) == 0 || seen.Limit == "" {
		t.Errorf("verify: %+v", seen)
	}
	if r := e.noonctl("verify", "bad"); r.code != 65 || !strings.Contains(r.out, "the disk is full") || r.errOut != "" {
		t.Errorf("verify of failures: %+v", r)
	}
	// On a slow machine, a tick may have been skipped.
	if r := e.noonctl("verify", "good", "--since", "1h"); r.code != 0 && (r.code != 65 || strings.Contains(r.out, "failed")) || !strings.Contains(r.out, "Earlier ticks are not judged") {
		t.Errorf("verify of successes: %+v", r)
	}
	old := time.Now().Add(-time.Hour).Format(time.RFC3339)
	e.fails(66, []string{"the ledger keeps no ticks of this time"}, "verify", "good", "--until", old)
	e.says("verify god", 66, `there is no job "god"`)
	e.says("verify good --since 1h --until 2h", 64)
}

// verify does not succeed if a part of the time has no schedule that can be read here. It says why.
func TestFault113_VerifyWithoutASchedule(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.runs("draw", "@every 1s", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{CatchUp: singleton.CatchUpAll})
	e.Until("it ran", func() bool { return e.Raw.LLen(t.Context(), "noonlock:{job/draw}:runs").Val() > 1 })
	testenv.Must(t, e.Raw.HSet(t.Context(), "noonlock:{job/draw}:job", "spec", "0 12 * * * in Mars/North").Err())
	for _, output := range []string{"table", "json"} {
		e.fails(66, []string{`"Mars/North"; it must be`}, "verify", "draw", "-o", output)
	}
	if seen := decode[singleton.Verification](t, e.noonctl("verify", "draw", "-o", "json").out); len(seen.Unknown) != 1 || seen.Ticks == 0 {
		t.Errorf("verify: %+v", seen)
	}
}
