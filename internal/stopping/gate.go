package stopping

import (
	"context"
	"sync/atomic"
)

// A Gate lets one Run of a worker enter at a time. Its zero value is open.
type Gate struct{ entered atomic.Bool }

// Enter reports whether Run may enter. Call leave when Run returns: it writes the
// last log lines with flush, even after the end of ctx, and opens the gate.
func (g *Gate) Enter(ctx context.Context, flush func(context.Context)) (leave func(), ok bool) {
	if !g.entered.CompareAndSwap(false, true) {
		return nil, false
	}
	return func() {
		flush(context.WithoutCancel(ctx))
		g.entered.Store(false)
	}, true
}

// Entered reports whether a Run is inside.
func (g *Gate) Entered() bool { return g.entered.Load() }
