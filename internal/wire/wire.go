package wire

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
)

// A Wire reaches the servers of all names of a Client. The packages above it name no
// server. A topology of several servers finds the name in the hash tag of the keys.
type Wire interface {
	// Send sends a request to the server of its name and waits for the answer, for so
	// long or until ctx ends, which breaks the request off. See OutcomeOf for what an
	// error says.
	Send(ctx context.Context, r Request, timeout time.Duration) (any, error)

	// Renewals returns the stream of a name: connections beside those of Send. Names
	// whose requests may share a batch have the same one.
	Renewals(name string) *Stream

	// Messages returns the subscription on which messages about a name arrive.
	Messages(name string) *Subscription

	// Close breaks off what is under way, and ends all connections and goroutines.
	Close()
}

// Config is what a Wire needs of the package above. All fields are required. No function
// may block.
type Config struct {
	Channel string               // on which this process hears messages to itself
	Logger  logr.Logger          // the zero value discards
	Now     func() time.Duration // elapsed time
	Width   int                  // how many batches of a Stream are under way at most

	// Failed is called for each request of Send that was sent or was to be sent, and had
	// no good answer.
	Failed func(Request, error)
	// Message is called with each message on Channel.
	Message func(payload string)
	// Missed is called when messages may have been missed.
	Missed func()
	// Silence is how long a subscription may be silent before it is pinged.
	Silence func() time.Duration
}

// A Target is where a Wire connects to.
type Target struct {
	server redis.Options
}

// TargetOf returns the servers that rdb is for. rdb itself is not used. The error is an
// *UnsupportedError.
func TargetOf(rdb redis.UniversalClient) (*Target, error) {
	opt, err := ownOptions(rdb)
	if err != nil {
		return nil, err
	}
	return &Target{*opt}, nil
}

// Connect returns the Wire to the target. It makes connections when they are first used.
func (t *Target) Connect(cfg Config) Wire { return newServer(t.server, cfg) }
