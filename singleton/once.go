package singleton

import (
	"cmp"
	"context"
	"fmt"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
	"github.com/noonlock/noonlock/singleton/internal/replica"
)

// Once does work that must succeed once for all replicas, such as a migration at the start of a release. One replica
// does the work, and the others wait for its result. The success is remembered under the name for a year after the last
// call that found it. To run new work, put its version or fingerprint into the name, which follows the rules of a
// lock's name and has at most 195 bytes. Once may be called before Run, during Run, and without Run. Once returns
//
//   - nil: the work has succeeded, here or on another replica, now or before.
//   - ErrOnceFailed: the run that this call did or waited for has failed. All calls that waited for it return
//     ErrOnceFailed. A later call runs the work again.
//   - another error: the outcome is not known. If ctx has ended, the error is ctx's, joined with the error of the work.
//     Otherwise the server has refused a request, or the Client is closed.
//
// The run is one of the job "once/NAME", triggered by the first call. So the guarantees, the context of the work, the
// drain after ctx ends, and the takeover by another replica are as for a job. If the replica that does the work dies or
// shuts down, further attempts follow, up to five. A call may therefore run work more than once, but never twice at the
// same time. If the server loses its data, the work is done again. Effects happen exactly once if they commit in one
// transaction with a marker, as in package sqlonce: use the job "once/NAME", and a fixed tick such as
// time.UnixMilli(1).
//
// During an outage of the server Once waits until ctx ends, so give ctx a deadline. work must not call Once for its
// own name.
func (r *Runner) Once(ctx context.Context, name string, work func(ctx context.Context) error) error {
	if work == nil {
		return &noonlock.ConfigError{Package: "singleton", Field: "work", Value: "nil", Rule: "a function"}
	}
	def, err := r.define(oncePrefix+name, "@never", func(ctx context.Context, _ Run) error { return work(ctx) },
		JobConfig{KeepRuns: replica.OnceEntries})
	if err != nil {
		return err
	}
	failed, err := r.replica.Once(ctx, def)
	switch {
	case failed != nil:
		return &onceError{name, failed, err}
	case err != nil:
		return fmt.Errorf("singleton: once %q: %w", name, err)
	}
	return nil
}

type onceError struct {
	name  string
	run   *ledger.Run
	cause error // error of the work, if it ran here
}

func (e *onceError) Error() string {
	return fmt.Sprintf("singleton: once %q: %s on %s, attempt %s: %s", e.name, e.run.Outcome, e.run.Holder, cmp.Or(e.run.Attempt, "0"), e.run.Error)
}

func (e *onceError) Unwrap() []error {
	all := []error{ErrOnceFailed}
	if e.run.Outcome == ledger.OutcomeUnknown {
		all = append(all, ErrUnknownOutcome)
	}
	if e.cause != nil {
		all = append(all, e.cause)
	}
	return all
}
