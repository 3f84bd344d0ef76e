package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

// An Act is what an operator has done to a job.
type Act struct {
	At   time.Time // on the server's clock
	What string    // RequestTrigger, RequestRerun, ActionCancel, ActionPause or ActionResume
	Tick time.Time // zero: it concerns no tick
	By
}

// Acts returns the newest n acts of operators, newest first. The newest hundred are kept, for as
// long as an idle ledger. A call that changed nothing is none.
func (l *Ledger) Acts(ctx context.Context, n int) ([]Act, error) {
	const op = "acts"
	if n < 1 {
		return nil, opError(op, l.name, refuse("n", "at least 1", "%d", n))
	}
	answer, err := l.ask(ctx, wire.Command("lrange", l.keys.acts, 0, n-1))
	if err != nil {
		return nil, opError(op, l.name, err)
	}
	acts := make([]Act, 0, len(answer))
	for _, text := range answer {
		var e struct{ At, What, Tick, Who, Why string }
		if err := json.Unmarshal([]byte(wire.Text(text)), &e); err != nil {
			return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
		}
		a := Act{What: e.What, By: By{e.Who, e.Why}}
		var errs [2]error
		a.At, errs[0] = readMillis(e.At)
		a.Tick, errs[1] = readMillis(e.Tick)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
		}
		acts = append(acts, a)
	}
	return acts, nil
}
