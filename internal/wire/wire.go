package wire

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// A Wire connects a Client to the servers of all its names. The packages above it name no
// server: each request, stream and subscription belongs to a name.
type Wire interface {
	// Send sends a request to the server of the name and waits for the answer, until ctx ends.
	// The timeout is that of everything, a dial included. OutcomeOf interprets the error.
	Send(ctx context.Context, name string, r Request, timeout time.Duration) (any, error)

	// Renewals returns the stream of a name, with a connection that Send does not use. Names whose
	// requests may share a batch have the same stream.
	Renewals(name string) Renewals

	// Messages returns the messages about a name.
	Messages(name string) Messages

	// Scan searches the keys of all servers. It returns when all of them have been searched, or
	// with the errors of those that were not.
	Scan(ctx context.Context, s Scan) error

	// Close aborts unfinished requests, and ends all connections and goroutines.
	Close()
}

// Renewals are a stream of batches. The dynamic type is comparable.
type Renewals interface {
	// Send sends a batch and waits for its answers until ctx ends, which has a deadline.
	Send(ctx context.Context, requests []Request) []Answer
}

// Messages are the messages about a name. They are hints: each one makes a caller check, and
// scripts decide.
type Messages interface {
	// Start subscribes this process to the messages, until stop is called. It waits for the
	// subscription for at most two seconds. Without messages, a waiter is slow but correct.
	Start(ctx context.Context) (stop func())
	// Up reports whether messages arrive now.
	Up() bool
	// Watch calls nudge after a message arrived on a channel, and whenever messages may have
	// been missed. It starts the messages. nudge must not block or use the Messages.
	Watch(channel string, nudge func(message string)) (stop func())
}

// Config contains what a Wire needs from the package above. All fields but Sharded, Sentinels, History
// and Replicas are required.
// No function may block.
type Config struct {
	// Channel returns the channel on which this process receives messages about a name. At one
	// server, it is the same for all names.
	Channel func(name string) string
	// Sharded says that messages are sharded, as in a cluster: each channel has the hash tag of
	// its name.
	Sharded bool

	// Sentinels name the server; nil: the options do. The Wire closes them.
	Sentinels *Sentinels

	// History returns the History of a server; nil: it is not checked. tag returns a name that the server has, "" if it
	// has all, and false if it has none.
	History func(server string, tag func() (string, bool)) History
	// Replicas is how many replicas must acknowledge a request that is Replicated.
	Replicas int

	Logger logr.Logger          // the zero value discards
	Now    func() time.Duration // elapsed time

	// Failed is called for each request of Send whose outcome is Unreplicated, Refused, Moved,
	// Unsent or Unknown.
	Failed func(Request, error)
	// Message is called with each message on Channel.
	Message func(payload string)
	// Holds reports whether a lease is held.
	Holds func() bool
	// Moved is called when all names have moved to another primary, which may lack what the old
	// one has granted lately.
	Moved func()
	// Relocated is called when names have moved between the servers of a cluster. moved reports
	// whether a name has.
	Relocated func(moved func(name string) bool)
	// Missed is called when messages about a name may have been missed, "" for all names. It must not use the Wire.
	Missed func(name string)
}

// A History is what is known about the data of a server, which may have lost some.
type History interface {
	// Check is called on each new connection for requests, before its first request. ask sends one on it.
	Check(ask func(Request) (any, error)) error
	// Refusal returns a *DelayError if nothing may be granted now.
	Refusal() error
}
