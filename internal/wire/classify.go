package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
)

// Only this file interprets the answer to a request. OutcomeOf says whether the request was
// applied. MayRetry and MayRetryLater say whether another try may help.

// An Outcome says whether a request was applied.
type Outcome int

// The outcomes.
const (
	Applied      Outcome = iota
	Unreplicated         // applied, and too few replicas have acknowledged it
	Refused              // by the server; a script may have written before that, see MayBeApplied
	Moved                // surely not applied: the name is at another server
	Unsent               // surely not applied: there was no connection, or its setup was refused
	Ended                // surely not applied: the caller or Close ended it before it was sent, or see DelayError
	Unknown              // sent and not answered
)

// OutcomeOf returns the outcome of a request with this error.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, ErrUnknown), noQuorum(err) != nil:
		return Unknown
	case errors.Is(err, ErrNotReplicated):
		return Unreplicated
	case IsUnsent(err):
		return Unsent
	case HasCode(err, "MOVED", "ASK"):
		return Moved
	case IsRefused(err):
		return Refused
	}
	return Ended
}

// Errors that callers compare. Like all errors of this package, they begin with the name of
// the package that returns them to users.
var (
	// ErrUnknown says that a request was sent and not answered.
	ErrUnknown = errors.New("lockcore: outcome unknown")

	// ErrClosed says that the connections were closed.
	ErrClosed = errors.New("lockcore: client closed")
)

// unsentError is the reason why a request was never sent.
type unsentError struct{ err error }

func (e *unsentError) Error() string {
	if errors.Is(e.err, redis.Nil) { // an answer of a Sentinel, which go-redis calls unreachable
		return "lockcore: no connection: the Sentinels know no primary of the name in MasterName"
	}
	return fmt.Sprintf("lockcore: no connection: %v", e.err)
}

func (e *unsentError) Unwrap() error { return e.err }

// noAnswerError is the error of a request that was not answered within its timeout.
type noAnswerError struct{ within time.Duration }

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("lockcore: no answer within %s", e.within)
}

// NoAnswer is the cause of a context that ends when a request was not answered in time.
func NoAnswer(within time.Duration) error { return &noAnswerError{within} }

// Timeout reports true, as for a net.Error.
func (e *noAnswerError) Timeout() bool { return true }

// movedError is the redirection of a node of a cluster. The next try goes to the named node.
type movedError struct{ err error }

func (e *movedError) Error() string { return fmt.Sprintf("lockcore: the name is moving: %v", e.err) }

func (e *movedError) Unwrap() error { return e.err }

// refusal is a server's refusal without the text that the server put around it.
type refusal struct{ text string }

func (e *refusal) Error() string { return e.text }

// RedisError makes it a redis.Error, like the original.
func (e *refusal) RedisError() {}

// scriptPlace matches the position in a script that the server puts before an error. Redis 6.2
// does this for each error, later versions only if the script itself raises the error again.
var scriptPlace = regexp.MustCompile(`^(?:ERR )?(?:Error running script \(.*?\): )?(?:@?user_script: ?\d+: )+-?`)

// errorCode matches the code at the beginning of a refusal.
var errorCode = regexp.MustCompile(`^[A-Z]{2,} `)

// plainRefusal returns the error with the relevant code at the beginning. Redis 6.2 wraps
// the refusal of a command in a script. A server that requires a password may report the
// length of the request instead.
func plainRefusal(err error) error {
	var refused redis.Error
	if !errors.As(err, &refused) {
		return err
	}
	said := refused.Error()
	inner := strings.TrimSpace(said[len(scriptPlace.FindString(said)):])
	switch {
	case strings.HasPrefix(said, "ERR Protocol error: unauthenticated "):
		return &refusal{"NOAUTH the server requires a password, and none was given: " + strings.TrimPrefix(said, "ERR ")}
	case strings.HasPrefix(strings.TrimPrefix(inner, "ERR "), "The user executing the script can't "), // Redis 7.0
		strings.HasPrefix(strings.TrimPrefix(inner, "ERR "), "ACL failure in script: "): // Redis 7.2, Valkey
		return &refusal{"NOPERM " + strings.TrimPrefix(inner, "ERR ")}
	case inner != said && errorCode.MatchString(inner):
		return &refusal{inner}
	}
	return err
}

