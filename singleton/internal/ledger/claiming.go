package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
)

// A Skip is a number of consecutive ticks that will not run, and the reason, in one word.
type Skip struct {
	First, Last time.Time
	Count       int
	Reason      string
}

// Claim claims a run for this process. known is the state of the ledger that the caller has read. No tick is due
// between known.Last and this one, so the claim is refused if the last tick of the ledger has changed since. Of all
// replicas that claim a tick, one is granted the Claim; for the others the error is a *ClaimError. until is the
// latest time, by the server's clock, at which the first attempt may begin. Another replica may still take over a run
// that began in time. Zero: no limit.
//
// If the error matches lockcore.ErrUnknown, the tick may have been claimed. It is then
// released in the background, and counts as no attempt.
func (l *Ledger) Claim(ctx context.Context, id RunID, known State, until time.Time) (*Claim, error) {
	const op = "claim"
	if err := checkTick("tick", id.Tick); err != nil {
		return nil, opError(op, l.name, err)
	}
	id.Tick = id.Tick.UTC()
	c := &Claim{ledger: l, RunID: id}
	k := l.newRunLease(id)
	lease, err := l.lock.Hold(ctx, k,
		func(a *lock.Attempt) wire.Request { return l.claim(a, id, known, until) },
		func(answer any) (token uint64, granted bool, err error) { return c.read(answer) })
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	k.work.Store(workInDoubt) // until Abandon says how it ended
	c.Lease, c.run, c.began = lease, k, l.lock.Client().Elapsed()
	return c, nil
}

func checkTick(field string, tick time.Time) error {
	if tick.UnixMilli() <= 0 || tick.UTC().Year() > 9999 || tick.Nanosecond()%int(time.Millisecond) != 0 {
		return refuse(field, "a whole millisecond after 1970 and before the year 10000", "%s", tick.Format(time.RFC3339Nano))
	}
	return nil
}

func (l *Ledger) claim(a *lock.Attempt, id RunID, known State, until time.Time) wire.Request {
	k := l.keys
	rest := strings.Join([]string{
		flag(l.cfg.AllowOverlap), decimal(a.TTL().Milliseconds()), decimal(known.Last.UnixMilli()), strconv.Itoa(l.cfg.MaxAttempts),
		strconv.Itoa(l.cfg.KeepRuns), millis(until), k.channel, l.lock.Client().Identity(),
	}, " ")
	return l.scripts.claim.Call(wire.Keys(k.job, k.runs, k.fence, k.tomb(a.ID()), k.payloads),
		a.Value(), id.text(), l.cfg.Definition, known.id, rest)
}

// read reads the reply to a claim.
func (c *Claim) read(answer any) (token uint64, granted bool, err error) {
	list, _ := answer.([]any)
	if len(list) != 9 || list[0] != int64(1) {
		return 0, false, c.ledger.refusal(c.ledger.scripts.claim, c.RunID, list)
	}
	var d Decoder
	token = d.Token(wire.Text(list[1]))
	us, _ := list[7].(int64)
	c.Attempt, c.LastSuccess, c.Unsure, c.Request = d.Int(wire.Text(list[2])), d.Time(wire.Text(list[3])), wire.Text(list[4]) != "", nil
	c.Payload, c.Now, c.DeadHolder = wire.Text(list[6]), time.UnixMicro(us), wire.Text(list[8])
	if request := wire.Text(list[5]); request != "" {
		err = json.Unmarshal([]byte(request), &c.Request)
	}
	if errors.Join(err, d.Err) != nil || token == 0 || c.Attempt < 1 || us == 0 {
		return 0, true, c.ledger.scripts.claim.OddReply(answer)
	}
	return token, true, nil
}

// refusal returns the error for a reply of job_claim or job_skip that grants nothing.
func (l *Ledger) refusal(s *wire.Script, id RunID, answer []any) error {
	lengths := map[ClaimStatus]int{ClaimBusy: 6, ClaimDone: 3, ClaimEarly: 2, ClaimEarlier: 2, ClaimStale: 2, ClaimRecorded: 2} // others: 1
	e := &ClaimError{Job: l.name, RunID: id}
	if len(answer) > 0 {
		code, _ := answer[0].(int64)
		e.Status = ClaimStatus(code)
	}
	if e.Status < ClaimBusy || e.Status > ClaimSuperseded || len(answer) != cmp.Or(lengths[e.Status], 1) {
		return s.OddReply(answer)
	}
	var d Decoder
	text := func(i int) string { return wire.Text(answer[i]) }
	number := func(i int) int64 {
		n, _ := answer[i].(int64)
		return n
	}
	switch e.Status {
	case ClaimBusy:
		e.Left, e.Open, e.Holder = time.Duration(number(1))*time.Millisecond, d.RunID(text(2)), text(3)
		e.Attempt, e.Last = d.Int(text(4)), d.Time(text(5))
	case ClaimDone:
		e.Last, e.LastSuccess = d.Time(text(1)), d.Time(text(2))
	case ClaimEarly:
		e.Left = time.Duration(number(1)) * time.Microsecond
	case ClaimEarlier:
		e.Open = d.RunID(text(1))
	case ClaimStale:
		e.Last = d.Time(text(1))
	case ClaimRecorded:
		e.Outcome = text(1)
	case claimNewer:
		return ErrNewerSchema
	default:
	}
	if d.Err != nil {
		return s.OddReply(answer)
	}
	return e
}

// Skip records ticks that will not run. The error matches ErrNotClaimed if the ledger has
// changed since the caller read it, or if the ticks are not due.
func (l *Ledger) Skip(ctx context.Context, known State, skipped Skip) error {
	const op = "skip"
	if err := errors.Join(checkTick("Skip.First", skipped.First), checkTick("Skip.Last", skipped.Last)); err != nil {
		return opError(op, l.name, err)
	}
	s := l.scripts.skip
	req := s.Call(wire.Keys(l.keys.job, l.keys.runs), millis(skipped.First), millis(skipped.Last), skipped.Count, skipped.Reason,
		decimal(known.Last.UnixMilli()), l.cfg.KeepRuns, l.cfg.Definition, l.keys.channel)
	_, repeated, err := l.lock.Act(ctx, req, func(answer any) error {
		list, _ := answer.([]any)
		if len(list) > 0 && list[0] == int64(1) {
			return nil
		}
		return l.refusal(s, RunID{Tick: skipped.Last}, list)
	})
	if refused, ok := errors.AsType[*ClaimError](err); ok && repeated && refused.Status == ClaimDone {
		err = nil // recorded by the request whose reply was lost, or by another replica with the same plan
	}
	return opError(op, l.name, err)
}
