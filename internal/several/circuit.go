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

// A circuit keeps requests from a server that does not answer.
//
//	closed ──no answer──► open ──pause is over, one request──► trying ──answer──► closed
//	                       ▲                                     │
//	                       └───────── no answer: longer pause ───┘
//
// A server that is far away does not answer a request with little time, and answers others. So an
// open circuit lets a request through that has half as much time again as all that were not answered
// since the last trial: a lock with a short TTL does not end the leases of others.
type circuit struct {
	health func(err error) // called when the server stops to answer, and with nil when it answers again
	pauses retry.Backoff

	mu     sync.Mutex
	open   bool
	trying bool
	until  time.Time     // of the pause
	deaf   time.Duration // the server does not answer within this time
}

// enter reports whether a request that has so much time may be sent. leave must follow.
func (c *circuit) enter(within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.open, within-within/3 > c.deaf:
		return true
	case c.trying || time.Now().Before(c.until):
		return false
	}
	c.trying = true
	return true
}

// leave records the end of a request that had so much time.
func (c *circuit) leave(err error, within time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, wire.ErrClosed), errors.Is(err, context.Canceled):
		c.trying = false
	case isSilence(err):
		if !c.open {
			c.health(err)
		}
		if !c.open || c.trying {
			c.until = time.Now().Add(c.pauses.NextBackOff())
			c.deaf = 0
		}
		if _, late := errors.AsType[*conn.NoAnswerError](err); !late {
			within = math.MaxInt64 // more time would not have helped
		}
		c.deaf = max(c.deaf, within)
		c.open, c.trying = true, false
	default:
		if c.open {
			c.health(nil)
			c.pauses.Reset()
		}
		c.open, c.trying = false, false
	}
}

// isSilence reports whether a server has not answered a request.
func isSilence(err error) bool {
	outcome := wire.OutcomeOf(err)
	return outcome == wire.Unknown || outcome == wire.Unsent
}