// NeedsOperator reports whether a request fails until an operator changes something. Examples are a
// missing permission, an untrusted certificate, full memory, an unexpected reply, and one shard of a
// cluster in place of a single server. The request was not applied, or its reply was unexpected.
// readiness.State uses IsTemporary, too.
func NeedsOperator(err error) bool {
	if _, odd := errors.AsType[*ReplyError](err); odd {
		return true
	}
	if few := noQuorum(err); few != nil {
		return few.Permanent
	}
	outcome := OutcomeOf(err)
	return (outcome == Unreplicated || outcome == Refused || outcome == Moved || outcome == Unsent) && !IsTemporary(err)
}

// Log writes a failure: at logr's error level if it needs an operator, otherwise as
// information.
func Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	if NeedsOperator(err) {
		log.Error(err, message, keysAndValues...)
		return
	}
	log.Info(message, append(keysAndValues, "err", err)...)
}

// IsRefused reports whether the server answered with an error.
func IsRefused(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}

// IsUnsent reports whether nothing was sent.
func IsUnsent(err error) bool {
	var unsent *unsentError
	return errors.As(err, &unsent)
}

// IsTransient reports whether the server refuses only for now, for example while it loads
// its data, and has done nothing.
func IsTransient(err error) bool {
	if _, redirected := errors.AsType[*movedError](err); redirected {
		return true
	}
	return HasCode(err, "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "max number of clients")
}

// IsExhausted reports whether the server has too little memory, disk or replicas, and has done
// nothing: it refuses the first write of a script or none. The duration is unknown.
func IsExhausted(err error) bool { return HasCode(err, "OOM", "MISCONF", "NOREPLICAS") }

// isReplica reports whether the server may have refused because it is a replica. A replica of a
// cluster answers MOVED, and so does a primary that does not have the slot. Without a slot table,
// only a new connection shows which of them it is, see greeting.
func (r role) isReplica(err error) bool {
	return HasCode(err, "READONLY") || r == primary && HasCode(err, "MOVED")
}

// isCutOff reports whether the server misses replicas. Another one may have
// been promoted without its knowledge. A cluster asks other nodes, see cluster.assess.
func (r role) isCutOff(err error) bool {
	return r == primary && (HasCode(err, "NOREPLICAS") || errors.Is(err, ErrNotReplicated))
}

// HasCode reports whether the server refused with one of these codes.
func HasCode(err error, codes ...string) bool {
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

func isNoScript(err error) bool { return HasCode(err, "NOSCRIPT") }

// MayBeApplied reports whether the failed request may have changed something. A script
// that fails after a write is not rolled back.
func MayBeApplied(err error) bool {
	switch OutcomeOf(err) {
	case Unknown, Unreplicated:
		return true
	case Refused:
		return !IsTransient(err) && !IsExhausted(err)
	default:
		return false
	}
}

// MayRetry reports whether sending the same request again may help.
func MayRetry(err error) bool {
	if few := noQuorum(err); few != nil {
		return !few.Permanent
	}
	return !IsPermanent(err) && (errors.Is(err, ErrUnknown) || IsUnsent(err) || IsTransient(err))
}

// IsPermanent reports whether no connection can be made before an operator changes
// something.
func IsPermanent(err error) bool {
	if few := noQuorum(err); few != nil {
		return few.Permanent
	}
	if !IsUnsent(err) {
		return false
	}
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
		plain        tls.RecordHeaderError
		alert        *net.OpError
	)
	switch {
	case errors.Is(err, errNoHistory):
		return true
	case IsRefused(err):
		return !IsTransient(err) && !IsExhausted(err) // the password, the rights, the number of the database
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &plain):
		return true
	case errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error"):
		return !strings.Contains(alert.Error(), "internal error") // a TLS alert
	}
	return false
}

// MayRetryLater reports whether sending the same request again may help a caller that
// can wait until the server has enough memory, disk space or replicas.
func MayRetryLater(err error) bool { return MayRetry(err) || IsExhausted(err) }

// IsTemporary reports whether a later call may succeed without an operator's help.
func IsTemporary(err error) bool {
	if errors.Is(err, ErrClosed) {
		return false
	}
	// The replicas may be back soon. The server refuses WAIT if the user may not use it, and also if
	// the server is demoted meanwhile.
	_, delayed := errors.AsType[*DelayError](err)
	replicas := errors.Is(err, ErrNotReplicated) && (!IsRefused(err) || HasCode(err, "UNBLOCKED"))
	return MayRetry(err) || replicas || delayed
}
