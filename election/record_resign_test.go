package election

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A request concerns one term: not the one before, and not a leadership whose lock another
// candidate holds already, or another program. Before the record names a leader, nobody is asked.
// Mutants: the token is not compared; nor is the attempt.
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
		asks("its work has not begun", l.lease.Token(), ErrTermOver)
		l.begin()
		e.Until("its work has begun", func() bool { return testenv.Call(a.Record(e.Context())).Must(e).Left > 0 })
		asks("a term before", l.lease.Token()-1, ErrTermOver)
		mine := e.Raw.Get(e.Context(), key("lock")).Val()
		for who, lock := range map[string]string{"another candidate": "nl1:X.1/b", "another program": "x"} {
			testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), lock, time.Hour).Err())
			asks(who+" has the lock", l.lease.Token(), ErrTermOver)
		}
		testenv.Must(e, e.Raw.Set(e.Context(), key("lock"), mine, time.Hour).Err())
		asks("it leads", l.lease.Token(), nil)
		testenv.Must(e, l.lease.Unlock(e.Context()))
		second := lead(e, a)
		if r, err := a.Record(e.Context()); err != nil || r.Asked != nil {
			e.Errorf("the next term is asked: %+v, %v", r.Asked, err)
		}
		asks("the term before", l.lease.Token(), ErrTermOver)
		testenv.Must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 2).Err())
		testenv.MustIs(e, a.ask(e.Context(), second.lease.Token(), ""), ErrNewerSchema)
	})
}
