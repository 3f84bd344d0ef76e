package wire

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// checkPrimary reads the answer to HELLO. A replica refuses every script, and its data may be old. After a failover,
// a Sentinel or a name server may still return its address.
func checkPrimary(hello map[string]any) error {
	if hello["role"] == "replica" {
		return &conn.Refusal{Text: "READONLY the server is a replica"}
	}
	return nil
}

// A Server is the Wire of one Redis server, which has all names, or those of a Node. With Sentinel it is the
// present primary, whose address Config.Sentinels name.
type Server struct {
	addr     string
	node     Node
	cfg      Config
	messages *Subscription
	lookout  *lookout    // nil unless Sentinels name the primary
	whole    atomic.Bool // it is known to have all names, see refuseShard
	sent     sync.Map    // scripts whose source was sent

	calls    *conn.Line
	renewals *stream
	large    *conn.Line  // for requests with large answers
	idle     *time.Timer // ends the connection of large

	mu       sync.Mutex
	replaced time.Duration // when Replace last did so; 0: never
	pause    time.Duration // before it does so again
}

// largeIdle is how long the connection for large answers is kept after its last use.
const largeIdle = 10 * time.Second

// A Node tells a Server that it has only some names. Its functions may be nil.
type Node struct {
	// Tag returns one of the names, false if there is none.
	Tag func() (string, bool)
	// Renewed is called with each batch of renewals.
	Renewed func(ctx context.Context, requests []Request, answers []Answer)
	// Refused is called with each failed answer to a request or a subscription, and with a time at or after which
	// it was sent. It must not block.
	Refused func(sent time.Duration, err error)
	// Failed is called when the subscription has failed, or one of its channels has moved.
	Failed func()
}

// NewServer returns the Wire of the server in these options. It makes connections when they are first used.
func NewServer(opt redis.Options, node Node, cfg Config) *Server {
	s := &Server{addr: opt.Addr, node: node, cfg: cfg}
	if node.Tag == nil {
		s.node.Tag = func() (string, bool) { return "", true }
	}
	o := conn.Options{
		Redis: opt, Where: cfg.Sentinels.where(), Check: checkPrimary, Replicas: cfg.Replicas, Began: time.Now(), Ticks: cfg.Now, Refused: s.refused,
	}
	s.renewals = &stream{server: s, line: conn.NewLine(o)}
	if cfg.History != nil {
		h := cfg.History(opt.Addr, s.node.Tag)
		o.Refusal = h.Refusal
		o.Ready = func(ask func(...conn.Command) ([]Answer, error)) error {
			return h.Check(func(r Request) (any, error) {
				a, err := ask(r.WithSource().Command)
				if err != nil {
					return nil, err
				}
				return a[0].Value, a[0].Err
			})
		}
	}
	s.large = conn.NewLine(o)
	s.idle = time.AfterFunc(largeIdle, func() { s.large.Abandon(s.large.Now()) })
	s.idle.Stop() // until it is used
	o.Replaced = func() { s.messages.doubt() }
	s.calls = conn.NewLine(o)
	s.renewals.line.Borrow(s.calls)
	o.Ready = nil
	s.messages = newSubscription(o, s.calls, node.Failed, cfg)
	s.lookout = newLookout(s, o)
	return s
}

// Send sends a request. After the answer MOVED, the connection is replaced. If the next one is answered MOVED, too, the
// server was not demoted: it does not have the name's slot.
func (s *Server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	confirms, primary := r.Grants && s.lookout != nil, 0
	if confirms {
		primary = s.lookout.begin()
	}
	l := s.calls
	if r.large {
		l = s.large
		s.idle.Stop()
		defer s.idle.Reset(largeIdle)
	}
	until := l.Now() + timeout
	var a Answer
	for lacks, moved := false, false; ; {
		command, brings := s.command(r, lacks)
		a = l.Do(ctx, command, until-l.Now())
		lacks = s.lacks(r, brings, a.Err)
		if l.Now() >= until || !lacks && (moved || s.cfg.Sharded || !HasCode(a.Err, "MOVED")) {
			break
		}
		moved = moved || !lacks
	}
	if confirms && a.Err == nil && r.granted(a.Value) {
		if err := s.lookout.confirm(ctx, primary, (until-l.Now())/2); err != nil {
			a = Answer{Err: errors.Join(ErrUnknown, err)}
		} else {
			s.lookout.watch()
		}
	}
	if outcome := OutcomeOf(a.Err); outcome != Applied && outcome != Ended {
		s.cfg.Failed(r, a.Err)
	}
	return a.Value, a.Err
}

