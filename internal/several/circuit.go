package several

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// Watchers are functions that a Wire calls with the state of its servers. They must not block.
type Watchers struct {
	// Health is called with an error when a server stops answering, and with nil when it answers again.
	Health func(server int, err error)
	// Answered is called with each answer to a Counted request, and the time by Config.Now at which the request began.
	Answered func(server int, value any, began time.Duration)
	// Failed is called for each request that a server has not answered or has refused. skipped means that the request
	// was not sent, because the server did not answer lately.
	Failed func(server int, skipped bool)
}

// A circuit keeps requests from a server that does not answer.
//
//	closed ──no answer──► open ──pause is over, one request──► trying ──answer──► closed
//	                       ▲                                     │
//	                       └───────── no answer: longer pause ───┘
//
// Short timeouts open the circuit of a server that is far away. The open circuit still lets a request through if its
// timeout is one and a half times the longest timeout of the unanswered requests since the last trial. Otherwise, a
// lock with a short TTL would end leases with longer TTLs.
type circuit struct {
	server int
	watch  Watchers
	pauses retry.Backoff

	mu       sync.Mutex
	open     bool
	trying   bool
	pauseEnd time.Time     // earliest time of the next trial
	silentIn time.Duration // longest timeout of the unanswered requests since the last trial
}

// enter reports whether a request with a timeout may be sent. leave must follow.
func (c *circuit) enter(timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open, timeout-timeout/3 > c.silentIn:
		return true
	case c.trying || time.Now().Before(c.pauseEnd):
		return false
	}
	c.trying = true
	return true
}

// leave records the end of a request with a timeout.
func (c *circuit) leave(err error, timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, wire.ErrClosed), errors.Is(err, context.Canceled):
		c.trying = false
	case wire.OutcomeOf(err) == wire.Unknown, wire.OutcomeOf(err) == wire.Unsent:
		if !c.open {
			c.watch.Health(c.server, err)
		}
		if !c.open || c.trying {
			c.pauseEnd = time.Now().Add(c.pauses.NextBackOff())
			c.silentIn = 0
		}
		if _, late := errors.AsType[*conn.NoAnswerError](err); !late {
			timeout = math.MaxInt64 // a longer timeout would not have helped
		}
		c.silentIn = max(c.silentIn, timeout)
		c.open, c.trying = true, false
	default:
		if c.open {
			c.watch.Health(c.server, nil)
			c.pauses.Reset()
		}
		c.open, c.trying = false, false
	}
}
