package wire

import (
	"context"
	"errors"
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
	began    time.Time
	missing  sync.Map // scripts that the server does not know, and for whose source there was no time

	// followSlots is called with each batch of renewals in a cluster, nil at one server.
	followSlots func(ctx context.Context, requests []Request, answers []Answer)

	mu     sync.Mutex
	closed bool
	groups map[int]*group // by Request.replicas
	left   time.Duration  // when connections were last replaced because the server missed replicas; 0: never
}

// A group is the connections for requests that wait for the same number of replicas. WAIT
// blocks its connection until the replicas have answered. So a replica that does not answer
// delays only the requests that need it.
type group struct {
	calls    *line
	renewals *stream
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{addr: opt.Addr, opt: opt, cfg: cfg, groups: map[int]*group{}, began: time.Now()}
	if cfg.Sharded {
		s.role = shard
	}
	if cfg.Delay != nil {
		s.history = &history{Delay: *cfg.Delay, addr: opt.Addr, tag: func() (string, bool) { return "", true }, now: cfg.Now}
	}
	calls := s.newLine(s.history, 0)
	s.messages = newSubscription(opt, s.role, calls, cfg)
	calls.replaced = s.messages.retestNow
	s.lookout = newLookout(s, opt)
	s.groups[0] = s.newGroup(calls)
	return s
}

func (s *server) newLine(h *history, replicas int) *line {
	l := newLine(s.opt, s.role, h, replicas, s.began)
	l.refused = s.refused
	return l
}

func (s *server) newGroup(calls *line) *group {
	g := &group{calls, &stream{server: s, line: s.newLine(nil, calls.replicas)}}
	calls.borrower, g.renewals.line.lender = g.renewals.line, calls
	return g
}

// group returns the connections for requests that wait for so many replicas. They connect when
// they are first used.
func (s *server) group(replicas int) *group {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[replicas]
	if g == nil {
		calls := s.newLine(s.history, replicas)
		calls.replaced = s.messages.retestNow
		g = s.newGroup(calls)
		s.groups[replicas] = g
		if s.closed {
			g.close()
		}
	}
	return g
}

func (g *group) close() {
	g.renewals.line.close()
	g.calls.close()
}

// Send sends a request. A script that the server does not know is sent again with its source. After the
// answer MOVED, the connection is replaced. If the next one is answered MOVED, too, the server was not
// demoted: it does not have the name's slot.
func (s *server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	s.lookout.use()
	l := s.group(r.replicas).calls
	until := l.now() + timeout
	if _, missing := s.missing.LoadAndDelete(r.script); missing {
		r = r.WithSource()
	}
	a := l.do(ctx, r, timeout)
	for moved := false; ; {
		left := until - l.now()
		switch {
		case left <= 0 && r.script != nil && isNoScript(a.Err):
			s.missing.Store(r.script, true)
			a = Answer{Err: errors.Join(ErrUnknown, NoAnswer(timeout))}
		case left <= 0:
		case r.script != nil && isNoScript(a.Err):
			r = r.WithSource()
			a = l.do(ctx, r, left)
			continue
		case !s.cfg.Sharded && HasCode(a.Err, "MOVED") && !moved:
			moved = true
			a = l.do(ctx, r, left)
			continue
		}
		break
	}
	if err := a.Err; OutcomeOf(err) != Applied && OutcomeOf(err) != Ended {
		s.cfg.Failed(r, err)
		if s.mayBeDemoted(err) {
			s.messages.demoted()
		}
	}
	return a.Value, a.Err
}

// leaveAfter is the shortest time between two replacements of the connections to a server that
// misses replicas. If this server is still the primary, they help nothing.
const leaveAfter = time.Second

// refused is called with each error of a request that was sent at that time. If the server is no longer
// the primary, the connections of that time are replaced: the address may lead to the new one.
func (s *server) refused(sent time.Duration, err error) {
	switch {
	case s.role.isReplica(err):
	case s.role.isCutOff(err):
		now := time.Since(s.began)
		s.mu.Lock()
		again := s.left > 0 && now-s.left < leaveAfter
		if !again {
			s.left = max(1, now)
		}
		s.mu.Unlock()
		if again {
			return
		}
	default:
		return
	}
	for _, l := range s.lines() {
		l.abandon(sent)
	}
}

// renewed is called for each batch of renewals.
func (s *server) renewed(ctx context.Context, requests []Request, answers []Answer) {
	if s.followSlots != nil {
		s.followSlots(ctx, requests, answers)
	}
	if slices.ContainsFunc(answers, func(a Answer) bool { return s.mayBeDemoted(a.Err) }) {
		s.messages.demoted()
	}
}

func (s *server) mayBeDemoted(err error) bool { return s.role.isReplica(err) || s.role.isCutOff(err) }

// Renewals is called for each new lease. The connection is there before the first renewal.
func (s *server) Renewals(_ string, replicas int) Renewals {
	g := s.group(replicas)
	g.renewals.line.prepare()
	return g.renewals
}

func (s *server) Messages(string) Messages { return s.messages }

// strays reports whether a connection leads to a server at another address.
func (s *server) strays(from string) bool {
	return s.messages.strays(from) || slices.ContainsFunc(s.lines(), func(l *line) bool { return len(l.away(from)) > 0 })
}

// follow moves all connections to the primary at an address. Then everything that the old one
// may have granted is checked at the new one.
func (s *server) follow(to string) {
	s.cfg.Logger.Info("primary changed", "address", to)
	for _, l := range s.lines() {
		l.follow(to)
	}
	if s.messages.strays(to) {
		s.messages.demoted()
	}
	s.cfg.Moved()
}

func (s *server) lines() (all []*line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		all = append(all, g.calls, g.renewals.line)
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
