package wire

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is the Wire of one Redis server: all names are there. With Sentinel this is the
// present primary: each dial asks a Sentinel for it, see ownOptions.
type server struct {
	cfg      Config
	requests *dispatcher
	renewals *Stream
	messages *Subscription
}

func newServer(opt redis.Options, cfg Config) *server {
	s := &server{cfg: cfg}
	s.requests = newDispatcher(opt, s.failed)
	s.messages = newSubscription(opt, s.requests, cfg)
	for _, c := range s.requests.all {
		c.replaced = s.messages.retestNow
	}
	s.renewals = newStream(opt, cfg.Width, s.messages.demoted)
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

func (s *server) Renewals(string) *Stream { return s.renewals }

func (s *server) Messages(string) *Subscription { return s.messages }

func (s *server) Close() {
	s.messages.close()
	s.renewals.close()
	s.requests.close()
}