// command returns the command of a request. The first call of a script brings its source, so that no lease waits for
// another round trip, and so does the repetition of one that the server lacks.
func (s *Server) command(r Request, lacks bool) (c conn.Command, brings bool) {
	if r.script == nil {
		return r.Command, false
	}
	if _, sent := s.sent.LoadOrStore(r.script, true); !sent || lacks {
		r.Args, brings = r.withSource(), true
	}
	return r.Command, brings
}

// lacks reports whether the server has refused a request because it does not know the script.
func (s *Server) lacks(r Request, brought bool, err error) bool {
	lacks := r.script != nil && HasCode(err, "NOSCRIPT")
	if lacks || brought && err != nil {
		s.sent.Delete(r.script)
	}
	return lacks && !brought
}

// isReplica reports whether the server may have refused because it is a replica. A replica of a
// cluster answers MOVED, and so does a primary that does not have the slot. Without a slot table,
// only a new connection shows which of them it is, see checkPrimary.
func (s *Server) isReplica(err error) bool {
	return HasCode(err, "READONLY") || !s.cfg.Sharded && HasCode(err, "MOVED")
}

// isCutOff reports whether the server misses replicas. Another one may have
// been promoted without its knowledge. A cluster asks other nodes, see cluster.assess.
func (s *Server) isCutOff(err error) bool {
	return !s.cfg.Sharded && (HasCode(err, "NOREPLICAS") || errors.Is(err, ErrNotReplicated))
}

// The first and the longest pause between two replacements by Replace.
const (
	firstReplace   = 100 * time.Millisecond
	longestReplace = time.Second
)

// refused is called with each error of a request that was sent at that time. If the server is no longer
// the primary, the connections of that time are replaced: the address may lead to the new one.
func (s *Server) refused(sent time.Duration, err error) {
	switch {
	case s.isReplica(err):
		s.abandon(sent)
		s.messages.demoted()
	case s.isCutOff(err):
		s.Replace(sent)
	case s.node.Refused != nil:
		s.node.Refused(sent, err)
	}
}

// Replace replaces the connections that were made before a time, as the address may lead to another server by now. If
// it does not, that helps nothing. So the pauses between two replacements grow. Replace returns false if the
// connections stay because of such a pause.
func (s *Server) Replace(before time.Duration) bool {
	now := s.calls.Now()
	s.mu.Lock()
	since, replaced := now-s.replaced, s.replaced > 0
	switch {
	case replaced && before < s.replaced:
		s.mu.Unlock()
		return true
	case replaced && since < s.pause:
		s.mu.Unlock()
		return false
	case since > 2*longestReplace:
		s.pause = 0
	}
	s.replaced, s.pause = max(1, now), min(max(firstReplace, 2*s.pause), longestReplace)
	s.mu.Unlock()
	s.abandon(before)
	s.messages.demoted()
	return true
}

// Replaced returns when Replace last replaced connections; 0: never.
func (s *Server) Replaced() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}

// abandon takes the connections for requests that were made before a time out of use.
func (s *Server) abandon(before time.Duration) {
	for _, l := range s.lines() {
		l.Abandon(before)
	}
}

// renewed is called for each batch of renewals.
func (s *Server) renewed(ctx context.Context, requests []Request, answers []Answer) {
	if s.node.Renewed != nil {
		s.node.Renewed(ctx, requests, answers)
	}
}

// Renewals is called for each new lease. The connection is there before the first renewal.
func (s *Server) Renewals(string) Renewals {
	s.renewals.line.Prepare()
	return s.renewals
}

// Messages returns the messages about all names.
func (s *Server) Messages(string) Messages { return s.messages }

// Subscription returns the subscription of the server.
func (s *Server) Subscription() *Subscription { return s.messages }

// Address returns that in the options.
func (s *Server) Address() string { return s.addr }

// strays reports whether a connection leads to a server at another address.
func (s *Server) strays(from string) bool {
	return s.messages.strays(from) || slices.ContainsFunc(s.lines(), func(l *conn.Line) bool { return l.Strays(from) })
}

// follow moves all connections to the primary at an address. Then everything that the old one
// may have granted is checked at the new one.
func (s *Server) follow(to string) {
	s.cfg.Logger.Info("primary changed", "address", to)
	for _, l := range s.lines() {
		l.Follow(to)
	}
	if s.messages.strays(to) {
		s.messages.demoted()
	}
	s.cfg.Moved()
}

func (s *Server) lines() []*conn.Line { return []*conn.Line{s.calls, s.renewals.line, s.large} }

// Close ends all connections.
func (s *Server) Close() {
	s.lookout.close()
	s.messages.close()
	s.idle.Stop()
	for _, l := range s.lines() {
		l.Close()
	}
	s.cfg.Sentinels.Close()
}
