package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// The server has evicted the open runs of a job, and nothing else (class D). A tick whose
// holder is dead is neither forgotten nor taken for ended: it is open again after one
// attempt, for any claim, or is recorded as unknown if no attempt is left. A live holder
// notices that its lease is lost. Each replica logs that data was lost.
//
// Caught mutants: only `open` says which runs are open; a restored run has no end; an ended
// run, or a trigger, is not distinguished.
func TestFault22_ClassD_OpenRunsAreEvicted(t *testing.T) {
	for _, most := range []int{1, 3} {
		t.Run(map[int]string{1: "one attempt", 3: "three attempts"}[most], func(t *testing.T) {
			onBoth(t, func(e *env) {
				cfg := ledger.Config{MaxAttempts: most, Lease: testenv.TTL(3 * time.Second)}
				evict := func() { testenv.Must(e, e.Raw.Del(e.Context(), e.key("job/draw", "open")).Err()) }
				other := e.jobLedger(e.Client("other"), cfg)
				ended, st := e.claimed(e.jobLedger(e.Client("first"), cfg))
				testenv.Must(e, ended.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
				st, err := other.Open(e.Context(), st)
				testenv.Must(e, err)
				cfg.Lease = lockcore.LeaseConfig{TTL: 3 * time.Second, NoRenewal: true}
				dead, err := e.jobLedger(e.Client("dead"), cfg).Claim(e.Context(), ledger.RunID{Tick: ended.Tick.Add(time.Second)}, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				e.Pass(3100 * time.Millisecond)
				trigger, err := other.Trigger(e.Context())
				testenv.Must(e, err)

				evict()
				st, err = other.Open(e.Context(), st)
				testenv.Must(e, err)
				if len(st.Open) != 2 || !st.Open[0].Tick.Equal(dead.Tick) || st.Open[1].RunID != trigger || st.Open[0].Left > 0 || !st.Lost {
					e.Fatalf("then the ledger is %+v, want the dead one's tick and the trigger open, and a loss", st)
				}
				if left := e.PTTL(e.key("job/draw", "open")); left <= 0 {
					e.Errorf("what is restored has %v left, want an end", left)
				}
				if st, err = other.Open(e.Context(), st); err != nil || st.Lost || len(st.Open) != 2 {
					e.Errorf("the next look says %+v, %v", st, err)
				}
				next, err := other.Claim(e.Context(), ledger.RunID{Tick: dead.Tick}, st, ledger.ClaimConfig{})
				if most == 1 {
					e.notClaimed(err, ledger.ClaimRecorded)
					runs := e.runs(1)
					if !runs[0].Tick.Equal(dead.Tick) || runs[0].Outcome != ledger.OutcomeUnknown || runs[0].Start.Before(ended.Tick) {
						e.Errorf("the history has %+v, want the tick as unknown", runs)
					}
					if a := runs[0].Attempts; len(a) != 1 || a[0].Error != "the server lost its record" {
						e.Errorf("the attempts are %+v, want the one whose record was lost", a)
					}
					return
				}
				testenv.Must(e, err)
				if next.Attempt != 2 || !next.Unsure || next.Token() <= dead.Token() {
					e.Errorf("the tick is claimed as attempt %d, unsure %v, token %d after %d", next.Attempt, next.Unsure, next.Token(), dead.Token())
				}

				if st, err = other.Open(e.Context(), st); err != nil || len(st.Open) != 2 || st.Open[0].Left <= 0 || st.Open[0].Attempt != 2 || st.Lost {
					e.Errorf("while it is run again the ledger is %+v, %v", st, err)
				}

				evict() // while its holder lives
				st, err = other.Open(e.Context(), st)
				testenv.Must(e, err)
				e.Until("its holder learns that", func() bool { return next.Context().Err() != nil })
				if err := next.Complete(e.Context(), ledger.OutcomeSucceeded, ""); !errors.Is(err, ledger.ErrSuperseded) {
					e.Errorf("it is completed all the same: %v", err)
				}
				last, err := other.Claim(e.Context(), ledger.RunID{Tick: dead.Tick}, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				testenv.Must(e, last.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
				if st, err = other.Open(e.Context(), st); err != nil || len(st.Open) != 1 || st.Open[0].RunID != trigger {
					e.Errorf("at last the ledger is %+v, %v, want the trigger open", st, err)
				}
				testenv.Must(e, other.Pause(e.Context())) // a trigger does not wait for its end
				last, err = other.Claim(e.Context(), trigger, st, ledger.ClaimConfig{})
				testenv.Must(e, err)
				testenv.Must(e, last.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
			})
		})
	}
}

// The server has evicted all keys of a job except its state (class D). The definition that acts keeps
// acting, whichever replica looks first, and a starting replica does not take the job either.
func TestFault22_ClassD_WhatIsBesideTheJobIsEvicted(t *testing.T) {
	onBoth(t, func(e *env) {
		one, two := e.definer("1"), e.definer("2")
		one.looks(true)
		two.looks(false)
		for _, key := range e.Raw.Keys(e.Context(), e.key("job/draw", "*")).Val() {
			if key != e.key("job/draw", "job") {
				testenv.Must(e, e.Raw.Del(e.Context(), key).Err())
			}
		}
		two.looks(false)
		e.definer("3").looks(false)
		one.looks(true)
	})
}
