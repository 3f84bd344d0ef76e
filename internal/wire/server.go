package wire

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Wire of one Redis server, which has all names. With Sentinel it is the
// present primary: each dial asks a Sentinel for its address, see givenOptions.
type server struct {
	addr     string
	role     role
	cfg      Config
	requests *dispatcher
	renewals *Stream
	messages *Subscription
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{addr: opt.Addr, cfg: cfg}
	if cfg.Sharded {
		s.role = shard
	}
	s.requests = newDispatcher(opt, s.role, s.failed)
	s.messages = newSubscription(opt, s.role, s.requests, cfg)
	for _, c := range s.requests.all {
		c.replaced = s.messages.retestNow
	}
	s.renewals = newStream(opt, s.role, cfg.Width)
	s.renewals.answered = s.answered
	return s
}

// Send sends a request. After the answer MOVED, its connection is replaced. If a try on each
// connection and one on a new connection are answered MOVED, the server was not demoted: it
// does not have the name's slot.
func (s *server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	until := time.Now().Add(timeout)
	for tries := 0; ; tries++ {
		answer, err := s.requests.do(ctx, r, time.Until(until))
		if !HasCode(err, "MOVED") || tries == connections || !time.Now().Before(until) {
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
func (s *server) answered(_ context.Context, _ []Request, answers []Answer) {
	if slices.ContainsFunc(answers, func(a Answer) bool { return s.mayBeDemoted(a.Err) }) {
		s.messages.demoted()
	}
}

func (s *server) mayBeDemoted(err error) bool { return s.role.isReplica(err) || s.role.isCutOff(err) }

func (s *server) Renewals(string) *Stream { return s.renewals }

func (s *server) Messages(string) Messages { return s.messages }

func (s *server) Close() {
	s.messages.close()
	s.renewals.close()
	s.requests.close()
}
