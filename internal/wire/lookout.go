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
// A look asks Config.Sentinels. There is one look per second while the Client holds a lease. A grant waits for a look
// that is at most a second old. A Client that only waits for leases looks when it tries to get one. A look that fails
// says nothing, and changes nothing: connections work without Sentinels.
type lookout struct {
	server *Server
	probe  *conn.Dialer // connects to a new primary before it is followed
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	running  bool          // a goroutine looks once a second
	wanted   bool          // a lease was granted since it has asked whether there is one
	looking  chan struct{} // closed when the present look ends; nil: none
	looked   time.Duration // when the last look that has ended began, by server.calls; negative: none was made
	at       string        // where that has found the primary; empty: none has
	followed int           // how often the primary was followed
}

// lookAfter is the time between two looks.
const lookAfter = time.Second

// newLookout returns nil if the address of the server does not come from Sentinels.
func newLookout(s *Server, o conn.Options) *lookout {
	if o.Where == nil {
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

// watch looks once a second from now on, until nothing is held. It is called for each grant.
func (l *lookout) watch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = true
	if l.running || l.ctx.Err() != nil {
		return
	}
	l.running = true
	l.wg.Go(func() {
		ticker := time.NewTicker(lookAfter)
		defer ticker.Stop()
		for l.again() {
			select {
			case <-ticker.C:
			case <-l.ctx.Done():
			}
		}
	})
}

// again begins a look, if a lease is held or was granted lately. If not, the next grant calls watch again.
func (l *lookout) again() bool {
	l.mu.Lock()
	wanted := l.wanted
	l.wanted = false
	l.mu.Unlock()
	held := wanted || l.server.cfg.Holds() // without mu, as it takes a mutex of the caller
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = l.ctx.Err() == nil && (held || l.wanted)
	if l.running {
		l.start()
	}
	return l.running
}

var errLeft = errors.New("lockcore: the Sentinels name another primary")

// begin begins a look unless the last one is recent. It returns how often the primary was followed before.
func (l *lookout) begin() (followed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.recent() {
		l.start()
	}
	return l.followed
}

// recent reports whether the last look is at most lookAfter old. The caller holds mu.
func (l *lookout) recent() bool {
	return l.server.calls.Now()-l.looked < lookAfter || l.ctx.Err() != nil
}

// start begins a look, unless one is under way. It returns what is closed when that ends. The caller holds mu, and ctx
// has not ended.
func (l *lookout) start() <-chan struct{} {
	if l.looking == nil {
		l.looking = make(chan struct{})
		l.wg.Go(l.look)
	}
	return l.looking
}

// confirm returns an error if the primary was followed since before. It waits for a look that is at most a second old,
// until ctx ends, or for that time: Sentinels that do not answer delay a grant, and do not prevent it.
func (l *lookout) confirm(ctx context.Context, before int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		l.mu.Lock()
		if l.followed != before {
			l.mu.Unlock()
			return errLeft
		}
		if l.recent() || ctx.Err() != nil {
			l.mu.Unlock()
			return nil
		}
		looking := l.start()
		l.mu.Unlock()
		select {
		case <-looking:
		case <-ctx.Done():
		}
	}
}

// look finds the primary, and follows it to another server. A Sentinel that was cut off may
// name a replica, or a server that does not answer. These are not followed.
func (l *lookout) look() {
	looked := l.server.calls.Now()
	l.mu.Lock()
	at := l.at
	l.mu.Unlock()
	followed := 0
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.looked, l.at, l.followed = looked, at, l.followed+followed
		close(l.looking)
		l.looking = nil
	}()
	_, addrs, err := l.server.cfg.Sentinels.Primary(l.ctx)
	if err != nil {
		looked = l.server.calls.Now() // it may have taken long, and is not repeated at once
		return
	}
	found := addrs[0]
	// The connections to the former primary may have ended already.
	if !l.server.strays(found) && (at == "" || at == found) {
		at = found
		return
	}
	ctx, cancel := context.WithTimeout(l.ctx, conn.MaxDialTime)
	defer cancel()
	p, err := l.probe.Connect(ctx)
	if err != nil {
		return
	}
	p.Drop()
	if p.Addr == found && l.ctx.Err() == nil {
		at, followed = found, 1
		l.server.follow(found)
	}
}
