package wire

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Wire of one Redis server, which has all names. With Sentinel it is the
// present primary: each dial asks a Sentinel for its address, see givenOptions.
type server struct {
	addr     string
	role     role
	opt      redis.Options
	cfg      Config
	messages *Subscription
	lookout  *lookout    // nil unless Sentinels name the primary
	history  *history    // nil without Config.Delay
	whole    atomic.Bool // it is known to have all names, see refuseShard

	// followSlots is called with each batch of renewals in a cluster, nil at one server.
	followSlots func(ctx context.Context, requests []Request, answers []Answer)

	mu     sync.Mutex
	closed bool
	groups map[int]*group // by Request.replicas
}

// A group is the connections for requests that wait for the same number of replicas. WAIT
// blocks its connection until the replicas have answered. So a replica that does not answer
// delays only the requests that need it.
type group struct {
	requests *dispatcher
	renewals *Stream
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{addr: opt.Addr, opt: opt, cfg: cfg, groups: map[int]*group{}}
	if cfg.Sharded {
		s.role = shard
	}
	if cfg.Delay != nil {
		s.history = &history{Delay: *cfg.Delay, addr: opt.Addr, tag: func() (string, bool) { return "", true }, now: cfg.Now}
	}
	requests := newDispatcher(opt, s.role, s.history, s.failed)
	s.messages = newSubscription(opt, s.role, requests, cfg)
	s.lookout = newLookout(s, opt)
	s.groups[0] = s.newGroup(requests)
	return s
}

func (s *server) newGroup(requests *dispatcher) *group {
	for _, c := range requests.all {
		c.replaced = s.messages.retestNow
	}
	g := &group{requests, newStream(s.opt, s.role, s.cfg.Width, requests)}
	g.renewals.used, g.renewals.answered = s.lookout.use, s.answered
	g.renewals.sharded = s.cfg.Sharded
	return g
}

// group returns the connections for requests that wait for so many replicas. They connect when
// they are first used.
func (s *server) group(replicas int) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[replicas]
	if g == nil {
		g = s.newGroup(newDispatcher(s.opt, s.role, s.history, s.failed))
		s.groups[replicas] = g
		if s.closed {
			g.close()
		}
	}
	return g
}

func (g *group) close() {
	g.renewals.close()
	g.requests.close()
}

// Send sends a request. After the answer MOVED, its connection is replaced. If a try on each
// connection and one on a new connection are answered MOVED, the server was not demoted: it
// does not have the name's slot.
func (s *server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	s.lookout.use()
	began := time.Now()
	for tries := 0; ; tries++ {
		answer, err := s.group(r.replicas).requests.do(ctx, r, timeout)
		if !HasCode(err, "MOVED") || tries == connections || time.Since(began) >= timeout {
			return answer, err
		}
	}
}

// failed is called for each request that failed.
func (s *server) failed(r Request, err error) {
	s.cfg.Failed(r, err)
	if s.mayBeDemoted(err) {
		s.messages.demoted()
	}
}

// answered is called for each batch of renewals.
func (s *server) answered(ctx context.Context, requests []Request, answers []Answer) {
	if s.followSlots != nil {
		s.followSlots(ctx, requests, answers)
	}
	if slices.ContainsFunc(answers, func(a Answer) bool { return s.mayBeDemoted(a.Err) }) {
		s.messages.demoted()
	}
}

func (s *server) mayBeDemoted(err error) bool { return s.role.isReplica(err) || s.role.isCutOff(err) }

func (s *server) Renewals(_ string, replicas int) Renewals { return s.group(replicas).renewals }

func (s *server) Messages(string) Messages { return s.messages }

// strays reports whether a connection leads to a server at another address.
func (s *server) strays(from string) bool {
	return s.messages.strays(from) || slices.ContainsFunc(s.connections(), func(c *connection) bool { return c.strays(from) })
}

// follow moves all connections to the primary at an address. Then everything that the old one
// may have granted is checked at the new one.
func (s *server) follow(to string) {
	s.cfg.Logger.Info("primary changed", "address", to)
	for _, c := range s.connections() {
		c.follow(to)
	}
	if s.messages.strays(to) {
		s.messages.demoted()
	}
	s.cfg.Moved()
}

// connections returns all connections except that of the subscription.
func (s *server) connections() (all []*connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		all = slices.Concat(all, g.requests.connections(), g.renewals.all)
	}
	return all
}

func (s *server) Close() {
	s.lookout.close()
	s.messages.close()
	s.mu.Lock()
	s.closed = true
	groups := slices.Collect(maps.Values(s.groups))
	s.mu.Unlock()
	for _, g := range groups {
		g.close()
	}
}
