package conn

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9/auth"
)

// An attempt is one dial with the setup of its connection. Dialer.mu guards settingUp and finished.
type attempt struct {
	opt       *Options
	ctx       context.Context
	cancel    context.CancelFunc
	began     time.Duration
	timer     *time.Timer            // deadline of the current step
	step      atomic.Pointer[string] // name of the option whose function was called last, for errors
	settingUp bool                   // claimSetup has succeeded
	finished  bool                   // a result was sent
	result    chan dialResult        // receives one result
}

type dialResult struct {
	conn *Conn
	err  error
}

// grace is added to the deadline of a function or a caller, so that it can end by itself first.
const grace = 5 * time.Millisecond

// isRunning reports whether the attempt is neither canceled nor late.
func (a *attempt) isRunning() bool { return a.ctx.Err() == nil }

// startStep starts the time limit of the next step: a call of the user's function in an option, or a round trip.
func (a *attempt) startStep(step string) {
	a.step.Store(&step)
	a.timer.Reset(a.opt.Redis.DialTimeout + grace)
}

// dial calls the Dialer. An empty address means the one in the options.
func (a *attempt) dial(ctx context.Context, addr string) (*Conn, error) {
	a.startStep("Dialer")
	ctx, cancel := context.WithTimeout(ctx, a.opt.Redis.DialTimeout)
	defer cancel()
	network, err := a.opt.Redis.Dialer(ctx, a.opt.Redis.Network, cmp.Or(addr, a.opt.Redis.Addr))
	if err != nil {
		return nil, err // network may be a nil *tls.Conn of go-redis's Dialer, which is not a nil net.Conn
	}
	c := newConn(network)
	c.Addr = cmp.Or(addr, c.Addr)
	return c, nil
}

// setUp makes a new connection ready for requests. All commands before Ready need one round trip. A server that does
// not know or permit the last of them, HELLO (https://redis.io/docs/latest/commands/hello/), is used all the same.
func (a *attempt) setUp(c *Conn) error {
	user, password, err := a.credentials(c)
	if err != nil {
		return err
	}
	defer context.AfterFunc(a.ctx, c.Drop)()
	ask := func(commands ...Command) ([]Answer, error) {
		a.startStep("Dialer") // a silent server is blamed on the Dialer, which made the connection
		return c.Ask(commands...)
	}
	opt := &a.opt.Redis
	var commands []Command
	if password != "" {
		commands = append(commands, Plain("auth", cmp.Or(user, "default"), password))
	}
	if opt.DB > 0 {
		commands = append(commands, Plain("select", opt.DB))
	}
	hello := []any{"hello", 2}
	if opt.ClientName != "" {
		hello = append(hello, "setname", opt.ClientName)
	}
	answers, err := ask(append(commands, Plain(hello...))...)
	for i, answer := range answers {
		if answer.Err != nil && (i < len(commands) || HasCode(answer.Err, "max number of clients", "DENIED", "NOAUTH", "Client names")) {
			return answer.Err // the server may then close the connection, which would be err
		}
	}
	if err != nil {
		return cmp.Or(a.ctx.Err(), err)
	}
	if last := answers[len(commands)]; last.Err == nil && a.opt.Check != nil {
		if err := a.opt.Check(Pairs(last.Value)); err != nil {
			return err
		}
	}
	if a.opt.Ready == nil {
		return nil
	}
	if err := a.opt.Ready(ask); err != nil {
		return cmp.Or(a.ctx.Err(), err)
	}
	return nil
}

// Pairs returns a reply that is a list of names and values.
func Pairs(reply any) map[string]any {
	pairs := map[string]any{}
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		if name, ok := list[i].(string); ok {
			pairs[name] = list[i+1]
		}
	}
	return pairs
}

func (a *attempt) credentials(c *Conn) (user, password string, err error) {
	switch opt := &a.opt.Redis; {
	case opt.StreamingCredentialsProvider != nil:
		a.startStep("StreamingCredentialsProvider")
		w := &credentialsWatch{conn: c}
		first, unwatch, err := opt.StreamingCredentialsProvider.Subscribe(w)
		if err != nil {
			return "", "", err
		}
		c.mu.Lock()
		c.unwatch = unwatch
		c.mu.Unlock()
		raw := first.RawCredentials()
		w.used.Store(&raw)
		if newest := w.newest.Load(); newest != nil && *newest != raw {
			c.outdated.Store(true)
		}
		user, password = first.BasicAuth()
		return user, password, nil
	case opt.CredentialsProviderContext != nil:
		a.startStep("CredentialsProvider")
		return opt.CredentialsProviderContext(a.ctx)
	case opt.CredentialsProvider != nil:
		a.startStep("CredentialsProvider")
		user, password = opt.CredentialsProvider()
		return user, password, nil
	}
	return a.opt.Redis.Username, a.opt.Redis.Password, nil
}

// A credentialsWatch receives new credentials from a StreamingCredentialsProvider. They make the connection outdated,
// so the next request makes another connection.
type credentialsWatch struct {
	conn         *Conn
	used, newest atomic.Pointer[string] // credentials of the connection, and the last ones; nil before them
}

// OnNext receives new credentials.
func (w *credentialsWatch) OnNext(c auth.Credentials) {
	raw := c.RawCredentials()
	w.newest.Store(&raw)
	if used := w.used.Load(); used != nil && raw != *used {
		w.conn.outdated.Store(true)
	}
}

// OnError does nothing: the credentials of the connection may still be valid.
func (w *credentialsWatch) OnError(error) {}
