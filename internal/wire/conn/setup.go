package conn

import (
	"cmp"
	"context"
	"net"
	"sync/atomic"

	"github.com/redis/go-redis/v9/auth"
)

// setUp makes a new connection ready for requests. All its commands but those of Ready need one round trip. The last one
// of them is HELLO, https://redis.io/docs/latest/commands/hello/: a server that does not know it, or may not be asked, is
// used all the same.
func (d *Dialer) setUp(c *dial, p *Pipe) error {
	ctx := c.ctx
	user, password, err := d.credentials(c, p)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, p.Drop)()
	ask := func(commands ...Command) ([]Answer, error) {
		c.begin(theDialer, d.opt.Redis.DialTimeout) // it made the connection
		return p.Ask(commands...)
	}
	var commands []Command
	if password != "" {
		commands = append(commands, Plain("auth", cmp.Or(user, "default"), password))
	}
	if d.opt.Redis.DB > 0 {
		commands = append(commands, Plain("select", d.opt.Redis.DB))
	}
	hello := []any{"hello", 2}
	if d.opt.Redis.ClientName != "" {
		hello = append(hello, "setname", d.opt.Redis.ClientName)
	}
	answers, err := ask(append(commands, Plain(hello...))...)
	for i, a := range answers {
		if a.Err != nil && (i < len(commands) || HasCode(a.Err, "max number of clients", "DENIED", "NOAUTH", "Client names")) {
			return a.Err // it may close the connection then
		}
	}
	if err != nil {
		return reason(ctx, err)
	}
	if said := answers[len(commands)]; said.Err == nil && d.opt.Check != nil {
		if err := d.opt.Check(Facts(said.Value)); err != nil {
			return err
		}
	}
	if d.opt.Ready == nil {
		return nil
	}
	return reason(ctx, d.opt.Ready(ask))
}

// reason returns why a request of a setup failed.
func reason(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// Facts returns a reply that is a list of names and values.
func Facts(reply any) map[string]any {
	facts := map[string]any{}
	list, _ := reply.([]any)
	for i := 0; i+1 < len(list); i += 2 {
		if name, ok := list[i].(string); ok {
			facts[name] = list[i+1]
		}
	}
	return facts
}

// credentials asks the user's provider, if there is one.
func (d *Dialer) credentials(c *dial, p *Pipe) (user, password string, err error) {
	switch opt := &d.opt.Redis; {
	case opt.StreamingCredentialsProvider != nil:
		c.begin(theStream, opt.DialTimeout)
		w := &credentialsWatch{of: p}
		has, end, err := opt.StreamingCredentialsProvider.Subscribe(w)
		if err != nil {
			return "", "", err
		}
		p.mu.Lock()
		p.unwatch = end
		p.mu.Unlock()
		raw := has.RawCredentials()
		w.has.Store(&raw)
		if newest := w.newest.Load(); newest != nil && *newest != raw {
			p.outdated.Store(true)
		}
		user, password = has.BasicAuth()
		return user, password, nil
	case opt.CredentialsProviderContext != nil:
		c.begin(theProvider, opt.DialTimeout)
		return opt.CredentialsProviderContext(c.ctx)
	case opt.CredentialsProvider != nil:
		c.begin(theProvider, opt.DialTimeout)
		user, password = opt.CredentialsProvider()
		return user, password, nil
	}
	return d.opt.Redis.Username, d.opt.Redis.Password, nil
}

// A credentialsWatch learns of new credentials. The pipe is then outdated, and the next request makes another.
type credentialsWatch struct {
	of          *Pipe
	has, newest atomic.Pointer[string] // credentials of the pipe, and the last new ones; nil before they are known
}

// OnNext is called with new credentials.
func (w *credentialsWatch) OnNext(c auth.Credentials) {
	raw := c.RawCredentials()
	w.newest.Store(&raw)
	if has := w.has.Load(); has != nil && raw != *has {
		w.of.outdated.Store(true)
	}
}

// OnError is called when there are no new credentials. Those of the pipe may still be valid.
func (w *credentialsWatch) OnError(error) {}

// remoteAddr returns where a connection leads to. The connection may be the user's.
func remoteAddr(conn net.Conn) string {
	if at := conn.RemoteAddr(); at != nil {
		return at.String()
	}
	return ""
}
