package ledger_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A definer is a replica with its own definition of the job.
type definer struct {
	*env
	def    string
	ledger *ledger.Ledger
	state  ledger.State
}

func (e *env) definer(def, schedule string) *definer {
	e.Helper()
	return &definer{env: e, def: def, ledger: e.jobLedger(e.Client(def), ledger.Config{Definition: def, Schedule: schedule})}
}

// looks lets the replica look, and asserts which generation acts, and whether it is its
// own.
func (d *definer) looks(generation int, acts bool) {
	d.Helper()
	var err error
	d.state, err = d.ledger.Open(d.Context(), d.state)
	testenv.Must(d.env, err)
	if d.state.Generation != generation || d.state.Superseded == acts {
		d.Fatalf("want generation %d, and that it acts: %v, got %+v", generation, acts, d.state)
	}
}

// takesOver asserts that the replica takes over from the given generation, whose replicas
// have died, after 90 s and not earlier.
func (d *definer) takesOver(from, generation int) {
	d.Helper()
	d.looks(from, false)
	for range 2 {
		d.Pass(30 * time.Second)
		d.looks(from, false)
	}
	d.Pass(30 * time.Second)
	d.looks(generation, true)
}

// proven lets the replica take over from the acting one, and be proven.
func (d *definer) proven(generation int) {
	d.Helper()
	d.looks(generation-1, false)
	d.Pass(5 * time.Second)
	d.looks(generation, true)
	testenv.Must(d.env, d.Raw.HSet(d.Context(), d.key("job/draw", "job"), "base", d.def).Err())
	d.looks(generation, true)
}

// An older definition acts while no replica of the newest is left, under its own order.
// When the newest is back, it acts again, later claims of the older one are refused, and
// the next start is newer than both.
// Mutants: a replacement becomes the newest; orders are given twice.
func TestTheNewestTakesTheJobBack(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1", ""), e.definer("2", "")
		one.state = ledger.State{Last: e.opened(e.jobLedger(e.Client("o"), ledger.Config{})).Last, Fresh: true}
		one.looks(1, true)
		two.looks(1, false)
		e.Pass(5*time.Second - time.Millisecond)
		two.looks(1, false)
		e.Pass(time.Millisecond)
		two.looks(2, true)
		one.looks(2, false)
		testenv.Must(e, two.ledger.Leave(e.Context(), two.state))
		one.looks(1, true)
		run, err := one.ledger.Claim(e.Context(), ledger.RunID{Tick: one.state.Last.Add(time.Second)}, one.state, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
		before := one.state
		before.Last = run.Tick
		two.looks(1, false)
		e.Pass(20*time.Second - time.Millisecond) // it has lost the job on trial
		two.looks(1, false)
		e.Pass(time.Millisecond)
		two.looks(2, true)
		_, err = one.ledger.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, before, ledger.ClaimConfig{})
		e.notClaimed(err, ledger.ClaimSuperseded)
		next := run.Tick.Add(time.Second)
		err = one.ledger.Skip(e.Context(), before, ledger.Skip{First: next, Last: next, Count: 1, Reason: "missed"})
		e.notClaimed(err, ledger.ClaimSuperseded)
		one.looks(2, false)
		testenv.Must(e, two.ledger.Leave(e.Context(), two.state))
		one.looks(1, true)
		three := e.definer("3", "")
		three.looks(1, false)
		e.Pass(5 * time.Second)
		three.looks(3, true)
		two.looks(3, false)
		run, err = three.ledger.Claim(e.Context(), ledger.RunID{Tick: run.Tick.Add(time.Second)}, three.state, ledger.ClaimConfig{})
		testenv.Must(e, err)
		testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
	})
}

// A replica that was absent, together with its server, does not consider others dead until
// it has looked for as long as a replica may stay silent.
// Mutants: a returning replica takes over at once; or at its second look; or never.
func TestReturningReplicaTakesNoneForDead(t *testing.T) {
	inBubble(t, func(e *env) {
		one, two := e.definer("1", ""), e.definer("2", "")
		one.looks(1, true)
		two.proven(2)
		one.looks(2, false)
		e.Pass(2 * time.Minute)
		for range 3 {
			one.looks(2, false)
			e.Pass(30 * time.Second)
		}
		one.looks(1, true)
		e.Pass(2 * time.Minute)
		two.looks(2, true)
		one.looks(2, false)
		// A replica that has looked all the time knows.
		for _, d := range []time.Duration{30 * time.Second, 30 * time.Second, 30*time.Second - time.Millisecond} {
			e.Pass(d)
			one.looks(2, false)
		}
		e.Pass(time.Millisecond)
		one.looks(1, true)
	})
}

// A start without an answer is the same start when the replica repeats it, hours later in
// the ledger's life, also for the definition that acted then.
// Mutants: the replica has another number after an error; a start is only remembered if its
// definition was another; the tombstone is not kept while it is used.
func TestAStartThatFailsCountsOnce(t *testing.T) {
	for _, alike := range []bool{false, true} {
		inBubble(t, func(e *env) {
			c, net := e.Linked("old")
			one, two := e.definer("1", ""), e.definer("2", "")
			old := &definer{env: e, ledger: e.jobLedger(c, ledger.Config{Definition: "1"})}
			if alike {
				one.looks(1, true)
			}
			e.opened(e.jobLedger(c, ledger.Config{})) // the script is known
			lost := net.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script("job_open")})
			for i := range 5 {
				state, err := old.ledger.Open(e.Context(), old.state)
				testenv.MustIs(e, err, lockcore.ErrUnknown)
				old.state = state
				if i == 0 {
					two.proven(2)
				}
				e.Pass(100 * time.Second)
			}
			two.looks(2, true)
			lost.Lift()
			old.looks(2, false)
			if lost.Fired() < 5 {
				e.Errorf("%d answers were lost", lost.Fired())
			}
		})
	}
}
