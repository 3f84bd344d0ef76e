package lockcore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// Skip is a row of ticks that will not be run, and why, in one word.
type Skip struct {
	First, Last time.Time
	Count       int
	Reason      string
}

// ClaimConfig is what a claim may say besides.
type ClaimConfig struct {
	// Skipped are the due ticks between the newest accounted one and the one
	// claimed. They are recorded with the claim.
	Skipped *Skip

	// Until is the time on the server's clock after which the tick is not begun
	// any more. A tick that was begun before may be taken over later. Zero: for
	// ever.
	Until time.Time
}

// Claim claims the run of a tick for this process. known is the ledger as the
// caller knows it; if a tick was accounted for since, the claim is refused, as the
// ticks between known.Last and this one must all stand in cfg.Skipped. Of all the
// replicas that claim a tick one is given a Run; the others' error is
// ErrNotClaimed and a *ClaimError.
//
// An error that is ErrUnknown means that the tick may have been claimed; it is
// being given up behind, and counts no attempt.
func (l *Ledger) Claim(ctx context.Context, tick time.Time, known LedgerState, cfg ClaimConfig) (*Run, error) {
	const op = "lockcore: claim"
	if ctx == nil {
		return nil, opError(op, l.name, refuse("ctx", "a context", "%s", "nil"))
	}
	if err := errors.Join(checkTick("tick", tick), cfg.check(tick)); err != nil {
		return nil, opError(op, l.name, err)
	}
	a := l.c.newAttempt(runKind{l, decimal(tick.UnixMilli())}, l.keys.lockKeys, l.terms, false)
	if !l.c.enlist(a) {
		return nil, opError(op, l.name, ErrClosed)
	}
	run, err := l.claim(ctx, a, tick, known, cfg)
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	return run, nil
}

func checkTick(field string, tick time.Time) error {
	if tick.UnixMilli() <= 0 || tick.UnixMilli() >= 2*triggerShift || tick.Nanosecond()%int(time.Millisecond) != 0 {
		return refuse(field, "a whole millisecond after 1970 and before the year 10000", "%s", tick.Format(time.RFC3339Nano))
	}
	return nil
}

func (cfg ClaimConfig) check(tick time.Time) error {
	if cfg.Skipped == nil {
		return nil
	}
	if !cfg.Skipped.Last.Before(tick) {
		return refuse("ClaimConfig.Skipped.Last", "before the tick that is claimed", "%s", cfg.Skipped.Last.Format(time.RFC3339Nano))
	}
	return cfg.Skipped.check()
}

func (s Skip) check() error {
	switch {
	case s.Last.Before(s.First):
		return refuse("Skip.Last", "not before Skip.First", "%s", s.Last.Format(time.RFC3339Nano))
	case s.Count < 1:
		return refuse("Skip.Count", "at least 1", "%d", s.Count)
	case textFault(s.Reason, 200, true) != "":
		return refuse("Skip.Reason", textFault(s.Reason, 200, true), "%s", abbreviate(s.Reason))
	}
	return errors.Join(checkTick("Skip.First", s.First), checkTick("Skip.Last", s.Last))
}

func (l *Ledger) claim(ctx context.Context, a *attempt, tick time.Time, known LedgerState, cfg ClaimConfig) (*Run, error) {
	k, s := l.keys, l.c.scripts.jobClaim
	overlap := "0"
	if l.cfg.AllowOverlap {
		overlap = "1"
	}
	first, newest, count, reason, until := "", "", "", "", ""
	if cfg.Skipped != nil {
		first, newest = decimal(cfg.Skipped.First.UnixMilli()), decimal(cfg.Skipped.Last.UnixMilli())
		count, reason = strconv.Itoa(cfg.Skipped.Count), cfg.Skipped.Reason
	}
	if !cfg.Until.IsZero() {
		until = decimal(cfg.Until.UnixMilli())
	}
	req := s.Call([]string{k.job, k.open, k.runs, k.fence, k.tomb(l.c.process, a.number)},
		a.value, decimal(tick.UnixMilli()), millis(l.terms.ttl), decimal(known.Last.UnixMilli()), l.cfg.MaxAttempts, overlap,
		l.cfg.KeepRuns, millis(l.cfg.Retain), l.terms.identity, first, newest, count, reason, until, l.generation(known))
	retry := l.c.newRetry(l.terms.timeout(), 2*l.terms.timeout())
	unknown := false
	for late := 0; ; {
		t0 := l.c.clock.Now()
		answer, err := l.c.disp.Do(ctx, req, retry.timeout())
		if err != nil {
			if wire.MayBeApplied(err) {
				a.open.Store(true)
				a.owes.Store(true)
			}
			unknown = unknown || errors.Is(err, ErrUnknown)
			if wire.MayRetry(err) {
				if err = retry.again(ctx, err); err == nil {
					continue
				}
			}
			l.c.forget(a)
			if unknown && !errors.Is(err, ErrUnknown) {
				err = errors.Join(ErrUnknown, err) // an earlier request had no answer
			}
			return nil, err
		}
		list, _ := answer.([]any)
		if len(list) == 5 && list[0] == int64(1) {
			a.owes.Store(true)
			if l.c.clock.Now() >= t0+l.terms.times.Valid {
				// A reply without validity left never starts work. Another try is
				// made if it has its full time.
				if late++; late < 3 && retry.timeout() == l.terms.timeout() {
					continue
				}
				l.c.forget(a)
				return nil, errors.Join(ErrLeaseExpired, errors.New("lockcore: the server's answers take longer than the lease is valid"))
			}
			return l.begin(ctx, a, tick, list, t0)
		}
		err = l.refusal(s, tick, list)
		l.c.forget(a)
		return nil, err
	}
}

