package lockcore

import (
	"context"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A link is a redis.Client whose connections can be broken off: go-redis does not
// look at a context while it reads. It is used by one request, or one
// subscription, at a time.
type link struct {
	rdb    *redis.Client
	failed bool // the last request found no connection; whoever uses the link writes it

	mu     sync.Mutex
	broken bool
	conns  []net.Conn // the newest ones; those before them are idle or closed
}

// keptConns is more than go-redis has open on a link at a time: one in use, and
// one whose dial came to an end after it was given up.
const keptConns = 4

func newLink(opt redis.Options) *link {
	l := &link{}
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.broken {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
		}
		if len(l.conns) == keptConns {
			copy(l.conns, l.conns[1:])
			l.conns = l.conns[:keptConns-1]
		}
		l.conns = append(l.conns, conn)
		return conn, nil
	}
	l.rdb = redis.NewClient(&opt)
	return l
}

// during runs f, and breaks off what it does on the link when ctx ends.
func (l *link) during(ctx context.Context, f func()) {
	if ctx.Done() == nil {
		f()
		return
	}
	over := false // guarded by mu: the next one on this link must not be hit
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !over {
			l.cut()
		}
	})
	f()
	stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	over = true
	l.broken = false
}

// breakOff makes what is under way fail at once, and dials, too.
func (l *link) breakOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut()
}

// cut closes the connections. A deadline in the past would not do: go-redis sets
// its own before it reads.
func (l *link) cut() {
	l.broken = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	clear(l.conns)
	l.conns = l.conns[:0]
}
