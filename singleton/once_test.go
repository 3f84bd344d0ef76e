package singleton_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// once returns a Runner without jobs.
func (f *fleet) once(c *lockcore.Client) *singleton.Runner {
	f.Helper()
	r, err := singleton.NewRunner(c, singleton.Config{Drain: -1})
	testenv.Must(f, err)
	return r
}

type onceWork = func(context.Context) error

// do starts a Once.
func (f *fleet) do(r *singleton.Runner, work onceWork) *replicaRun {
	f.Helper()
	return f.run(func(ctx context.Context) error { return r.Once(ctx, "migrate-7", work) })
}

// listen returns when that many clients run the work or wait for its outcome.
func (f *fleet) listen(n int64) {
	f.Helper()
	f.Until(fmt.Sprintf("%d listen", n), func() bool { return f.listening("migrate-7") == n })
}

// A failure is what the text of an ErrOnceFailed says.
type failure struct {
	Outcome        singleton.Outcome
	Holder, Reason string
	Attempt        int
}

var failureText = regexp.MustCompile(`(?s)^singleton: once "migrate-7": (\w+) on (\S+), attempt (\d+): (.*)$`)

func onceFailure(t *testing.T, err error) failure {
	t.Helper()
	if !errors.Is(err, singleton.ErrOnceFailed) {
		t.Fatalf("error %v, want ErrOnceFailed", err)
	}
	text := failureText.FindStringSubmatch(err.Error())
	if text == nil {
		t.Fatalf("the error is %v", err)
	}
	attempt, _ := strconv.Atoi(text[3])
	testenv.Equal(t, "it is ErrUnknownOutcome", errors.Is(err, singleton.ErrUnknownOutcome), text[1] == "unknown")
	return failure{singleton.Outcome(text[1]), text[2], text[4], attempt}
}

// Fifty replicas start at the same instant: one runs the work, and all have its result.
// Later calls have it, too.
func TestOnceRunsOnOneOfFifty(t *testing.T) {
	for _, result := range []error{nil, errBroken} {
		t.Run(fmt.Sprint(result), func(t *testing.T) {
			onBoth(t, func(t *testing.T, f *fleet) {
				const replicas = 50
				leave := make(chan struct{})
				runs := make(chan uint64, replicas)
				work := func(ctx context.Context) error {
					runs <- lockcore.FromContext(ctx).Token()
					<-leave
					return result
				}
				var all []*replicaRun
				for i := range replicas {
					all = append(all, f.do(f.once(f.Client(fmt.Sprintf("replica-%d", i))), work))
				}
				token := receive(f, runs, "the run")
				f.listen(replicas)
				close(leave)
				ran := 0
				for _, r := range all {
					err := r.result()
					if result == nil {
						testenv.Must(t, err)
						continue
					}
					if errors.Is(err, errBroken) {
						ran++
					}
					if failed := onceFailure(t, err); failed.Reason != errBroken.Error() || failed.Outcome != singleton.OutcomeFailed || failed.Attempt != 1 || !strings.HasPrefix(failed.Holder, "replica-") {
						t.Errorf("failure %+v, want the runner's", failed)
					}
				}
				// On a real server, a call may begin after the failure, which it then does not share.
				if n := len(runs) + 1; n != 1 && (result == nil || f.Bubble != nil) || result != nil && ran != n {
					t.Errorf("%d runs, and %d replicas have the work's own error", n, ran)
				}
				for len(runs) > 0 {
					token = <-runs
				}
				f.Until("there is no subscriber left", func() bool { return f.listening("migrate-7") == 0 })
				testenv.Must(t, f.once(f.Client("later")).Once(t.Context(), "migrate-7", func(ctx context.Context) error {
					runs <- lockcore.FromContext(ctx).Token()
					return nil
				}))
				if tried := len(runs) == 1; tried != (result != nil) || tried && <-runs <= token {
					t.Errorf("after %v, a later Do has tried again: %t", result, tried)
				}
			})
		})
	}
}

