package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A primaryWatch notices for a Server that the Sentinels name another primary. Connections do not show this: after a
// planned failover, the former primary accepts writes for about ten seconds, until a Sentinel reconfigures it.
//
// A check asks Config.Sentinels. While the Client holds a lease, there is one check per second. A grant waits for a
// check that began at most a second ago. A Client that only waits for leases checks when it tries to get one. A failed
// check changes nothing: connections work without Sentinels.
type primaryWatch struct {
	connections *connections
	dials       *conn.Dialer // connects to a new primary before the connections move
	ctx         context.Context
	stop        context.CancelFunc
	wg          sync.WaitGroup

	mu        sync.Mutex
	running   bool          // a goroutine checks once a second
	granted   bool          // a lease was granted since the last call of Config.Holds
	checking  chan struct{} // closed at the end of the current check, nil without a check
	checkedAt time.Duration // time when the last completed check began
	primary   string        // address from the last check, empty before the first
	moves     int           // number of moves to another primary
}

const checkEvery = time.Second

// newPrimaryWatch returns nil if the address of the server does not come from Sentinels.
func newPrimaryWatch(c *connections, o conn.Options) *primaryWatch {
	if o.Where == nil {
		return nil
	}
	w := &primaryWatch{connections: c, dials: conn.NewDialer(o), checkedAt: -checkEvery}
	w.ctx, w.stop = context.WithCancel(context.Background())
	return w
}

func (w *primaryWatch) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	w.dials.Close()
	w.wg.Wait()
}

func (w *primaryWatch) now() time.Duration { return w.connections.calls.Now() }

// start begins a check per second, until nothing is held. It is called for each grant.
func (w *primaryWatch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = true
	if w.running || w.ctx.Err() != nil {
		return
	}
	w.running = true
	w.wg.Go(func() {
		ticker := time.NewTicker(checkEvery)
		defer ticker.Stop()
		for w.checkAgain() {
			select {
			case <-ticker.C:
			case <-w.ctx.Done():
			}
		}
	})
}

// checkAgain begins a check if a lease is held or was granted lately. Otherwise, it returns false, and the next grant
// calls start.
func (w *primaryWatch) checkAgain() bool {
	w.mu.Lock()
	granted := w.granted
	w.granted = false
	w.mu.Unlock()
	held := granted || w.connections.cfg.Holds() // without mu, as Holds locks a mutex of the caller
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running = w.ctx.Err() == nil && (held || w.granted)
	if w.running {
		w.beginCheck()
	}
	return w.running
}

// refresh begins a check unless the last one is recent. It returns the number of moves.
func (w *primaryWatch) refresh() (moves int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isRecent() {
		w.beginCheck()
	}
	return w.moves
}

// isRecent reports whether the last check began less than checkEvery ago. The caller holds mu.
func (w *primaryWatch) isRecent() bool {
	return w.now()-w.checkedAt < checkEvery || w.ctx.Err() != nil
}

// beginCheck begins a check unless one runs. The end of the check closes the returned channel. The caller holds mu, and
// ctx has not ended.
func (w *primaryWatch) beginCheck() <-chan struct{} {
	if w.checking == nil {
		w.checking = make(chan struct{})
		w.wg.Go(w.check)
	}
	return w.checking
}

// confirm returns an error if the number of moves has changed since refresh returned it. It waits for a recent check
// until ctx ends or the timeout has passed: Sentinels that do not answer delay a grant, but do not prevent it.
func (w *primaryWatch) confirm(ctx context.Context, moves int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		w.mu.Lock()
		if w.moves != moves {
			w.mu.Unlock()
			return errors.New("lockcore: the Sentinels name another primary")
		}
		if w.isRecent() || ctx.Err() != nil {
			w.mu.Unlock()
			return nil
		}
		checking := w.beginCheck()
		w.mu.Unlock()
		select {
		case <-checking:
		case <-ctx.Done():
		}
	}
}

// check finds the primary and moves the connections to it. A Sentinel that was cut off may name a replica, or a server
// that does not answer. The connections do not move to these.
func (w *primaryWatch) check() {
	began := w.now()
	w.mu.Lock()
	primary := w.primary
	w.mu.Unlock()
	moves := 0
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.checkedAt, w.primary, w.moves = began, primary, w.moves+moves
		close(w.checking)
		w.checking = nil
	}()
	_, addrs, err := w.connections.cfg.Sentinels.Primary(w.ctx)
	if err != nil {
		began = w.now() // so that a check that took long is not repeated at once
		return
	}
	found := addrs[0]
	// The connections to the former primary may have ended already.
	if !w.connections.areElsewhere(found) && (primary == "" || primary == found) {
		primary = found
		return
	}
	ctx, cancel := context.WithTimeout(w.ctx, conn.MaxDialTime)
	defer cancel()
	c, err := w.dials.Connect(ctx)
	if err != nil {
		return
	}
	c.Drop()
	if c.Addr == found && w.ctx.Err() == nil {
		primary, moves = found, 1
		w.connections.moveTo(found)
	}
}
