package serve

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/go-sql-driver/mysql"

	"github.com/noonlock/noonlock/examples/internal/inputs"
	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/tlsprobe"
	"github.com/noonlock/noonlock/lockcore"
)

// start waits for Redis and the database concurrently.
func (r *Replica) start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, 2)
	go func() { results <- r.openDatabase(ctx) }()
	go func() { results <- r.reachRedis(ctx) }()
	first := <-results
	if first != nil {
		cancel()  // a permanent error: do not wait for the other server
		<-results //nolint:errcheck // it was canceled
		return first
	}
	return <-results
}

func (r *Replica) reachRedis(ctx context.Context) error {
	ping := func(ctx context.Context) error {
		answers := make(chan error, len(r.rdbs))
		for _, rdb := range r.rdbs {
			go func() { answers <- inputs.Ping(ctx, rdb, "job/"+noon.Job) }()
		}
		var failed error
		answered := 0
		for range r.rdbs {
			if err := <-answers; err != nil {
				failed = errors.Join(failed, err)
			} else if answered++; answered > len(r.rdbs)/2 {
				return nil // a majority is enough
			}
		}
		return failed
	}
	return r.persist(ctx, "redis", &r.redis, func(ctx context.Context) error {
		if err := ping(ctx); err != nil {
			return tlsprobe.Explain(ctx, err, r.cfg.Redis...)
		}
		r.redis.set(ping)
		return nil
	})
}

// openDatabase connects, creates the tables and loads the entrants. It retries until it
// succeeds. All replicas may do this concurrently.
func (r *Replica) openDatabase(ctx context.Context) error {
	return r.persist(ctx, "database", &r.database, func(ctx context.Context) error {
		st, err := store.Open(ctx, r.cfg.Database, noon.StoreConfig(r.cfg.Lease))
		if err != nil {
			return err
		}
		totals, err := st.LoadEntrants(ctx, r.cfg.Entrants)
		if err == nil && totals.Eligible < r.cfg.Winners {
			err = &draw.TooFewError{Entrants: totals.Eligible, Winners: r.cfg.Winners}
		}
		if err != nil {
			st.Close()
			return lasting(err)
		}
		r.drawing.Store = st
		r.database.set(func(ctx context.Context) error { return st.Check(ctx, r.cfg.Winners) })
		r.cfg.Logger.Info("entrants loaded", "entrants", totals.Entrants, "eligible", totals.Eligible)
		return nil
	})
}

// lasting marks errors that no retry can fix: the list of entrants was valid when the
// replica started, and has changed since.
func lasting(err error) error {
	if _, ok := errors.AsType[*entrants.Error](err); ok || errors.Is(err, draw.ErrTooFew) {
		return backoff.Permanent(err)
	}
	return err
}

// persist retries until try succeeds, ctx ends or the error is permanent. The place's check
// returns the latest error. An error is logged when its text changes.
func (r *Replica) persist(ctx context.Context, what string, where *place, try func(context.Context) error) error {
	pause := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	last := ""
	err := backoff.RetryNotify(func() error { return try(ctx) }, backoff.WithContext(pause, ctx), func(err error, _ time.Duration) {
		where.set(func(context.Context) error { return err })
		if err.Error() != last {
			last = err.Error()
			if passing(err) {
				r.cfg.Logger.Info(what+" is not available yet; retrying", "err", last)
			} else {
				r.cfg.Logger.Error(err, what+" cannot be used; retrying")
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.cfg.Logger.Info(what + " is available")
	return nil
}

// passing reports whether an error is temporary: it is one of the network, or of a server
// that is starting or busy. Others, such as a wrong password, need an operator.
func passing(err error) bool {
	var network net.Error
	return lockcore.IsTemporary(err) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || store.Starting(err)
}

var errNotYet = errors.New("not connected yet")

// A place is a server that the replica needs. Its check returns the latest error until the
// server has been reached, and then asks the server. The zero value is not reached yet.
type place struct {
	ping atomic.Pointer[func(context.Context) error]
}

func (p *place) set(ping func(context.Context) error) { p.ping.Store(&ping) }

// check is a healthz.Check.
func (p *place) check(ctx context.Context) error {
	if ping := p.ping.Load(); ping != nil {
		return (*ping)(ctx)
	}
	return errNotYet
}
