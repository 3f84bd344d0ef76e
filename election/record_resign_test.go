package election

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A request concerns one term: not the one before, and not a leadership whose lock another
// candidate holds already. The counter of tokens may be gone.
// Mutants: the token is not compared; nor is the counter; a leader of more than a week is not asked.
func TestAskOfOneTerm(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		a := handle(e, e.Client("a"), time.Hour, nil)
		asks := func(what string, token uint64, want error) {
			e.Helper()
			before, err := a.Record(e.Context())
			testenv.Must(e, err)
			err = a.ask(lockcore.WithOperator(e.Context(), lockcore.Operator{Who: "ann@host", Reason: what}), token, "b")
			if want != nil {
				testenv.MustIs(e, err, want)
			} else {
				testenv.Must(e, err)
			}
			r, err := a.Record(e.Context())
			testenv.Must(e, err)
			if want == nil && (r.Asked == nil || r.Asked.By != "ann@host" || r.Asked.Reason != what || r.Asked.To != "b") {
				e.Errorf("%s: asked is %+v", what, r.Asked)
			}
			if want != nil && r.Asked != before.Asked {
				e.Errorf("%s: asked is %+v", what, r.Asked)
			}
		}
		asks("nobody has led", 1, ErrNoLeader)
		l := campaign(e, a)
		asks("a term before", l.lease.Token()-1, ErrTermOver)
		testenv.Must(e, e.Raw.Incr(e.Context(), key("fence")).Err())
		asks("another candidate has the lock", l.lease.Token(), ErrTermOver)
		testenv.Must(e, e.Raw.Del(e.Context(), key("fence")).Err())
		asks("after a week", l.lease.Token(), nil)
		testenv.Must(e, l.release(e.Context()))
		e.Pass(10 * time.Millisecond) // without the counter, the clock makes tokens greater
		second := campaign(e, a)
		if r, err := a.Record(e.Context()); err != nil || r.Asked != nil {
			e.Errorf("the next term is asked: %+v, %v", r.Asked, err)
		}
		asks("the term before", l.lease.Token(), ErrTermOver)
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 2).Err())
		testenv.MustIs(e, a.ask(e.Context(), second.lease.Token(), ""), ErrNewerSchema)
	})
}
