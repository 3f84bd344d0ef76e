package wire

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// A Wire connects a Client to the servers of all its names. The packages above name no server: each request, stream and
// subscription belongs to a name.
type Wire interface {
	// Send sends a request to the server of the name and waits for the answer, until ctx ends. The timeout includes a
	// dial. OutcomeOf interprets the error.
	Send(ctx context.Context, name string, r Request, timeout time.Duration) (any, error)

	// Renewals returns the stream of a name, whose connection Send does not use. Names with the same stream may share a
	// batch.
	Renewals(name string) Renewals

	// Messages returns the messages about a name.
	Messages(name string) Messages

	// Scan searches the keys of all servers. The error contains the errors of the servers that were not searched to the
	// end.
	Scan(ctx context.Context, s Scan) error

	// Close aborts unfinished requests, and ends all connections and goroutines.
	Close()
}

// Renewals are a stream of batches. The dynamic type is comparable.
type Renewals interface {
	// Send sends a batch and waits for its answers until ctx ends. ctx must have a deadline.
	Send(ctx context.Context, requests []Request) []Answer
}

// Messages are the messages about a name. They are hints: each message makes a caller check, and scripts decide.
type Messages interface {
	// Start subscribes this process to the messages until stop is called. It waits for the subscription for at most two
	// seconds. Without messages, a waiter is slow but correct.
	Start(ctx context.Context) (stop func())
	// Up reports whether messages arrive now.
	Up() bool
	// Watch calls nudge after a message arrived on a channel, and whenever messages may have been missed. It starts the
	// messages. nudge must not block or use the Messages.
	Watch(channel string, nudge func(message string)) (stop func())
}

// A Scan searches the keys of all servers.
type Scan struct {
	Match  string        // glob pattern of Redis
	Each   time.Duration // timeout of one request
	Within time.Duration // time limit of one request with its repetitions

	// Found receives the keys of each batch, and about how many keys the server has searched for it. It is called on
	// the goroutine of Scan. A key may be found several times.
	Found func(keys []string, searched int)
}

// Config configures a Wire. Sharded, Sentinels, History and Replicas are optional. No function may block.
type Config struct {
	// Channel returns the channel on which this process receives messages about a name. At one server, it is the same
	// for all names. Sharded messages are for a cluster: each channel has the hash tag of its name.
	Channel func(name string) string
	Sharded bool

	Sentinels *Sentinels // name the server in place of its address; the Wire closes them

	// History returns the History of the server at an address. tag returns a name of that server: "" if the server has
	// all names, and false if it has no name.
	History  func(server string, tag func() (string, bool)) History
	Replicas int // acknowledgments that a Replicated request needs

	Logger logr.Logger          // the zero value discards
	Now    func() time.Duration // elapsed time

	// Failed is called for each request of Send whose outcome is Unreplicated, Refused, Moved, Unsent or Unknown.
	Failed func(Request, error)
	// Message is called with each message on Channel.
	Message func(payload string)
	// Missed is called when messages about a name may have been missed, with "" for all names. It must not use the
	// Wire.
	Missed func(name string)
	// Holds reports whether a lease is held.
	Holds func() bool
	// Moved is called when all names have moved to another primary, which may lack recent grants of the former one.
	Moved func()
	// Relocated is called when names have moved between the servers of a cluster. moved reports whether a name has.
	Relocated func(moved func(name string) bool)
}

// A History notices that a server may have lost data, and then forbids grants for a time.
type History interface {
	// Check is called on each new connection for requests, before its first request. ask sends a request on it.
	Check(ask func(Request) (any, error)) error
	// Refusal returns a *DelayError if nothing may be granted now.
	Refusal() error
}

// A Node tells a Server of a cluster its names, and receives its events. The zero value is for a Server that has all
// names.
type Node struct {
	// Tag returns one of the Server's names, and false if it has none.
	Tag func() (string, bool)
	// Renewed is called with each batch of renewals.
	Renewed func(ctx context.Context, requests []Request, answers []Answer)
	// Refused is called with each failed answer to a request or a subscription. sent is not before the request was
	// sent. Refused must not block.
	Refused func(sent time.Duration, err error)
	// Failed is called when the subscription has failed, or one of its channels has moved.
	Failed func()
}

// orWhole returns the Node with functions that may be called if it is the zero value.
func (n Node) orWhole() Node {
	if n.Tag != nil {
		return n
	}
	return Node{
		Tag:     func() (string, bool) { return "", true },
		Renewed: func(context.Context, []Request, []Answer) {},
		Refused: func(time.Duration, error) {},
		Failed:  func() {},
	}
}
