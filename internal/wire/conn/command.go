package conn

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Command is sent by a Line. The caller may send it several times, one after the other.
type Command struct {
	Args      []any // strings, pointers to strings, and numbers
	Named     bool  // The reply repeats the id of the command, which is sent as the last argument.
	Asking    bool  // ASKING is sent before the command.
	Grants    bool  // The command is not sent while Options.Refusal returns an error.
	Stamp     *Stamp
	KeepStamp bool // A later try leaves the Stamp as it is.

	// ReplicaTimeout limits the wait for replicas that acknowledge the write. With 0, no replica is needed. MarkKey is
	// for a script that may write nothing. It is written after the script, because WAIT asks the replicas only about
	// writes of the connection.
	ReplicaTimeout time.Duration
	MarkKey        string
}

// Plain returns a command whose reply contains no id.
func Plain(args ...any) Command { return Command{Args: args} }

// proof is a command that only returns its id. As no other reply contains that id, the reply shows that all replies
// before it belong to their commands.
var proof = Command{Args: []any{"eval", "return {ARGV[1]}", 0}, Named: true}

// An Answer is the result of a command.
type Answer struct {
	Value any
	Err   error
}

// A Stamp is the time, by Options.Clock, just before a command was sent.
type Stamp struct{ at atomic.Int64 }

// At returns the time of a command that was answered.
func (s *Stamp) At() time.Duration { return time.Duration(s.at.Load()) }

func (c *Command) stampAt(now time.Duration) {
	switch {
	case c.Stamp == nil:
	case c.KeepStamp:
		c.Stamp.at.CompareAndSwap(0, int64(max(now, 1)))
	default:
		c.Stamp.at.Store(int64(now))
	}
}

// These errors begin with the name of the package that returns them to users.
var (
	// ErrUnknown says that a command was sent and not answered.
	ErrUnknown = errors.New("lockcore: outcome unknown")

	// ErrClosed says that the connections were closed.
	ErrClosed = errors.New("lockcore: client closed")

	// ErrWrongKind says that a key has another type, for example because it belongs to a lock of another kind.
	ErrWrongKind = errors.New("lockcore: name is in use by another kind of lock, or by another program")

	// ErrNotReplicated says that a command was applied, and that too few replicas acknowledged it in time.
	ErrNotReplicated = errors.New("lockcore: not replicated")
)

// An UnsentError is the reason why a command was never sent.
type UnsentError struct{ Err error }

func (e *UnsentError) Error() string { return fmt.Sprintf("lockcore: no connection: %v", e.Err) }

func (e *UnsentError) Unwrap() error { return e.Err }

// A NoAnswerError is the error of a command that was not answered within its timeout.
type NoAnswerError struct{ Within time.Duration }

func (e *NoAnswerError) Error() string { return fmt.Sprintf("lockcore: no answer within %s", e.Within) }

// Timeout reports true, as for a net.Error.
func (e *NoAnswerError) Timeout() bool { return true }

// A Refusal is the server's error without the text around it, see PlainRefusal.
type Refusal struct{ Text string } //nolint:errname // an answer of the server, not a failure

func (e *Refusal) Error() string { return e.Text }

// RedisError makes a Refusal a redis.Error.
func (e *Refusal) RedisError() {}

// HasCode reports whether the server refused with one of these codes. Some servers put ERR before each code.
func HasCode(err error, codes ...string) bool {
	refused, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc(codes, func(code string) bool {
		return strings.HasPrefix(strings.TrimPrefix(refused.Error(), "ERR "), code)
	})
}

// scriptPlace matches the position in a script that the server puts before an error. Redis 6.2 does this for each
// error, later versions do it for an error that the script raises again. miniredis adds a trace.
var scriptPlace = regexp.MustCompile(`^(?:ERR )?(?:Error (?:running|compiling) script \(.*?\): )?(?:(?:@?user_script)?: ?\d+: )+-?`)

// scriptHash matches the script and the line that Redis 7 puts after the refusal of a command in a script.
var scriptHash = regexp.MustCompile(` script: [0-9a-f]+, on @user_script:\d+\.$`)

var errorCode = regexp.MustCompile(`^[A-Z]{2,} `)

// PlainRefusal returns the error with the relevant code at the beginning, and without the place in a script. Redis
// 6.2 wraps the refusal of a command in a script. A server that requires a password may report the length of the
// request instead of NOAUTH.
func PlainRefusal(err error) error {
	refused, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	text := refused.Error()
	inner := scriptHash.ReplaceAllString(strings.TrimSpace(text[len(scriptPlace.FindString(text)):]), "")
	switch {
	case strings.HasPrefix(text, "ERR Protocol error: unauthenticated "):
		return &Refusal{"NOAUTH the server requires a password, and none was given: " + strings.TrimPrefix(text, "ERR ")}
	case strings.HasPrefix(strings.TrimPrefix(inner, "ERR "), "The user executing the script can't "), // Redis 7.0
		strings.HasPrefix(strings.TrimPrefix(inner, "ERR "), "ACL failure in script: "): // Redis 7.2, Valkey
		return &Refusal{"NOPERM " + strings.TrimPrefix(inner, "ERR ")}
	case strings.HasPrefix(inner, "WRONGTYPE "):
		return errors.Join(ErrWrongKind, &Refusal{inner})
	case inner != text && errorCode.MatchString(inner):
		return &Refusal{inner}
	}
	return err
}
