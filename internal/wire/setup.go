package wire

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// A greeting reads the answer to HELLO, with which a connection begins. go-redis goes on
// where it is refused, as old servers do not know it. But a server that has too many
// connections, or does not serve strangers, says so and closes; and one that asks for a
// password goes on to refuse every call, or closes the connection in the middle of a
// long one. What was sent then would be unknown.
type greeting struct {
	authenticates bool // the user's OnConnect may yet give the password
}

// turnedAwayError is such an answer. It is not a redis.Error, which go-redis would go on after:
// see plainRefusal.
type turnedAwayError struct{ text string }

func (e *turnedAwayError) Error() string { return e.text }

// ProcessHook turns what a server says that turns connections away into an error of the
// setup.
func (g greeting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil || cmd.Name() != "hello" {
			return err
		}
		if HasCode(err, "max number of clients", "DENIED") || HasCode(err, "NOAUTH") && !g.authenticates {
			err = &turnedAwayError{err.Error()}
			cmd.SetErr(err)
		}
		return err
	}
}

// DialHook changes nothing.
func (greeting) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook changes nothing.
func (greeting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// guardSetup bounds what the user's functions may do while a connection is set up: as
// a Dialer, they may hang. Each runs on a goroutine of its own, and few at a time.
func guardSetup(opt *redis.Options, closed <-chan struct{}) {
	g := &guard{within: opt.DialTimeout, closed: closed, running: make(chan struct{}, maxDialing)}
	if connected := opt.OnConnect; connected != nil {
		opt.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			_, err := apart(ctx, g, "OnConnect", func(ctx context.Context) (struct{}, error) { return struct{}{}, connected(ctx, cn) }, nil)
			return err
		}
	}
	type pair struct{ user, password string }
	get, plain := opt.CredentialsProviderContext, opt.CredentialsProvider
	if get != nil || plain != nil {
		opt.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			p, err := apart(ctx, g, "CredentialsProvider", func(ctx context.Context) (p pair, err error) {
				if get != nil {
					p.user, p.password, err = get(ctx)
				} else {
					p.user, p.password = plain()
				}
				return p, err
			}, nil)
			return p.user, p.password, err
		}
	}
	if opt.StreamingCredentialsProvider != nil {
		opt.StreamingCredentialsProvider = &guardedProvider{g, opt.StreamingCredentialsProvider}
	}
}

type guard struct {
	within  time.Duration
	closed  <-chan struct{}
	running chan struct{}
}

// apart calls f, and leaves it behind when its time is over; late gets then what f
// returns after that.
func apart[T any](ctx context.Context, g *guard, name string, f func(context.Context) (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var none T
	select {
	case g.running <- struct{}{}:
	default:
		return none, fmt.Errorf("earlier calls of %s have not returned", name)
	}
	ctx, cancel := context.WithTimeout(ctx, g.within)
	done := make(chan result)
	go func() {
		defer cancel()
		defer func() { <-g.running }()
		var r result
		func() {
			defer func() {
				if p := recover(); p != nil {
					r.err = fmt.Errorf("%s panicked: %v", name, p)
				}
			}()
			r.value, r.err = f(ctx)
		}()
		select {
		case done <- r:
		case <-ctx.Done():
			if r.err == nil && late != nil {
				late(r.value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, fmt.Errorf("%s has not returned: %w", name, ctx.Err())
	case <-g.closed:
		cancel()
		return none, net.ErrClosed
	}
}

// guardedProvider is the user's provider, whose calls may hang.
type guardedProvider struct {
	guard *guard
	auth.StreamingCredentialsProvider
}

type subscribed struct {
	credentials auth.Credentials
	end         auth.UnsubscribeFunc
}

func (p *guardedProvider) Subscribe(listener auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	s, err := apart(context.Background(), p.guard, "StreamingCredentialsProvider.Subscribe", func(context.Context) (s subscribed, err error) {
		s.credentials, s.end, err = p.StreamingCredentialsProvider.Subscribe(listener)
		return s, err
	}, func(s subscribed) { _ = s.end() })
	if err != nil {
		return nil, nil, err
	}
	// It is called where a connection is closed, which must not hang either.
	return s.credentials, func() error {
		go func() { _ = s.end() }()
		return nil
	}, nil
}
