package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// fault is one fault of a replica.
type fault func(ctx context.Context) error

// nextBegin returns the next replica whose run begins.
func (c *chaos) nextBegin(ctx context.Context) (*replica, error) {
	for {
		select {
		case <-c.begun: // discard what was received before
			continue
		default:
		}
		break
	}
	for {
		select {
		case r := <-c.begun:
			if slices.Contains(c.living(), r) {
				return r, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no run begins: %w", context.Cause(ctx))
		}
	}
}

// catch holds the next statement of one kind of any replica back, calls then with its
// sender, and forwards it.
func (c *chaos) catch(ctx context.Context, statement string, then func(context.Context, *replica)) error {
	living := c.living()
	caught := make(chan *replica, len(living))
	over, done := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, r := range living {
		trap := r.sql.Hold(statement)
		defer trap.Release()
		wg.Go(func() {
			select {
			case <-trap.Caught():
				caught <- r
			case <-over.Done():
			}
		})
	}
	defer wg.Wait()
	defer done()
	select {
	case r := <-caught:
		then(ctx, r)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no replica sends %q: %w", statement, context.Cause(ctx))
	}
}

// strike injects a fault into the next request of one kind of any replica to Redis, calls
// then with its sender, and lifts the fault.
func (c *chaos) strike(ctx context.Context, fault lockcoretest.Fault, then func(context.Context, *replica) error) error {
	living := c.living()
	struck := make(chan *replica, len(living))
	over, done := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, r := range living {
		rule, err := r.redis.Faults().Add(fault)
		if err != nil {
			done()
			return err
		}
		defer rule.Lift()
		wg.Go(func() {
			if rule.Wait(over, 1) == nil {
				struck <- r
			}
		})
	}
	defer wg.Wait()
	defer done()
	select {
	case r := <-struck:
		return then(ctx, r)
	case <-ctx.Done():
		return fmt.Errorf("%v applied to no request: %w", fault.Kind, context.Cause(ctx))
	}
}

// isClaim and isComplete identify requests by a text that no other request contains.
func isClaim(cmd []string) bool {
	return strings.HasPrefix(cmd[0], "EVAL") && slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasSuffix(arg, "{job/"+noon.Job+"}:fence") })
}

func isComplete(cmd []string) bool {
	return strings.HasPrefix(cmd[0], "EVAL") && slices.Contains(cmd, singleton.OutcomeSucceeded)
}

const recording = "INSERT INTO winners"

func (c *chaos) killAtBegin(ctx context.Context) error {
	r, err := c.nextBegin(ctx)
	if err == nil {
		c.kill(ctx, r)
	}
	return err
}

func (c *chaos) killInTransaction(ctx context.Context) error { return c.catch(ctx, recording, c.kill) }

// killAfterClaim holds the answer to a successful claim back from the replica, which dies
// without receiving it.
func (c *chaos) killAfterClaim(ctx context.Context) error {
	fault := lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: isClaim, Count: 1}
	return c.strike(ctx, fault, func(ctx context.Context, _ *replica) error {
		for ctx.Err() == nil {
			for _, r := range c.living() {
				if _, ok := c.running(ctx, r); ok {
					c.kill(ctx, r)
					return nil
				}
			}
		}
		return fmt.Errorf("no replica holds a run after a claim: %w", context.Cause(ctx))
	})
}

// killAfterCommit loses the request to complete, which follows the commit of the draw.
func (c *chaos) killAfterCommit(ctx context.Context) error {
	fault := lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: isComplete, Count: 1}
	return c.strike(ctx, fault, func(ctx context.Context, r *replica) error {
		c.kill(ctx, r)
		return nil
	})
}

func (c *chaos) killAny(ctx context.Context) error {
	living := c.living()
	c.kill(ctx, living[c.random.IntN(len(living))])
	return nil
}

func (c *chaos) freezeAtBegin(ctx context.Context) error {
	r, err := c.nextBegin(ctx)
	if err == nil {
		c.freeze(ctx, r)
	}
	return err
}

func (c *chaos) freezeInTransaction(ctx context.Context) error {
	return c.catch(ctx, recording, c.freeze)
}

func (c *chaos) freezeAny(ctx context.Context) error {
	living := c.living()
	c.freeze(ctx, living[c.random.IntN(len(living))])
	return nil
}

func (c *chaos) restartRedis(ctx context.Context) error {
	c.bounce(ctx)
	return nil
}

// restartRedisInRun restarts Redis while a replica draws.
func (c *chaos) restartRedisInRun(ctx context.Context) error {
	return c.catch(ctx, recording, func(ctx context.Context, r *replica) {
		if _, ok := c.running(ctx, r); ok {
			c.count(restartInRun)
		}
		c.bounce(ctx)
	})
}

// killWithRedis kills a replica that draws, and Redis with it.
func (c *chaos) killWithRedis(ctx context.Context) error {
	return c.catch(ctx, recording, func(ctx context.Context, r *replica) {
		c.kill(ctx, r)
		c.count(restartInRun)
		c.bounce(ctx)
	})
}

// freezeWithRedis freezes a replica that draws, and restarts Redis in the meantime.
func (c *chaos) freezeWithRedis(ctx context.Context) error {
	return c.catch(ctx, recording, func(ctx context.Context, r *replica) {
		c.freeze(ctx, r)
		c.count(restartInRun)
		c.bounce(ctx)
	})
}
