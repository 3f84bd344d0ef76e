package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Skip is a number of consecutive ticks that will not run, and the reason, in one word.
type Skip struct {
	First, Last time.Time
	Count       int
	Reason      string
}

// ClaimConfig has the optional parameters of a claim.
type ClaimConfig struct {
	// Skipped are the due ticks between the last one of the ledger and the claimed one. They
	// are recorded together with the claim.
	Skipped *Skip

	// Until is the latest time, by the server's clock, at which the first attempt may
	// begin. Another replica may still take over a run that began in time. Zero: no limit.
	Until time.Time

	// Next is the tick after the claimed one, which Status then returns. Zero: unknown.
	Next time.Time
}

// Claim claims a run for this process. known is the state of the ledger that
// the caller has read. The ticks between known.Last and this one must be in cfg.Skipped, so
// the claim is refused if the last tick of the ledger has changed since. Of all replicas that
// claim a tick, one is granted the Claim; for the others the error is a *ClaimError.
//
// If the error matches lockcore.ErrUnknown, the tick may have been claimed. It is then
// released in the background, and counts as no attempt.
func (l *Ledger) Claim(ctx context.Context, id RunID, known State, cfg ClaimConfig) (*Claim, error) {
	const op = "claim"
	if err := errors.Join(checkTick("tick", id.Tick), cfg.check(id.Tick)); err != nil {
		return nil, opError(op, l.name, err)
	}
	id.Tick = id.Tick.UTC()
	c := &Claim{ledger: l, RunID: id}
	k := &runLease{Kind: l.lock.Client().Mutex(), ledger: l, tick: id.text()}
	closed := reasonClosed
	k.reason.Store(&closed)
	k.canceled, k.cancel = context.WithCancelCause(context.Background())
	lease, err := l.lock.Hold(ctx, k,
		func(a *lock.Attempt) wire.Request { return l.claim(a, id, known, cfg) },
		func(answer any) (token uint64, granted bool, err error) { return c.read(answer) })
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	k.work.Store(workInDoubt) // until Abandon says how it ended
	c.Lease, c.run = lease, k
	return c, nil
}

func checkTick(field string, tick time.Time) error {
	if tick.UnixMilli() <= 0 || tick.UTC().Year() > 9999 || tick.Nanosecond()%int(time.Millisecond) != 0 {
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
	case input.Fault(s.Reason, 200, true) != "":
		return refuse("Skip.Reason", input.Fault(s.Reason, 200, true), "%s", input.Quote(s.Reason))
	}
	return errors.Join(checkTick("Skip.First", s.First), checkTick("Skip.Last", s.Last))
}

// claim returns the request of a claim.
func (l *Ledger) claim(a *lock.Attempt, id RunID, known State, cfg ClaimConfig) wire.Request {
	k, overlap := l.keys, "0"
	if l.cfg.AllowOverlap {
		overlap = "1"
	}
	first, newest, count, reason, until, next, ledger := "", "", "", "", "", "", known.id
	if cfg.Skipped != nil {
		ledger = "" // a refusal does not say what is known of the skipped ticks
		first, newest = decimal(cfg.Skipped.First.UnixMilli()), decimal(cfg.Skipped.Last.UnixMilli())
		count, reason = strconv.Itoa(cfg.Skipped.Count), cfg.Skipped.Reason
	}
	if !cfg.Until.IsZero() {
		until = decimal(cfg.Until.UnixMilli())
	}
	if !cfg.Next.IsZero() {
		next = decimal(cfg.Next.UnixMilli())
	}
	return l.scripts.claim.Call(wire.Keys(k.job, k.open, k.runs, k.fence, k.tomb(a.ID())),
		a.Value(), id.text(), a.TTL().Milliseconds(), decimal(known.Last.UnixMilli()), l.cfg.MaxAttempts, overlap,
		l.cfg.KeepRuns, ledger, l.lock.Identity(), first, newest, count, reason, until, l.cfg.Definition, k.channel, k.begins, next)
}

// read reads the reply to a claim.
func (c *Claim) read(answer any) (token uint64, granted bool, err error) {
	list, _ := answer.([]any)
	if len(list) != 6 || list[0] != int64(1) {
		return 0, false, c.ledger.refusal(c.ledger.scripts.claim, c.RunID, list)
	}
	var d Decoder
	token = d.Token(wire.Text(list[1]))
	attempt, _ := list[2].(int64)
	c.Attempt, c.LastSuccess, c.Unsure, c.Asked = int(attempt), d.Time(wire.Text(list[3])), wire.Text(list[4]) != "", nil
	if asked := wire.Text(list[5]); asked != "" {
		err = json.Unmarshal([]byte(asked), &c.Asked)
	}
	if errors.Join(err, d.Err) != nil || token == 0 || attempt < 1 {
		return 0, true, c.ledger.scripts.claim.OddReply(answer)
	}
	return token, true, nil
}

// refusal returns the error for a claim or skip that was refused.
func (l *Ledger) refusal(s *wire.Script, id RunID, answer []any) error {
	odd := s.OddReply(answer)
	if len(answer) == 0 {
		return odd
	}
	code, _ := answer[0].(int64)
	e := &ClaimError{Job: l.name, RunID: id, Status: ClaimStatus(code)}
	var d Decoder
	switch {
	case e.Status == ClaimBusy && len(answer) == 6:
		left, _ := answer[1].(int64)
		attempt, _ := answer[4].(int64)
		e.Left, e.Open, e.Holder, e.Attempt = time.Duration(left)*time.Millisecond, d.RunID(wire.Text(answer[2])), wire.Text(answer[3]), int(attempt)
		e.Last = d.Time(wire.Text(answer[5]))
	case e.Status == ClaimDone && len(answer) == 3:
		e.Last, e.LastSuccess = d.Time(wire.Text(answer[1])), d.Time(wire.Text(answer[2]))
	case e.Status == ClaimEarly && len(answer) == 2:
		left, _ := answer[1].(int64)
		e.Left = time.Duration(left) * time.Microsecond
	case e.Status == ClaimEarlier && len(answer) == 2:
		e.Open = d.RunID(wire.Text(answer[1]))
	case e.Status == ClaimStale && len(answer) == 2:
		e.Last = d.Time(wire.Text(answer[1]))
	case e.Status == claimNewer && len(answer) == 1:
		return ErrNewerSchema
	case e.Status > ClaimDone && e.Status <= ClaimSuperseded && len(answer) == 1:
	default:
		return odd
	}
	if d.Err != nil {
		return odd
	}
	return e
}

// Skip records ticks that will not run. The error matches ErrNotClaimed if the ledger has
// changed since the caller read it, or if the ticks are not due.
func (l *Ledger) Skip(ctx context.Context, known State, skipped Skip) error {
	const op = "skip"
	if err := skipped.check(); err != nil {
		return opError(op, l.name, err)
	}
	s := l.scripts.skipped
	answer, err := l.ask(ctx, s.Call(wire.Keys(l.keys.job, l.keys.runs),
		decimal(skipped.First.UnixMilli()), decimal(skipped.Last.UnixMilli()), skipped.Count, skipped.Reason,
		decimal(known.Last.UnixMilli()), l.cfg.KeepRuns, l.cfg.Definition, l.keys.channel))
	if err != nil {
		return opError(op, l.name, err)
	}
	if answer[0] == int64(1) {
		return nil
	}
	return opError(op, l.name, l.refusal(s, RunID{Tick: skipped.Last}, answer))
}
