package wire

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A Request is a script call, or a command, on one name. It may be sent several times.
type Request struct {
	conn.Command
	name   string
	script *Script // nil unless the script is called by its SHA
	large  bool

	granted func(answer any) bool // reports whether the answer is a grant, see Granting

	Attached any // data of package several, which Server does not use
}

// anyCommand runs the command in its arguments, so that the reply repeats the id. A refusal names the command.
var anyCommand = Naming(`local a = redis.pcall(unpack(ARGV))
if type(a) == 'table' and a.err then
  a.err = a.err .. ' (' .. ARGV[1] .. ')'
end
return a`)

// Command returns a request that sends a command.
func Command(args ...any) Request {
	return Request{name: fmt.Sprint(args[0]), Command: conn.Command{Args: append([]any{"eval", anyCommand, 0}, args...), Named: true}}
}

// On returns the request as a script call with a key, so that a cluster accepts it at the server of that key or sharded
// channel. The key stays among the arguments of the command.
func (r Request) On(key any) Request {
	r.Args = slices.Insert(slices.Clone(r.Args), 3, key)
	r.Args[2] = 1
	return r
}

// Replicated returns the request for a write that Config.Replicas replicas must acknowledge within the timeout. If they
// do not, the error is ErrNotReplicated. The answer is returned, too, because the server has applied the request.
func (r Request) Replicated(timeout time.Duration) Request {
	r.ReplicaTimeout = timeout
	return r
}

// Granting returns the request for a grant of a lease. granted reports whether the answer is a grant. While
// Config.History forbids grants, the request is not sent, and the error is a *DelayError. With Sentinels, a grant
// counts only if they name the same primary.
func (r Request) Granting(granted func(answer any) bool) Request {
	r.Grants, r.granted = true, granted
	return r
}

// Stamped returns the request for one call of Send, which sets the Stamp.
func (r Request) Stamped(s *Stamp) Request {
	r.Stamp = s
	return r
}

// A Stamp is the time, by Config.Now, just before a request was sent. A repetition, because the server lacked the
// script or the name, sets it again, unless KeepStamp is set.
type Stamp = conn.Stamp

// Large returns the request for a large answer. The request uses a connection of its own, so that no lock waits until
// the answer has arrived.
func (r Request) Large() Request {
	r.large = true
	return r
}

// Call returns a request that runs the script. All keys belong to one name.
func (s *Script) Call(keys []any, argv ...any) Request {
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, "evalsha", s.sha, len(keys))
	args = append(args, keys...)
	return Request{name: s.Name, script: s, Command: conn.Command{Args: append(args, argv...), Named: true}}
}

// OddReply returns the error for a reply that the script never gives.
func (s *Script) OddReply(reply any) error {
	return &ReplyError{Script: s.Name, Reply: shape(reply)}
}

// InCluster returns the request for a cluster. Its script has one more key, which never exists. While a slot moves,
// some of its keys are at another node, and a node refuses a script if one of several keys is missing (TRYAGAIN, or ASK
// and then TRYAGAIN). So no script runs on a slot that moves. Otherwise it could see some of its keys only, or fail
// half-way when it writes a key that it has deleted before.
func (r Request) InCluster() Request {
	if r.script == nil {
		return r
	}
	r = r.WithShardedMessages()
	n, first := r.Args[2].(int), r.Args[3]
	if key, ok := first.(*string); ok {
		first = *key
	}
	r.Args[2] = n + 1
	r.Args = slices.Insert(r.Args, 3+n, any(Text(first)+":never"))
	return r
}

// WithShardedMessages returns the request with the script for a cluster.
func (r Request) WithShardedMessages() Request {
	if r.script == nil {
		return r
	}
	r.Args = slices.Clone(r.Args)
	r.Args[1] = r.script.sharded.sha
	r.script = r.script.sharded
	return r
}

// IsScript reports whether the request runs a script.
func (r Request) IsScript() bool { return r.script != nil }

// Name returns the name of the script or command, for metrics and errors.
func (r Request) Name() string { return r.name }

// OddReply returns the error for a reply that the script or command never gives.
func (r Request) OddReply(reply any) error {
	return &ReplyError{Script: r.Name(), Reply: shape(reply)}
}

// WithSource returns a script call that sends the source each time. The user needs the right to EVAL, too.
func (r Request) WithSource() Request {
	if r.script != nil {
		r.Args = slices.Clone(r.Args)
		r.Args[0], r.Args[1] = "eval", r.script.sent
		r.script = nil
	}
	return r
}

// An Answer is the result of a request. OutcomeOf interprets its error.
type Answer = conn.Answer

// Number returns the value of an answer that is a number.
func (r Request) Number(value any, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	n, ok := value.(int64)
	if !ok {
		return 0, r.OddReply(value)
	}
	return n, nil
}

// A ReplyError reports a reply that a script never gives. The cause is an unexpected key or server.
type ReplyError struct {
	Script string
	Reply  string
}

func (e *ReplyError) Error() string {
	return fmt.Sprintf("lockcore: unexpected reply to %s: %s", e.Script, e.Reply)
}

// shape describes a reply without its text, which may contain a secret.
func shape(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nothing"
	case int64:
		return strconv.FormatInt(r, 10)
	case string:
		return fmt.Sprintf("a string of %d bytes", len(r))
	case []any:
		return fmt.Sprintf("a list of %d", len(r))
	default:
		return fmt.Sprintf("a %T", reply)
	}
}

// Text returns a reply that is a string, and "" for other replies.
func Text(reply any) string {
	s, _ := reply.(string)
	return s
}

// Instant parses the Unix milliseconds in a reply. "" is the zero time.
func Instant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms).UTC(), err
}
