package wire

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
)

// A Wire reaches the servers of all names of a Client. The packages above it name no
// server: each request, stream and subscription is of a name.
type Wire interface {
	// Send sends a request to the server of the name and waits for the answer. The request
	// is abandoned when the timeout has passed or ctx ends. OutcomeOf interprets the error.
	Send(ctx context.Context, name string, r Request, timeout time.Duration) (any, error)

	// Renewals returns the stream of a name, with connections that Send does not use. Names
	// whose requests may share a batch have the same stream.
	Renewals(name string) *Stream

	// Messages returns the subscription on which messages about a name arrive.
	Messages(name string) *Subscription

	// Close aborts unfinished requests, and ends all connections and goroutines.
	Close()
}

// Config contains what a Wire needs from the package above. All fields are required. No function
// may block.
type Config struct {
	Channel string               // on which this process receives its messages
	Logger  logr.Logger          // the zero value discards
	Now     func() time.Duration // elapsed time
	Width   int                  // maximum number of batches of a Stream in flight

	// Failed is called for each request of Send whose outcome is Refused, Moved, Unsent or
	// Unknown.
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