// generation is what a caller claims as.
func (l *Ledger) generation(known LedgerState) string {
	if l.cfg.Definition == "" {
		return ""
	}
	return strconv.Itoa(known.own)
}

// begin makes the Run of a claim that was granted.
func (l *Ledger) begin(ctx context.Context, a *attempt, tick time.Time, answer []any, t0 time.Duration) (*Run, error) {
	token, err1 := strconv.ParseUint(wire.Text(answer[1]), 10, 64)
	attempt, _ := answer[2].(int64)
	success, err2 := readMillis(wire.Text(answer[3]))
	if errors.Join(err1, err2) != nil || attempt < 1 {
		l.c.forget(a)
		return nil, l.c.scripts.jobClaim.OddReply(answer)
	}
	lease, err := l.c.hold(ctx, a, token, t0)
	if err != nil {
		return nil, err
	}
	a.work.Store(workInDoubt) // until it is said how it ended
	return &Run{Lease: lease, ledger: l, Tick: tick.UTC(), Attempt: int(attempt), LastSuccess: success, Unsure: wire.Text(answer[4]) != ""}, nil
}

// refusal is the error of a claim or skip that was refused.
func (l *Ledger) refusal(s *wire.Script, tick time.Time, answer []any) error {
	odd := s.OddReply(answer)
	if len(answer) == 0 {
		return odd
	}
	code, _ := answer[0].(int64)
	e := &ClaimError{Job: l.name, Tick: tick, Status: ClaimStatus(code)}
	var err error
	switch {
	case e.Status == ClaimBusy && len(answer) == 5:
		left, _ := answer[1].(int64)
		attempt, _ := answer[4].(int64)
		e.Left, e.Holder, e.Attempt = time.Duration(left)*time.Millisecond, wire.Text(answer[3]), int(attempt)
		e.OpenTick, err = readMillis(wire.Text(answer[2]))
	case e.Status == ClaimEarly && len(answer) == 2:
		left, _ := answer[1].(int64)
		e.Left = time.Duration(left) * time.Microsecond
	case e.Status == ClaimEarlier && len(answer) == 2:
		e.OpenTick, err = readMillis(wire.Text(answer[1]))
	case e.Status == ClaimStale && len(answer) == 2:
		e.Last, err = readMillis(wire.Text(answer[1]))
	case e.Status == ClaimRecorded && len(answer) == 2:
		e.Outcome = wire.Text(answer[1])
	case e.Status == claimNewer && len(answer) == 1:
		return ErrNewerSchema
	case e.Status >= ClaimBusy && e.Status <= ClaimSuperseded && len(answer) == 1:
	default:
		return odd
	}
	if err != nil {
		return odd
	}
	return e
}

// Skip accounts for ticks that will not be run. The error is ErrNotClaimed if
// the ledger has changed since the caller looked, or they are not due.
func (l *Ledger) Skip(ctx context.Context, known LedgerState, skipped Skip) error {
	const op = "lockcore: skip"
	if err := skipped.check(); err != nil {
		return opError(op, l.name, err)
	}
	s := l.c.scripts.jobSkip
	answer, err := l.ask(ctx, s.Call([]string{l.keys.job, l.keys.runs},
		decimal(skipped.First.UnixMilli()), decimal(skipped.Last.UnixMilli()), skipped.Count, skipped.Reason,
		decimal(known.Last.UnixMilli()), l.cfg.KeepRuns, l.generation(known)))
	if err != nil {
		return opError(op, l.name, err)
	}
	if answer[0] == int64(1) {
		return nil
	}
	return opError(op, l.name, l.refusal(s, skipped.Last, answer))
}
