package conn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options are what a Line needs. A Dialer uses Redis, Where, Check and Ready only.
type Options struct {
	Redis redis.Options // those of a redis.Client

	// Where returns the addresses to connect to, one after the other until one is ready. If it is nil, the address in
	// Redis is used, and a connection leads to its remote address.
	Where func(ctx context.Context) ([]string, error)

	// Check judges the answer to HELLO. Ready is the last step of a setup, and sends commands with ask. Both may be nil.
	Check func(hello map[string]any) error
	Ready func(ask func(...Command) ([]Answer, error)) error

	Replicas int                  // must acknowledge a command that has Within
	Began    time.Time            // of Now; the default is the time of the first use
	Ticks    func() time.Duration // of a Stamp; the default is Now
	Refusal  func() error         // why a command that Grants must not be sent now; may be nil

	Refused  func(sent time.Duration, err error) // called with each error of a command that was sent; may be nil
	Replaced func()                              // called when a Pipe has replaced an earlier one; may be nil
}

// Now is the time of a Line and its Pipes.
func (o *Options) Now() time.Duration { return time.Since(o.Began) }
