package browser_test

import (
	"context"
	"errors"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A script is the work of a job in a test. Each run does what the test has said for it.
type script struct {
	results chan error
	by      lockcore.Operator // who triggers runs
}

var (
	errHang  = errors.New("the run continues until its context ends")
	errWorse = errors.New("the address is unknown")
)

func newScript() *script { return &script{results: make(chan error, 100)} }

func (s *script) work(ctx context.Context, _ singleton.Run) error {
	err := <-s.results
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// trigger triggers a run with a result, and waits until it has ended, or runs if the result is
// errHang.
func (s *script) trigger(e *testenv.Env, j *singleton.Job, result error) {
	e.Helper()
	before := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
	s.results <- result
	_, err := j.Trigger(lockcore.WithOperator(e.Context(), s.by))
	testenv.Must(e, err)
	e.Until("the run has ended", func() bool {
		if errors.Is(result, errHang) {
			st := testenv.Call(j.Status(e.Context())).Must(e)
			return len(st.Open) == 1 && st.Open[0].Running
		}
		runs := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
		return len(runs) > len(before)
	})
}
