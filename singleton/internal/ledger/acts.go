package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// An Act is what an operator has done to a job, or has requested of a run.
type Act struct {
	At    time.Time // on the server's clock
	What  string    // RequestTrigger, RequestRerun, ActionCancel, ActionPause or ActionResume
	RunID           // zero: it concerns no run
	lockcore.Operator
}

// Acts returns the newest n acts of operators, newest first. The newest hundred are kept, for as
// long as an idle ledger. A call that changed nothing is not listed.
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
		a, err := readAct(wire.Text(text))
		if err != nil {
			return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
		}
		acts = append(acts, a)
	}
	return acts, nil
}

// A storedAct is the JSON of an Act.
type storedAct struct {
	At   string `json:"at"`
	What string `json:"what"`
	Tick string `json:"tick,omitempty"`
	Who  string `json:"who"`
	Why  string `json:"why"`
}

func readAct(text string) (Act, error) {
	var e storedAct
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Act{}, err
	}
	return e.act()
}

func (e storedAct) act() (Act, error) {
	a := Act{What: e.What, Operator: lockcore.Operator{Who: e.Who, Reason: e.Why}}
	var errs [2]error
	a.At, errs[0] = wire.Instant(e.At)
	a.RunID, errs[1] = readRunID(e.Tick)
	return a, errors.Join(errs[:]...)
}
