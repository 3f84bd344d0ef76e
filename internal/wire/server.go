package wire

import (
	"context"
	"errors"
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

	calls    *line
	renewals *stream

	mu   sync.Mutex
	left time.Duration // when connections were last replaced because the server missed replicas; 0: never
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{addr: opt.Addr, opt: opt, cfg: cfg, began: time.Now()}
	if cfg.Sharded {
		s.role = shard
	}
	if cfg.Delay != nil {
		s.history = &history{Delay: *cfg.Delay, addr: opt.Addr, tag: func() (string, bool) { return "", true }, now: cfg.Now}
	}
	s.calls = s.newLine(s.history)
	s.messages = newSubscription(opt, s.role, s.calls, cfg)
	s.calls.replaced = s.messages.retestNow
	s.renewals = &stream{server: s, line: s.newLine(nil)}
	s.calls.borrower, s.renewals.line.lender = s.renewals.line, s.calls
	s.lookout = newLookout(s, opt)
	return s
}

func (s *server) newLine(h *history) *line {
	l := newLine(s.opt, s.role, h, s.cfg, s.began)
	l.refused = s.refused
	return l
}

// Send sends a request. A script that the server does not know is sent again with its source. After the
// answer MOVED, the connection is replaced. If the next one is answered MOVED, too, the server was not
// demoted: it does not have the name's slot.
func (s *server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	s.lookout.use()
	l := s.calls
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
func (s *server) Renewals(string) Renewals {
	s.renewals.line.prepare()
	return s.renewals
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

func (s *server) lines() []*line { return []*line{s.calls, s.renewals.line} }

func (s *server) Close() {
	s.lookout.close()
	s.messages.close()
	for _, l := range s.lines() {
		l.close()
	}
}
