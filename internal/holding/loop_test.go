package holding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/internal/holding"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/readiness"
	"github.com/noonlock/noonlock/internal/stopping"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

type lease struct {
	number int
	ended  error
}

func (l *lease) Err() error { return l.ended }

// A holder records its calls and their times.
type holder struct {
	began    time.Time
	calls    []string
	leases   int
	prepare  func() error // noted if it is not nil
	campaign func(ctx context.Context) error
	work     func(ctx context.Context, l *lease)
	release  func(ctx context.Context) error
	pauses   []time.Duration // one for each campaign but the first; then Run returns
}

func (h *holder) note(what string, args ...any) {
	h.calls = append(h.calls, fmt.Sprintf("%v "+what, append([]any{time.Since(h.began)}, args...)...))
}

func (h *holder) Prepare(context.Context) error {
	if h.prepare == nil {
		return nil
	}
	h.note("prepare")
	return h.prepare()
}

func (h *holder) Campaign(ctx context.Context) (*lease, error) {
	h.note("campaign")
	if h.campaign != nil {
		if err := h.campaign(ctx); err != nil {
			return nil, err
		}
	}
	h.leases++
	return &lease{number: h.leases}, nil
}

func (h *holder) Work(ctx context.Context, l *lease, waited time.Duration) {
	h.note("work %d after %v", l.number, waited)
	if h.work != nil {
		h.work(ctx, l)
	}
}

func (h *holder) Release(ctx context.Context, l *lease) error {
	h.note("release %d", l.number)
	if h.release != nil {
		return h.release(ctx)
	}
	return nil
}

func (h *holder) Released(l *lease, lost, err error) {
	h.note("released %d: %v, %v", l.number, lost, err)
}

func (h *holder) Next(lost error, held time.Duration) (time.Duration, bool) {
	h.note("next: %v, held %v", lost, held)
	if len(h.pauses) == 0 {
		return 0, false
	}
	pause := h.pauses[0]
	h.pauses = h.pauses[1:]
	return pause, true
}

// A bench is a loop in a bubble.
type bench struct {
	*testing.T
	*holder
	loop   holding.Loop[*lease]
	ready  readiness.State
	ctx    context.Context
	cancel context.CancelFunc
	log    testenv.Log
}

const (
	ttl      = 3 * time.Second
	retryIn  = time.Second
	shutdown = 10 * time.Second
)

var errAway = errors.New("away")

func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, holder: &holder{began: time.Now()}}
		b.ctx, b.cancel = context.WithCancel(t.Context())
		defer b.cancel()
		deadline, done := stopping.New(b.ctx, shutdown, shutdown/5)
		defer done()
		b.loop = holding.Loop[*lease]{
			Holder: b.holder, TTL: ttl, Retry: retryIn, Ready: &b.ready, Deadline: deadline,
			Log: b.log.Info(""), Reports: &readiness.Reports{Log: b.log.Info(""), Workers: "campaigns", Message: "cannot campaign", Again: "answers again"},
		}
		test(b)
	})
}

func (b *bench) wantCalls(want ...string) {
	b.Helper()
	if !slices.Equal(b.calls, want) {
		b.Errorf("calls:\n%s\nwant:\n%s", strings.Join(b.calls, "\n"), strings.Join(want, "\n"))
	}
}

func (b *bench) wantReady(when string, want bool) {
	b.Helper()
	if err := b.ready.Err(); (err == nil) != want {
		b.Errorf("%s: readiness is %v", when, err)
	}
}

// The loop campaigns again after the pause, until the holder ends it. The recorded duration
// of a campaign begins after the pause. The loop is ready from the first lease on.
func TestLoop(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.campaign = func(context.Context) error { time.Sleep(time.Second); return nil }
		b.work = func(_ context.Context, l *lease) {
			time.Sleep(time.Minute)
			b.wantReady("at work", true)
			if l.number == 1 {
				l.ended = errAway
			}
		}
		b.pauses = []time.Duration{5 * time.Second}
		b.wantReady("before Run", false)
		testenv.Must(b, b.loop.Run(b.ctx))
		b.wantReady("after Run", false)
		b.wantCalls(
			"0s campaign", "1s work 1 after 1s", "1m1s release 1", "1m1s released 1: away, <nil>", "1m1s next: away, held 1m0s",
			"1m6s campaign", "1m7s work 2 after 1s", "2m7s release 2", "2m7s released 2: <nil>, <nil>", "2m7s next: <nil>, held 1m0s",
		)
	})
}

