package conn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Options configure a Line. A Dialer uses Redis, Where, Check and Ready only.
type Options struct {
	Redis redis.Options // options of a redis.Client

	// Where returns the addresses to try, in their order. Without it, Redis.Addr is used, and a connection has the
	// address of the remote end.
	Where func(ctx context.Context) ([]string, error)

	// Check judges the reply to HELLO. Ready is the last step of a setup and sends commands with ask. Both are
	// optional.
	Check func(hello map[string]any) error
	Ready func(ask func(...Command) ([]Answer, error)) error

	Replicas int                  // acknowledgments that a command with ReplicaTimeout needs
	Began    time.Time            // origin of Now; by default the time of construction
	Clock    func() time.Duration // clock of stamps; by default Now
	Refusal  func() error         // optional reason not to send a command that Grants

	Refused  func(sent time.Duration, err error) // optional observer of the errors of sent commands
	Replaced func()                              // optional observer of later connections than the first
}

// Now is the clock of a Line.
func (o *Options) Now() time.Duration { return time.Since(o.Began) }
