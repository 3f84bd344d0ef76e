package wire

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A lookout finds out that the Sentinels name another primary. A connection that works is no
// proof that its server is still the primary: after a planned failover, the old one accepts
// writes for about ten seconds, until a Sentinel reconfigures it.
//
// The client of the user has no method that asks its Sentinels, but its Dialer asks them at each
// dial. A look is a dial, which is closed at once: the other side of the connection is the
// primary. There is one look per second while the Client holds a lease. A grant waits for a look that is at
// most a second old. A Client that only waits for leases looks when it tries to get one.
//
//	idle ── a lease ──► a look per second ── the primary is another server ──► Server.follow
//	  ▲                              │
//	  └───── nothing is held ────────┘
//
// A look that fails says nothing, and changes nothing: connections work without Sentinels. Behind
// a Dialer of the user that reaches all servers through one proxy, the address does not change.
// Then connections stay until the old primary refuses a write.
type lookout struct {
	server *Server
	probe  *conn.Dialer // for looks only
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	running  bool          // a goroutine looks once a second
	looking  chan struct{} // closed when the present look ends; nil: none
	looked   time.Duration // when the last look that has ended began, by server.calls; negative: none was made
	followed int           // how often the primary was followed
}

// lookAfter is the time between two looks.
const lookAfter = time.Second

// failoverAddr is the Addr in the options of a failover client of go-redis.
const failoverAddr = "FailoverClient"

// newLookout returns nil if the address of the server does not come from a Sentinel.
func newLookout(s *Server, o conn.Options) *lookout {
	if o.Redis.Addr != failoverAddr {
		return nil
	}
	l := &lookout{server: s, probe: conn.NewDialer(o), looked: -lookAfter}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

func (l *lookout) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.probe.Close()
	l.wg.Wait()
}

// watch looks once a second from now on, until nothing is held. l may be nil.
func (l *lookout) watch() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running || l.ctx.Err() != nil {
		return
	}
	l.running = true
	l.wg.Go(func() {
		ticker := time.NewTicker(lookAfter)
		defer ticker.Stop()
		for again := true; again; again = l.holds() {
			_ = l.recent(l.ctx, conn.MaxDialTime)
			select {
			case <-ticker.C:
			case <-l.ctx.Done():
			}
		}
	})
}

// holds reports whether to look again. If not, the next lease calls watch again.
func (l *lookout) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = l.ctx.Err() == nil && l.server.cfg.Holds()
	return l.running
}

var errLeft = errors.New("lockcore: the Sentinels name another primary")

// confirm returns an error if the primary has changed since before. It waits for a look that is at most a second old,
// until ctx ends, or for that time: Sentinels that do not answer delay a grant, and do not prevent it. l may be nil.
func (l *lookout) confirm(ctx context.Context, before int, within time.Duration) error {
	if l == nil {
		return nil
	}
	if err := l.recent(ctx, within); err != nil {
		return err
	}
	if l.state() != before {
		return errLeft
	}
	return nil
}

// state returns how often the primary was followed. l may be nil.
func (l *lookout) state() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.followed
}

// recent looks, unless the last look is recent. It waits for that until ctx ends, or for that time.
func (l *lookout) recent(ctx context.Context, within time.Duration) error {
	l.mu.Lock()
	if l.server.calls.Now()-l.looked < lookAfter || l.ctx.Err() != nil {
		l.mu.Unlock()
		return nil
	}
	if l.looking == nil {
		l.looking = make(chan struct{})
		l.wg.Go(l.look)
	}
	looking := l.looking
	l.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-looking:
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// look finds the primary, and follows it to another server. A Sentinel that was cut off may
// name a replica, or a server that does not answer. These are not followed.
func (l *lookout) look() {
	looked := l.server.calls.Now()
	followed := 0
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looked, l.followed = looked, l.followed+followed
		close(l.looking)
		l.looking = nil
	}()
	at, err := l.probe.Find(l.ctx)
	if err != nil {
		looked = l.server.calls.Now() // it may have taken long, and is not repeated at once
		return
	}
	if !l.server.strays(at) {
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, conn.MaxDialTime)
	defer cancel()
	p, err := l.probe.Connect(ctx)
	if err != nil {
		return
	}
	p.Drop()
	if p.Addr == at && l.ctx.Err() == nil {
		followed = 1
		l.server.follow(at)
	}
}