// A campaign that fails is repeated after a pause, and counts as the same campaign. It is
// logged once. An answer to another request soon afterwards proves nothing.
func TestLoopCampaignFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		failures := 3
		b.campaign = func(ctx context.Context) error {
			if failures--; failures >= 0 {
				readiness.Answered(ctx, nil)
				b.wantReady("while campaigns fail", failures == 2)
				return errAway
			}
			time.Sleep(ttl / 3)
			readiness.Answered(ctx, nil)
			b.wantReady("just after a campaign failed", false)
			time.Sleep(ttl)
			readiness.Answered(ctx, nil)
			b.wantReady("long after a campaign failed", true)
			readiness.Answered(ctx, errAway)
			b.wantReady("a request failed", false)
			return nil
		}
		testenv.Must(b, b.loop.Run(b.ctx))
		b.wantCalls(
			"0s campaign", "1s campaign", "2s campaign", "3s campaign",
			"7s work 1 after 7s", "7s release 1", "7s released 1: <nil>, <nil>", "7s next: <nil>, held 0s",
		)
		b.log.Lines(b, 2, "cannot campaign")
		b.log.Lines(b, 2, "answers again")
	})
}

// The loop prepares before its first campaign, and again after a campaign that failed. It
// does not campaign and is not ready until that has succeeded.
func TestLoopPrepares(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		prepares := []error{errAway, nil, errAway, nil}
		b.prepare = func() error {
			err := prepares[0]
			prepares = prepares[1:]
			return err
		}
		campaigns := []error{nil, nil, errAway, nil}
		b.campaign = func(context.Context) error {
			err := campaigns[0]
			campaigns = campaigns[1:]
			return err
		}
		b.pauses = []time.Duration{time.Minute, time.Minute}
		time.AfterFunc(retryIn/2, func() { b.wantReady("not prepared", false) })
		testenv.Must(b, b.loop.Run(b.ctx))
		b.calls = slices.DeleteFunc(b.calls, func(call string) bool { return strings.Contains(call, "release") || strings.Contains(call, "next") })
		b.wantCalls(
			"0s prepare", "1s prepare", "1s campaign", "1s work 1 after 1s",
			"1m1s campaign", "1m1s work 2 after 0s",
			"2m1s campaign", "2m2s prepare", "2m3s prepare", "2m3s campaign", "2m3s work 3 after 2s",
		)
		b.log.Lines(b, 2, "cannot campaign")
	})
}

// A Client that was closed ends Run; the end of ctx does so without an error.
func TestLoopEnds(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		inBubble(t, func(b *bench) {
			b.campaign = func(ctx context.Context) error {
				if cancelled {
					b.cancel()
				}
				readiness.Answered(ctx, errAway)
				return fmt.Errorf("lock: %w", lock.ErrClosed)
			}
			if err := b.loop.Run(b.ctx); errors.Is(err, lock.ErrClosed) == cancelled {
				b.Errorf("cancelled %v: Run: %v", cancelled, err)
			}
			b.wantCalls("0s campaign")
		})
	}
	inBubble(t, func(b *bench) {
		b.cancel()
		testenv.Must(b, b.loop.Run(b.ctx))
		b.wantCalls()
	})
}

// A lease that is granted when ctx has ended is released, and no work begins.
func TestLoopGrantedTooLate(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.campaign = func(context.Context) error { b.cancel(); return nil }
		b.release = func(context.Context) error { return errAway }
		testenv.Must(b, b.loop.Run(b.ctx))
		b.wantCalls("0s campaign", "0s release 1")
		b.log.Lines(b, 1, "failed to release lease")
	})
}

// A release that is not answered delays the loop no longer than the lease, nor longer than
// the rest of the shutdown time. It has that time although ctx has ended.
func TestLoopReleaseUnanswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ttl, drains, takes time.Duration
		stopped            bool
	}{
		{ttl: ttl, takes: ttl},
		{ttl: time.Minute, takes: 5 * time.Second},
		{ttl: ttl, takes: ttl, stopped: true},
		{ttl: time.Minute, drains: 7 * time.Second, takes: 3 * time.Second, stopped: true},
		{ttl: time.Minute, drains: time.Hour, takes: shutdown / 5, stopped: true},
	} {
		inBubble(t, func(b *bench) {
			b.loop.TTL = c.ttl
			b.work = func(context.Context, *lease) {
				if c.stopped {
					b.cancel()
				}
				time.Sleep(c.drains)
			}
			b.release = func(ctx context.Context) error {
				testenv.Must(b, ctx.Err())
				<-ctx.Done()
				return errAway
			}
			testenv.Must(b, b.loop.Run(b.ctx))
			testenv.Equal(b, fmt.Sprintf("%+v: the time", c), time.Since(b.began)-c.drains, c.takes)
		})
	}
}

// A loop whose campaign gets no answer for long is not ready. It is ready again after the
// next answer.
func TestLoopSilence(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bench) {
		b.campaign = func(ctx context.Context) error {
			readiness.Answered(ctx, nil)
			time.Sleep(4 * ttl)
			b.wantReady("while the answer is young", true)
			time.Sleep(time.Millisecond)
			b.wantReady("when it is old", false)
			readiness.Answered(ctx, nil)
			b.wantReady("with a new one", true)
			return nil
		}
		testenv.Must(b, b.loop.Run(b.ctx))
	})
}
