package wire

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A Server is the Wire of one Redis server. The server has all names, or the names of a Node. With Sentinel it is the
// current primary.
type Server struct {
	*connections
	addr    string
	node    Node
	primary *primaryWatch // nil unless Sentinels name the primary
	stream  *stream
	sources sources
	whole   atomic.Bool // refuseShard found no other primaries
}

// checkPrimary reads the answer to HELLO. A replica refuses every script, and its data may be old. After a failover,
// a Sentinel or a name server may still return its address.
func checkPrimary(hello map[string]any) error {
	if hello["role"] == "replica" {
		return &conn.Refusal{Text: "READONLY the server is a replica"}
	}
	return nil
}

// NewServer returns the Wire of the server in these options. It makes connections when they are first used.
func NewServer(opt redis.Options, node Node, cfg Config) *Server {
	s := &Server{connections: &connections{cfg: cfg}, addr: opt.Addr, node: node.orWhole()}
	o := conn.Options{
		Redis: opt, Check: checkPrimary, Replicas: cfg.Replicas, Began: time.Now(), Clock: cfg.Now, Failed: s.failed,
	}
	if cfg.Sentinels != nil {
		o.Where = func(ctx context.Context) ([]string, error) {
			_, addrs, err := cfg.Sentinels.Primary(ctx)
			return addrs, err
		}
	}
	s.renewals = conn.NewLine(o)
	s.stream = &stream{line: s.renewals, sources: &s.sources, sharded: cfg.Sharded, node: s.node}
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
	s.idle = time.AfterFunc(largeIdle, func() { s.large.Retire(s.large.Now()) })
	s.idle.Stop() // until the first use
	o.Replaced = func() { s.messages.test.reconnected() }
	s.calls = conn.NewLine(o)
	s.renewals.Borrow(s.calls)
	o.Ready = nil
	s.messages = newSubscription(o, s.calls, s.node, cfg)
	s.primary = newPrimaryWatch(s.connections, o)
	return s
}

// Send sends a request. After the answer MOVED, the connection is replaced. If the next answer is MOVED, too, the
// server was not demoted: it does not have the name's slot.
func (s *Server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	confirms, moves := r.Grants && s.primary != nil, 0
	if confirms {
		moves = s.primary.refresh()
	}
	l := s.calls
	if r.large {
		l = s.large
		s.idle.Stop()
		defer s.idle.Reset(largeIdle)
	}
	deadline := l.Now() + timeout
	var a Answer
	for lacks, moved := false, false; ; {
		command, hasSource := s.sources.command(r, lacks)
		a = l.Do(ctx, command, deadline-l.Now())
		lacks = s.sources.lacks(r, hasSource, a.Err)
		if l.Now() >= deadline || !lacks && (moved || s.cfg.Sharded || !HasCode(a.Err, "MOVED")) {
			break
		}
		moved = moved || !lacks
	}
	if confirms && a.Err == nil && r.granted(a.Value) {
		if err := s.primary.confirm(ctx, moves, (deadline-l.Now())/2); err != nil {
			a = Answer{Err: errors.Join(ErrUnknown, err)}
		} else {
			s.primary.start()
		}
	}
	if outcome := OutcomeOf(a.Err); outcome != Applied && outcome != Ended {
		s.cfg.Failed(r, a.Err)
	}
	return a.Value, a.Err
}

// failed is called with each error of a sent request, and the time when it was sent. If the server is not the primary
// any more, the connections of that time are replaced, because the address may lead to the new primary.
func (s *Server) failed(sent time.Duration, err error) {
	switch {
	case HasCode(err, "READONLY"), !s.cfg.Sharded && HasCode(err, "MOVED"):
		// The server may be a replica. A replica of a cluster answers MOVED, and so does a primary without the slot. If
		// there is no slot table, only a new connection tells them apart, see checkPrimary.
		s.retire(sent)
		s.messages.demoted()
	case !s.cfg.Sharded && (HasCode(err, "NOREPLICAS") || errors.Is(err, ErrNotReplicated)):
		// Another server may have been promoted. A cluster asks other nodes, see cluster.assess.
		s.Replace(sent)
	default:
		s.node.Refused(sent, err)
	}
}

// Renewals is called for each new lease. It makes the connection before the first renewal.
func (s *Server) Renewals(string) Renewals {
	s.renewals.Prepare()
	return s.stream
}

// Messages returns the messages about all names.
func (s *Server) Messages(string) Messages { return s.messages }

// Subscription returns the subscription of the server.
func (s *Server) Subscription() *Subscription { return s.messages }

// Address returns the address in the options.
func (s *Server) Address() string { return s.addr }

// Close ends all connections.
func (s *Server) Close() {
	s.primary.close()
	s.close()
	s.cfg.Sentinels.Close()
}
