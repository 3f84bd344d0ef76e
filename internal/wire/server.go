package wire

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Wire of one Redis server: all names are there. With Sentinel this is the
// present primary: each dial asks a Sentinel for it, see ownOptions.
type server struct {
	addr     string
	cfg      Config
	requests *dispatcher
	renewals *Stream
	messages *Subscription
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{addr: opt.Addr, cfg: cfg}
	s.requests = newDispatcher(opt, s.failed)
	s.messages = newSubscription(opt, s.requests, cfg)
	for _, c := range s.requests.all {
		c.replaced = s.messages.retestNow
	}
	s.renewals = newStream(opt, cfg.Width)
	s.renewals.answered = s.answered
	return s
}

func (s *server) Send(ctx context.Context, _ string, r Request, timeout time.Duration) (any, error) {
	return s.requests.do(ctx, r, timeout)
}

// failed is called for each request that failed.
func (s *server) failed(r Request, err error) {
	s.cfg.Failed(r, err)
	if isReplica(err) {
		s.messages.demoted()
	}
}

// answered is called for each batch of renewals.
func (s *server) answered(_ context.Context, _ []Request, answers []Answer) {
	if slices.ContainsFunc(answers, func(a Answer) bool { return isReplica(a.Err) }) {
		s.messages.demoted()
	}
}

func (s *server) Renewals(string) *Stream { return s.renewals }

func (s *server) Messages(string) Messages { return s.messages }

func (s *server) Close() {
	s.messages.close()
	s.renewals.close()
	s.requests.close()
}
