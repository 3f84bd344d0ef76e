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
	script *Script // nil for Command and Keyed, and for a script whose source is sent
	large  bool    // see Large

	granted func(answer any) bool // see Granting

	Attached any // of a Wire that is made of others; this package does not use it
}

// anyCommand runs the command in its arguments, so that the reply names the request. A refusal names the command.
var anyCommand = Naming(`local a = redis.pcall(unpack(ARGV))
if type(a) == 'table' and a.err then
  a.err = a.err .. ' (' .. ARGV[1] .. ')'
end
return a`)

// Command returns a request that sends a command. With a key, see On, it is sent to the server that has the key.
func Command(args ...any) Request {
	return Request{name: fmt.Sprint(args[0]), Command: conn.Command{Args: append([]any{"eval", anyCommand, 0}, args...), Named: true}}
}

// On returns a Command for a key, or a sharded channel, that is among its arguments.
func (r Request) On(key any) Request {
	r.Args = slices.Insert(slices.Clone(r.Args), 3, key)
	r.Args[2] = 1
	return r
}

// Replicated returns the request for an answer that counts only if Config.Replicas replicas have
// acknowledged the write within the time. Otherwise, the error is ErrNotReplicated and the
// answer is returned, too: the server has applied the request.
func (r Request) Replicated(within time.Duration) Request {
	r.Within = within
	return r
}

// Marked returns the request for a script that writes nothing if an earlier request has
// done its work. A server asks replicas only for the writes of the connection, so a batch
// with the request also writes the key.
func (r Request) Marked(key string) Request {
	r.Mark = key
	return r
}

// Granting returns the request as one that may grant a lease, if granted returns true for the answer. It is not sent while
// Config.History forbids that. The error is then a *DelayError. Behind Sentinels, a grant counts only if they name
// the same primary.
func (r Request) Granting(granted func(answer any) bool) Request {
	r.Grants, r.granted = true, granted
	return r
}

// Stamped returns the request for one call of Send, which notes when it is sent.
func (r Request) Stamped(s *Stamp) Request {
	r.Stamp = s
	return r
}

// A Stamp is the time, by Config.Now, just before a request was sent. If it was sent again, because the
// server did not know its script or did not have its name, it is that of the last time, unless First
// is set.
type Stamp = conn.Stamp

// Large returns the request as one whose answer may be large. It uses a connection of its own, so that no lock waits
// until the answer has arrived.
func (r Request) Large() Request {
	r.large = true
	return r
}

// IsScript reports whether the request runs a script.
func (r Request) IsScript() bool { return r.script != nil }

// Name returns the name of the script or command, for metrics and errors.
func (r Request) Name() string {
	return r.name
}

// OddReply returns the error for a reply that the script or command never gives.
func (r Request) OddReply(reply any) error {
	return &ReplyError{Script: r.Name(), Reply: shape(reply)}
}

// WithSource returns a script call that sends the source each time, so that the right to do that is
// needed, too.
func (r Request) WithSource() Request {
	if r.script != nil {
		r.Args = r.withSource()
		r.script = nil
	}
	return r
}

// withSource returns the request with the source of its script instead of the SHA, for a
// server that does not know the script. The arguments are shared, not changed.
func (r Request) withSource() []any {
	args := append([]any(nil), r.Args...)
	args[0], args[1] = "eval", r.script.sent
	return args
}

// An Answer is the result of a request. OutcomeOf interprets its error.
type Answer = conn.Answer

// ReplyError reports a reply that a script never gives. The cause is an unexpected key or
// server.
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

// textOf returns an argument that is a text or a pointer to one.
func textOf(arg any) string {
	if text, ok := arg.(*string); ok {
		return *text
	}
	return Text(arg)
}

// Text returns a reply that is a string, and "" for other replies.
func Text(reply any) string {
	s, _ := reply.(string)
	return s
}

// Instant reads Unix milliseconds, as scripts return them; empty is the zero time.
func Instant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms).UTC(), err
}

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
