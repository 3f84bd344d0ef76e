package ledger_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Replicas restore the newest pause or resume that one of them knows, whichever of them looks first
// after the loss. What an operator has ordered since counts more. While the server keeps its data, a
// replica that knows less changes nothing, also if the clock was set back.
// Mutants: a pause that was resumed comes back; a repeated request adds an act or changes the ledger;
// the newest order has the time of the clock that was set back.
func TestFault112_TheNewestPauseOrResumeCounts(t *testing.T) {
	for _, back := range []time.Duration{0, time.Hour} {
		for _, staleFirst := range []bool{false, true} {
			inBubble(t, func(e *env) {
				l := e.jobLedger(e.Client("a"), ledger.Config{})
				ann := e.operator()
				e.claimed(l)
				e.Pass(time.Second)
				testenv.Must(e, ann.Pause(e.Context()))
				stale := e.opened(l)
				e.Bubble.StepClock(-back)
				e.Pass(time.Second)
				testenv.Must(e, ann.Resume(e.Context()))
				e.Pass(time.Second)
				if st, err := l.Open(e.Context(), stale); err != nil || st.Paused || st.Lost {
					e.Fatalf("a stale replica finds %+v, %v", st, err)
				}
				knows := e.opened(l)
				look := func(before ledger.State) ledger.State {
					e.Helper()
					st, err := l.Open(e.Context(), before)
					testenv.Must(e, err)
					return st
				}
				testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
				if staleFirst {
					if st := look(stale); !st.Paused || !st.Lost || st.By.Who != "ann@host" {
						e.Errorf("the stale replica restores %+v", st)
					}
				}
				st := look(knows)
				again := look(stale)
				if back == 0 && (st.Paused || again.Paused || !again.Resumed.Equal(knows.Resumed) || again.By != knows.By) {
					e.Errorf("stale first %v: it is %+v, then %+v", staleFirst, st, again)
				}
				want := 1
				if staleFirst && back == 0 {
					want = 2
				}
				if acts := e.acts(l); len(acts) != want {
					e.Errorf("stale first %v: acts are %q", staleFirst, acts)
				}

				// An operator pauses and resumes the new ledger, and the others have not looked since.
				testenv.Must(e, ann.Pause(e.Context()))
				e.Pass(time.Second)
				if st := look(knows); !st.Paused {
					e.Errorf("resumed by a replica that had not noticed the pause: %+v", st)
				}
				testenv.Must(e, ann.Resume(e.Context()))
				if st := look(stale); st.Paused {
					e.Errorf("paused by a replica that had not noticed the resume: %+v", st)
				}
			})
		}
	}
}

// A release that stores no entry with the pause has paused the job: replicas restore it without its
// author.
func TestFault112_APauseWithoutItsEntry(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.claimed(l)
		testenv.Must(e, l.Pause(e.Context()))
		testenv.Must(e, e.Raw.HDel(e.Context(), e.key("job/draw", "job"), "control").Err())
		before := e.opened(l)
		testenv.Must(e, e.Raw.FlushAll(e.Context()).Err())
		st, err := l.Open(e.Context(), before)
		testenv.Must(e, err)
		if !st.Paused || !st.PausedSince.Equal(before.PausedSince) || st.By != (ledger.By{}) {
			e.Errorf("restored is %+v", st)
		}
		if e.PTTL(e.key("job/draw", "job")) >= 0 || e.PTTL(e.key("job/draw", "acts")) >= 0 {
			e.Error("the ledger of a paused job expires")
		}
	})
}
