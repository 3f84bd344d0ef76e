package sqlonce

import (
	"context"
	"database/sql"
)

// Fence guards a resource against holders that have been superseded. It is what something other than the tables of Do
// can offer: another database, an object store with conditional writes, a device with a register.
//
// Admit returns nil if no greater token than run.Token was admitted before in the run's scope, and remembers it; else
// an error that Is ErrStaleToken (see CheckToken). A token that is equal is admitted. The comparison, the remembering
// and the effect that they guard must be one step of the resource: a check before the write only narrows the gap in
// which a holder may freeze. Admit may be called by several goroutines and processes at once, and again by the same run.
//
// A fence keeps stale holders out. It does not make an effect happen once: for that the resource must know the tick.
type Fence interface {
	Admit(ctx context.Context, run Run) error
}

// CheckToken is the comparison of a Fence: a *StaleTokenError if run's token is smaller than seen, the greatest that
// was admitted before (0 if none was), and nil else.
func CheckToken(run Run, seen uint64) error {
	if run.Token < seen {
		return &StaleTokenError{Job: run.Job, Tick: run.Tick, Given: run.Token, Seen: seen}
	}
	return nil
}

// Fence returns the fence alone, without markers, for a transaction of the caller's own. Admit locks the fence row
// until that transaction ends and does not end it itself; after an error it has to be rolled back. The fence stays
// raised only if the transaction commits, and the time limits are the caller's to set.
func (o *Once) Fence(tx *sql.Tx) Fence { return txFence{o, tx} }

type txFence struct {
	once *Once
	tx   *sql.Tx
}

// Admit implements Fence.
func (f txFence) Admit(ctx context.Context, run Run) error {
	if ctx == nil {
		return &ConfigError{"ctx", "nil", "a context"}
	}
	if f.tx == nil {
		return &ConfigError{"tx", "nil", "an open transaction"}
	}
	if err := run.Validate(); err != nil {
		return err
	}
	_, err := f.once.raise(ctx, f.tx, run)
	return err
}

// scope is what the run's token fences off.
func (o *Once) scope(run Run) FenceScope {
	if run.Overlap {
		return PerTick
	}
	return o.config.FenceScope
}

// raise takes the lock of the run's fence row, raises it, and refuses a token that is smaller. keptFrom is that of the
// row; where the scope is one tick, it means nothing.
func (o *Once) raise(ctx context.Context, tx *sql.Tx, run Run) (keptFrom int64, err error) {
	tick := int64(0)
	if o.scope(run) == PerTick {
		tick = run.Tick.UnixMilli()
	}
	token := int64(run.Token) // Validate has bounded it
	var row *sql.Row
	if o.dialect == MySQL {
		if _, err := tx.ExecContext(ctx, o.queries.admit, run.Job, tick, token, token); err != nil {
			return 0, o.describe(run, "taking the fence", err)
		}
		row = tx.QueryRowContext(ctx, o.queries.fence, run.Job, tick)
	} else {
		row = tx.QueryRowContext(ctx, o.queries.admit, run.Job, tick, token)
	}
	var seen int64
	if err := row.Scan(&seen, &keptFrom); err != nil {
		return 0, o.describe(run, "taking the fence", err)
	}
	return keptFrom, CheckToken(run, uint64(seen))
}