// Waiting costs one look per TTL (P7), and the result comes by message. If that is lost, the next look finds it.
func TestOnceWaitersDoNotPoll(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const waiters, minutes = 20, 2
		leave, started := make(chan struct{}), make(chan struct{})
		f.do(f.once(f.Client("runner")), func(context.Context) error {
			close(started)
			<-leave
			return nil
		})
		receive(f, started, "the run")
		faults := lockcoretest.NewFaults()
		// A fault that changes nothing counts the requests.
		looks := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.TrickleReply, Match: testenv.IsScript})
		var all []*replicaRun
		for i := range waiters {
			c := f.ClientWith(f.Bubble.OptionsVia(faults), lockcore.Config{Identity: strconv.Itoa(i)})
			all = append(all, f.do(f.once(c), mustNotRun(t)))
		}
		c, deaf := f.Linked("deaf")
		deaf.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropMessage, Match: lockcoretest.Channel("noonlock:job:0:once/migrate-7")})
		late := f.do(f.once(c), mustNotRun(t))
		f.listen(waiters + 2)
		time.Sleep(minutes * time.Minute)
		// A look is due when the hold would end, at least 2/3 of its TTL later.
		if most := waiters * (minutes*60/6 + 4); looks.Fired() > most {
			t.Errorf("%d looks, want at most %d", looks.Fired(), most)
		}
		close(leave)
		before := f.Clock()
		for _, r := range all {
			testenv.Must(t, r.result())
		}
		f.within("the result came", f.Clock()-before, 10*time.Millisecond)
		if err := late.result(); err != nil || f.Clock()-before > 11*time.Second {
			t.Errorf("without messages, Do returned %v after %v, want within a TTL", err, f.Clock()-before)
		}
	})
}

// mustNotRun is work that must not run.
func mustNotRun(t *testing.T) onceWork {
	t.Helper()
	return func(context.Context) error {
		t.Error("the work has run where it must not")
		return nil
	}
}

func TestOnceWaiterIsCancelled(t *testing.T) {
	onBoth(t, func(t *testing.T, f *fleet) {
		started := make(chan struct{})
		runner := f.do(f.once(f.Client("a")), func(ctx context.Context) error {
			close(started)
			<-ctx.Done()
			return ctx.Err()
		})
		receive(f, started, "the run")
		why := errors.New("the pod is drained")
		ctx, cancel := context.WithCancelCause(t.Context())
		o := f.once(f.Client("b"))
		waiter := f.run(func(context.Context) error { return o.Once(ctx, "migrate-7", mustNotRun(t)) })
		f.listen(2)
		cancel(why)
		if err := waiter.result(); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("Do: %v, want canceled and its cause", err)
		}
		f.listen(1)
		testenv.MustIs(t, o.Once(ctx, "migrate-7", mustNotRun(t)), context.Canceled)
		runner.end()
	})
}

// A success is kept for a year after the last call.
func TestOnceRemembers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fleet) {
		const remember = 365 * 24 * time.Hour
		var count atomic.Int64
		for i, c := range []struct {
			after time.Duration
			runs  int64
		}{{0, 1}, {remember - time.Minute, 1}, {remember - time.Minute, 1}, {remember + time.Minute, 2}} {
			time.Sleep(c.after)
			client := f.Client(strconv.Itoa(i))
			if err := f.once(client).Once(t.Context(), "migrate-7", func(context.Context) error {
				count.Add(1)
				return nil
			}); err != nil {
				t.Errorf("Do: %v", err)
			}
			testenv.Equal(t, fmt.Sprint("runs at call ", i), count.Load(), c.runs)
			testenv.Must(t, client.Close(t.Context()))
		}
		time.Sleep(8 * 24 * time.Hour)
		time.Sleep(remember)
		testenv.Equal(t, "keys that are left", len(f.Raw.Keys(t.Context(), "*").Val()), 0)
	})
}
