package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
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
				if knows.By.Who != "ann@host" {
					e.Errorf("the author of the resume is unknown: %+v", knows)
				}
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
				e.Pass(time.Second)
				job := e.key("job/draw", "job")
				id := e.Raw.HGet(e.Context(), job, "id").Val()
				st := look(knows)
				if back == 0 && (e.Raw.HGet(e.Context(), job, "id").Val() == id || e.PTTL(job) <= 0 || e.PTTL(e.key("job/draw", "acts")) != e.PTTL(job)) {
					e.Errorf("the id is %s as before, or acts are kept for %v, and the job for %v", id, e.PTTL(e.key("job/draw", "acts")), e.PTTL(job))
				}
				again := look(stale)
				if back == 0 && (st.Paused || again.Paused || !again.Resumed.Equal(knows.Resumed) || again.By != knows.By) {
					e.Errorf("stale first %v: it is %+v, then %+v", staleFirst, st, again)
				}
				want := 1
				if staleFirst && back == 0 {
					want = 2
				}
				if acts := e.acts(); len(acts) != want {
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
		if !st.Paused || !st.PausedSince.Equal(before.PausedSince) || st.By != (lockcore.Operator{}) {
			e.Errorf("restored is %+v", st)
		}
		if e.PTTL(e.key("job/draw", "job")) >= 0 || e.PTTL(e.key("job/draw", "acts")) >= 0 {
			e.Error("the ledger of a paused job expires")
		}
	})
}

// Only the key of the job is lost. What operators have done is still there, once, wherever the entry of
// the pause is among the others.
func TestFault112_TheEntryOfThePauseIsKept(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		e.claimed(l)
		testenv.Must(e, e.operator().Pause(e.Context()))
		before := e.opened(l)
		acts, job := e.key("job/draw", "acts"), e.key("job/draw", "job")
		control := e.Raw.LIndex(e.Context(), acts, 0).Val()
		for at := range 3 {
			list := []any{`{"at":"1","what":"trigger"}`, `{"at":"2","what":"trigger"}`}
			list = slices.Insert(list, at, any(control))
			testenv.Must(e, e.Raw.Del(e.Context(), acts, job).Err())
			testenv.Must(e, e.Raw.RPush(e.Context(), acts, list...).Err())
			st, err := l.Open(e.Context(), before)
			testenv.Must(e, err)
			if got := e.Raw.LRange(e.Context(), acts, 0, -1).Val(); !st.Paused || len(got) != 3 || got[at] != control {
				e.Errorf("entry %d: paused %v, acts %q", at, st.Paused, got)
			}
		}
		testenv.Must(e, e.Raw.PExpire(e.Context(), acts, 5*time.Second).Err())
		if _, err := l.Open(e.Context(), before); err != nil || e.PTTL(acts) != 5*time.Second {
			e.Errorf("a look keeps the acts for %v, %v", e.PTTL(acts), err)
		}
		testenv.Must(e, e.Raw.Del(e.Context(), acts, job).Err())
		testenv.Must(e, e.Raw.Set(e.Context(), acts, "damaged", 0).Err())
		if _, err := l.Open(e.Context(), before); err == nil || e.Exists(job) {
			e.Errorf("with damaged acts: %v, or the job was created", err)
		}
	})
}
