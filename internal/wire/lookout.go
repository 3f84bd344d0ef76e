package wire

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A lookout finds out that the Sentinels name another primary. A connection that works is no
// proof that its server is still the primary: after a planned failover, the old one accepts
// writes for about ten seconds, until a Sentinel reconfigures it.
//
// The client of the user has no method that asks its Sentinels, but its Dialer asks them at each
// dial. A look is a dial, which is closed at once: the other side of the connection is the
// primary. While the Client is in use, there is one look per second.
//
//	idle ── a request is sent ──► looking ── the primary is another server ──► server.follow
//	  ▲                              │
//	  └── nothing is held or waited for, and no request was sent since the last look
//
// A look that fails says nothing, and changes nothing: connections work without Sentinels. Behind
// a Dialer of the user that reaches all servers through one proxy, the address does not change.
// Then connections stay until the old primary refuses a write.
type lookout struct {
	server *server
	probe  *dialer // for looks only

	used    atomic.Bool // since the last look
	running atomic.Bool // whether looks are made
	ctx     context.Context
	stop    context.CancelFunc

	mu sync.Mutex // against wg.Go after close
	wg sync.WaitGroup

	looked time.Time // when the last look began; only the goroutine uses it
}

// lookAfter is the time between two looks.
const lookAfter = time.Second

// failoverAddr is the Addr in the options of a failover client of go-redis.
const failoverAddr = "FailoverClient"

// newLookout returns nil if the address of the server does not come from a Sentinel.
func newLookout(s *server, opt redis.Options) *lookout {
	if opt.Addr != failoverAddr {
		return nil
	}
	l := &lookout{server: s, probe: newDialer(opt, s.role, nil), looked: time.Now()}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// use is called before each request.
func (l *lookout) use() {
	if l == nil {
		return
	}
	l.used.Store(true)
	if l.running.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() == nil && l.running.CompareAndSwap(false, true) {
		l.wg.Go(l.run)
	}
}

func (l *lookout) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.probe.close()
	l.wg.Wait()
}

// run looks while the Client is in use.
func (l *lookout) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for l.inUse() {
		timer.Reset(time.Until(l.looked.Add(lookAfter)))
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			return
		}
		l.looked = time.Now()
		l.look()
	}
}

// inUse reports whether to look again. If not, it sets running to false.
func (l *lookout) inUse() bool {
	for {
		if l.used.Swap(false) || l.server.cfg.InUse() {
			return true
		}
		l.running.Store(false)
		// A request may have been sent since, whose use saw that looks were made.
		if !l.used.Load() || !l.running.CompareAndSwap(false, true) {
			return false
		}
	}
}

// look finds the primary, and follows it to another server. A Sentinel that was cut off may
// name a replica, or a server that does not answer. These are not followed.
func (l *lookout) look() {
	at, err := l.probe.find(l.ctx)
	if err != nil || !l.server.strays(at) {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.probe.opt.DialTimeout)
	defer cancel()
	p, err := l.probe.connect(ctx)
	if err != nil {
		return
	}
	p.drop()
	if p.addr == at && l.ctx.Err() == nil {
		l.server.follow(at)
	}
}
