package wire

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9/auth"
)

// A role is what a server must be.
type role int

const (
	primary     role = iota // of all names
	shard                   // a primary of a cluster
	clusterNode             // primary or replica, see cluster.view
)

// setUp makes a new connection ready for requests: https://redis.io/docs/latest/commands/hello/. All its
// requests but that of the history need one round trip. A server that does not know HELLO, or may not be
// asked, gets them again without it.
func (d *dialer) setUp(ctx context.Context, call *dial, p *pipe) error {
	user, password, err := d.credentials(ctx, call, p)
	if err != nil {
		return err
	}
	call.begin(theDialer, 2*d.opt.DialTimeout) // it made the connection
	defer context.AfterFunc(ctx, p.drop)()
	hello := []any{"hello", d.opt.Protocol}
	if password != "" {
		hello = append(hello, "auth", cmp.Or(user, "default"), password)
	}
	if d.opt.ClientName != "" {
		hello = append(hello, "setname", d.opt.ClientName)
	}
	var commands []Request
	if d.opt.DB > 0 {
		commands = append(commands, Command("select", d.opt.DB))
	}
	answers, err := p.exchange(append([]Request{Command(hello...)}, commands...)...)
	if err != nil {
		return reason(ctx, err)
	}
	if refused := answers[0].Err; refused != nil {
		if HasCode(refused, "max number of clients", "DENIED", "NOAUTH") {
			return refused
		}
		switch {
		case password == "":
		case user == "":
			commands = append([]Request{Command("auth", password)}, commands...)
		default:
			commands = append([]Request{Command("auth", user, password)}, commands...)
		}
		if d.opt.ClientName != "" {
			commands = append(commands, Command("client", "setname", d.opt.ClientName))
		}
		if answers, err = p.exchange(commands...); err != nil {
			return reason(ctx, err)
		}
	} else if err := d.role.check(answers[0].Value); err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return a.Err
		}
	}
	if d.history == nil {
		return nil
	}
	return reason(ctx, d.history.check(p))
}

// reason returns why a request of a setup failed.
func reason(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// check reads the answer to HELLO. A replica refuses every script, and its data may be old. After a failover,
// a Sentinel or a name server may still return its address.
func (r role) check(hello any) error {
	facts := map[any]any{}
	switch answer := hello.(type) {
	case map[any]any:
		facts = answer
	case []any: // RESP2
		for i := 0; i+1 < len(answer); i += 2 {
			facts[answer[i]] = answer[i+1]
		}
	}
	switch {
	case r != clusterNode && facts["role"] == "replica":
		return &refusal{"READONLY the server is a replica"}
	case r == clusterNode && isOld(facts["version"]):
		return &refusal{fmt.Sprintf("ERR the node has version %v; a cluster needs Redis 7.0 or later, for sharded messages", facts["version"])}
	}
	return nil
}

// isOld reports whether a version of Redis is older than 7.
func isOld(version any) bool {
	major, _, _ := strings.Cut(Text(version), ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// credentials asks the user's provider, if there is one.
func (d *dialer) credentials(ctx context.Context, call *dial, p *pipe) (user, password string, err error) {
	switch opt := &d.opt; {
	case opt.StreamingCredentialsProvider != nil:
		call.begin(theStream, opt.DialTimeout)
		w := &credentialsWatch{of: p}
		c, end, err := opt.StreamingCredentialsProvider.Subscribe(w)
		if err != nil {
			return "", "", err
		}
		p.mu.Lock()
		p.unwatch = end
		p.mu.Unlock()
		has := c.RawCredentials()
		w.has.Store(&has)
		user, password = c.BasicAuth()
		return user, password, nil
	case opt.CredentialsProviderContext != nil:
		call.begin(theProvider, opt.DialTimeout)
		return opt.CredentialsProviderContext(ctx)
	case opt.CredentialsProvider != nil:
		call.begin(theProvider, opt.DialTimeout)
		user, password = opt.CredentialsProvider()
		return user, password, nil
	}
	return d.opt.Username, d.opt.Password, nil
}

// A credentialsWatch learns of new credentials. The pipe is then outdated, and the next request makes another.
type credentialsWatch struct {
	of  *pipe
	has atomic.Pointer[string] // the credentials of the pipe; nil before they are known
}

// OnNext is called with new credentials.
func (w *credentialsWatch) OnNext(c auth.Credentials) {
	if has := w.has.Load(); has != nil && c.RawCredentials() != *has {
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
