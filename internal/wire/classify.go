package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire/conn"
)

// This file interprets the answer to a request. OutcomeOf says whether the request was
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

// Errors of package conn, which callers compare.
var (
	ErrUnknown       = conn.ErrUnknown
	ErrClosed        = conn.ErrClosed
	ErrNotReplicated = conn.ErrNotReplicated
	ErrWrongKind     = conn.ErrWrongKind
)

// NotSent is the error of a request that was not sent for this reason.
func NotSent(why error) error { return &conn.UnsentError{Err: why} }

// NoAnswer is the cause of a context that ends when a request was not answered in time.
func NoAnswer(within time.Duration) error { return &conn.NoAnswerError{Within: within} }

// ErrNoHistory says that a server does not report what a History needs.
var ErrNoHistory = errors.New("lockcore: Config.LockDelay needs a server that reports its run id and its replication id (INFO)")

// DelayError says that a request that may grant a lease was not sent, because the server may
// have lost data a short time ago.
type DelayError struct {
	Delay time.Duration // Config.LockDelay
	Left  time.Duration // until the server grants leases again
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("lockcore: Config.LockDelay %s: nothing is granted for another %s, because the server may have lost data", e.Delay, e.Left)
}

// ErrDelayed matches every *DelayError.
var ErrDelayed = errors.New("lockcore: grants are delayed")

// Is reports true for ErrDelayed.
func (e *DelayError) Is(target error) bool { return target == ErrDelayed }

// movedError is the redirection of a node of a cluster. The next try goes to the named node.
type movedError struct{ err error }

func (e *movedError) Error() string { return fmt.Sprintf("lockcore: the name is moving: %v", e.err) }

func (e *movedError) Unwrap() error { return e.err }

// Redirected marks an error that is a redirection. In a cluster, a redirection ends without
// an operator. Elsewhere, it is a wrong configuration.
func Redirected(err error) error {
	if HasCode(err, "MOVED", "ASK") {
		return &movedError{err}
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
	_, is := errors.AsType[*conn.UnsentError](err)
	return is
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

// HasCode reports whether the server refused with one of these codes.
func HasCode(err error, codes ...string) bool { return conn.HasCode(err, codes...) }

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
	case errors.Is(err, ErrNoHistory):
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
