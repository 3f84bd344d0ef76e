package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// When a replica starts, each command is tried that its later scripts use: without the right to
// one of them, Open fails, and leaves nothing behind. Later Opens try nothing, as that would
// cost something each time. The commands are read from the scripts.
// Mutant: a command that only a claim, an abandoned run or a skip needs is not tried.
func TestFault77_OpenTriesEachRight(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	commands := testenv.Commands(t, "lua/*.lua", "../../../internal/wire/lua/part_token.lua")
	cfg := ledger.Config{Definition: "d", Schedule: "s"}
	all := e.jobLedger(e.Client("all"), cfg)
	_, err := all.Open(e.Context(), ledger.State{})
	testenv.Must(e, err)
	for _, paused := range []bool{false, true} {
		if paused {
			testenv.Must(e, all.Pause(e.Context()))
		}
		for _, command := range commands {
			opt := e.As(fmt.Sprint(command, paused), "~noonlock:*", "+@all", "-"+command, "allchannels")
			l := e.jobLedger(e.ClientWith(opt, lockcore.Config{}), cfg)
			if _, err := l.Open(e.Context(), ledger.State{}); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't run this command") {
				t.Errorf("without %s, paused %v: %v", command, paused, err)
			}
		}
		if n := e.Raw.LLen(e.Context(), e.key("job/draw", "runs")).Val(); n != 0 {
			t.Errorf("%d entries are left in the history", n)
		}
	}
	opt := e.As("later", "~noonlock:*", "+@all", "allchannels")
	l := e.jobLedger(e.ClientWith(opt, lockcore.Config{}), cfg)
	st, err := l.Open(e.Context(), ledger.State{})
	testenv.Must(e, err)
	testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "later", "-exists", "-lpush", "-ltrim", "-lrange").Err())
	_, err = l.Open(e.Context(), st)
	testenv.Must(e, err)
}

// A user with exactly the documented rights can do everything that a job needs. With one
// right less there is an error or a log line, and no tick is ever granted twice.
// Mutants: a script uses a command that is not documented; a claim that fails half-way
// leaves a tick that is granted to the next one, too.
func TestFault60_ACLOfTheLedger(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	rights := testenv.Rights(t, ledger.Rights{}.Needs(), false)
	user := func(but ...string) *redis.Options {
		return e.As(fmt.Sprint("user", but), slices.Concat(rights, but)...)
	}
	granted := map[time.Time]int{}
	// use does everything that is done with a job; it continues after an error.
	use := func(opt *redis.Options) (errs []error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		note := func(err error) bool {
			// No answer or connection in time is caused by a busy machine: a missing right
			// is refused.
			if err != nil && !errors.Is(err, ledger.ErrNotClaimed) && !lockcore.IsTemporary(err) {
				errs = append(errs, err)
			}
			return err == nil
		}
		did := func(_ any, err error) { note(err) }
		c := e.ClientWith(opt, lockcore.Config{})
		l := e.jobLedger(c, ledger.Config{Definition: "d", Lease: &lockcore.LeaseConfig{TTL: 5 * time.Second, RenewInterval: 100 * time.Millisecond}, KeepRuns: 10})
		now := time.Now()
		st, err := l.Open(ctx, ledger.State{Last: now.Truncate(time.Second).Add(-time.Minute), Fresh: true})
		note(err)
		if st.Last.IsZero() {
			st.Last = now.Truncate(time.Second).Add(-30 * time.Second)
		}
		for n := range 4 {
			tick := st.Last.Add(time.Duration(2*n+2) * time.Second)
			for _, open := range st.Open {
				if !open.Triggered {
					tick = open.Tick
				}
			}
			skip := ledger.Skip{First: tick.Add(-time.Second), Last: tick.Add(-time.Second), Count: 1, Reason: "missed"}
			if note(l.Skip(ctx, st, skip)) {
				st.Last = skip.Last
			}
			run, err := l.Claim(ctx, ledger.RunID{Tick: tick}, st, time.Time{})
			if note(err) {
				if granted[tick]++; granted[tick] > 1 && run.Attempt == 1 {
					e.Errorf("tick %v was granted again", tick)
				}
				if n == 0 {
					e.Pass(120 * time.Millisecond) // a renewal
				}
				if n%2 == 0 {
					note(run.Complete(ctx, ledger.OutcomeSucceeded, ""))
				} else {
					note(run.Abandon(ctx, true, 0))
				}
			}
			before := st
			if st, err = l.Open(ctx, st); !note(err) {
				st = before
			}
		}
		for range 2 { // the second one makes the entry of the first longer
			next := st.Last.Add(time.Second)
			note(l.Skip(ctx, st, ledger.Skip{First: next, Last: next, Count: 1, Reason: "missed"}))
			st.Last = next
		}
		note(l.Pause(ctx))
		did(l.Status(ctx))
		note(l.Resume(ctx))
		did(l.Trigger(ctx))
		did(l.TriggerAt(ctx, "x", now, "payload"))
		job, err := singleton.NewJob(c, "draw")
		testenv.Must(e, err)
		did(job.Runs(ctx, 10))
		did(job.Actions(ctx, 10))
		note(l.Rerun(ctx, ledger.RunID{Tick: st.Last}, false))
		did(l.Cancel(ctx, ledger.RunID{Tick: st.Last}))
		note(l.Leave(ctx, st))
		return errs
	}
	for _, err := range use(user()) {
		t.Errorf("with the documented rights: %v", err)
	}
	testenv.Must(e, e.jobLedger(e.ClientWith(user(), lockcore.Config{}), ledger.Config{}).Forget(t.Context()))
	slow := []string{"+subscribe", "+unsubscribe", "+ping", "+publish"}
	for _, right := range rights[slices.Index(rights, "-@all")+1:] {
		testenv.Must(e, e.Raw.FlushAll(t.Context()).Err())
		testenv.Must(e, e.Raw.ScriptFlush(t.Context()).Err())
		clear(granted)
		errs := use(user(strings.Replace(right, "+", "-", 1)))
		if slices.Contains(slow, right) {
			if len(errs) > 0 {
				t.Errorf("without %s it should only be slow: %v", right, errs)
			}
			continue
		}
		if len(errs) == 0 {
			t.Errorf("without %s nothing was refused: it is not needed", right)
		}
		// With the right the job continues, and no tick is granted again. The first call of a script is an EVAL, so only
		// what resumes the job may have been refused.
		_ = e.jobLedger(e.ClientWith(user(), lockcore.Config{}), ledger.Config{}).Resume(t.Context())
		for _, err := range use(user()) {
			t.Errorf("after a time without %s: %v", right, err)
		}
	}
}
