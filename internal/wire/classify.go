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

// An Outcome says whether a request was applied.
type Outcome int

// The outcomes.
const (
	Applied      Outcome = iota
	Unreplicated         // applied, but acknowledged by too few replicas
	Refused              // refused by the server
	Moved                // refused, because the name is at another server
	Unsent               // not applied, without a connection that was set up
	Ended                // not applied, ended by the caller, Close or a DelayError
	Unknown              // sent and not answered
)

// A Verdict interprets the error of a request. The zero value means success.
type Verdict struct {
	Outcome      Outcome
	MayBeApplied bool // The failed request may have changed something: a script is not rolled back.
	Retry        bool // The request may soon succeed.
	Later        bool // The request may succeed soon, or with more memory, disk space or replicas.
	Temporary    bool // A later call may succeed without an operator.
	Operator     bool // An operator must change something, or the reply was unexpected.
}

// VerdictOf returns the verdict on a request with this error. An operator must act, for example, on a missing
// permission, an untrusted certificate, full memory, and one shard of a cluster in place of a single server.
func VerdictOf(err error) (v Verdict) {
	if err == nil {
		return v
	}
	few, _ := errors.AsType[*NoQuorumError](err)
	refused, unsent := IsRefused(err), is[*conn.UnsentError](err)
	var passes, exhausted, lasting bool // the cause ends soon; with more memory or replicas; by an operator
	if refused {
		// The server has done nothing: it refuses every request for now, or the first write of a script.
		passes = is[*movedError](err) ||
			HasCode(err, "NOSCRIPT", "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "max number of clients")
		exhausted = HasCode(err, "OOM", "MISCONF", "NOREPLICAS")
		lasting = !passes && !exhausted // the password, the rights, the number of the database
	} else if unsent {
		lasting = errors.Is(err, ErrNoHistory) || isUntrusted(err)
	}
	switch {
	case few != nil:
		v = Verdict{Outcome: Unknown, MayBeApplied: true, Retry: !few.Permanent, Operator: few.Permanent}
	case errors.Is(err, ErrUnknown):
		v = Verdict{Outcome: Unknown, MayBeApplied: true, Retry: !unsent || !lasting}
	case errors.Is(err, ErrNotReplicated):
		// The replicas may be back soon. The server refuses WAIT to a user without the right, and when it is demoted
		// meanwhile.
		v = Verdict{Outcome: Unreplicated, MayBeApplied: true, Retry: passes, Operator: refused && !passes && !HasCode(err, "UNBLOCKED")}
	case unsent:
		v = Verdict{Outcome: Unsent, Retry: !lasting, Operator: lasting}
	case refused && HasCode(err, "MOVED", "ASK"):
		v = Verdict{Outcome: Moved, MayBeApplied: true, Retry: passes, Operator: !passes}
	case refused:
		v = Verdict{Outcome: Refused, MayBeApplied: true, Retry: passes, Operator: !passes}
	default:
		v = Verdict{Outcome: Ended}
	}
	v.Later = v.Retry || exhausted
	v.Temporary = !errors.Is(err, ErrClosed) && (v.Retry || v.Outcome == Unreplicated && !v.Operator || errors.Is(err, ErrDelayed))
	v.Operator = v.Operator || is[*ReplyError](err)
	return v
}

// isUntrusted reports whether TLS fails until an operator changes something.
func isUntrusted(err error) bool {
	if alert, ok := errors.AsType[*net.OpError](err); ok && (alert.Op == "remote error" || alert.Op == "local error") {
		return !strings.Contains(alert.Error(), "internal error") // a TLS alert
	}
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err) || is[tls.RecordHeaderError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// OutcomeOf returns the outcome of a request with this error.
func OutcomeOf(err error) Outcome { return VerdictOf(err).Outcome }

// MayBeApplied is Verdict.MayBeApplied.
func MayBeApplied(err error) bool { return VerdictOf(err).MayBeApplied }

// MayRetry is Verdict.Retry, for a Retry.
func MayRetry(err error) bool { return VerdictOf(err).Retry }

// MayRetryLater is Verdict.Later, for a Retry.
func MayRetryLater(err error) bool { return VerdictOf(err).Later }

// These errors of package conn are returned to callers.
var (
	ErrUnknown       = conn.ErrUnknown
	ErrClosed        = conn.ErrClosed
	ErrNotReplicated = conn.ErrNotReplicated
	ErrWrongKind     = conn.ErrWrongKind
)

// NotSent returns the error of a request that was not sent for a reason.
func NotSent(reason error) error { return &conn.UnsentError{Err: reason} }

// NoAnswer returns the cause of a context that ends when a request was not answered in time.
func NoAnswer(within time.Duration) error { return &conn.NoAnswerError{Within: within} }

// ErrNoHistory says that a server does not report the ids that a History needs.
var ErrNoHistory = errors.New("lockcore: Config.LockDelay needs a server that reports its run id and its replication id (INFO)")

// A DelayError says that a request for a grant was not sent, because the server may have lost data a short time ago.
type DelayError struct {
	Delay time.Duration // Config.LockDelay
	Left  time.Duration // time until the next grant
}

func (e *DelayError) Error() string {
	return fmt.Sprintf("lockcore: Config.LockDelay %s: nothing is granted for another %s, because the server may have lost data", e.Delay, e.Left)
}

// ErrDelayed matches every *DelayError.
var ErrDelayed = errors.New("lockcore: grants are delayed")

// Is reports true for ErrDelayed.
func (e *DelayError) Is(target error) bool { return target == ErrDelayed }

// ErrNoQuorum says that too few servers have applied a request.
var ErrNoQuorum = errors.New("lockcore: no quorum")

// A NoQuorumError is ErrNoQuorum with the reasons.
type NoQuorumError struct {
	Text      string // reason without a prefix
	Of        []error
	Permanent bool // an operator must change something
	Answered  bool // a majority has answered and refuses for now
}

func (e *NoQuorumError) Error() string { return "lockcore: no quorum: " + e.Text }

// Unwrap returns ErrNoQuorum and the errors of the servers.
func (e *NoQuorumError) Unwrap() []error { return append([]error{ErrNoQuorum}, e.Of...) }

// A movedError is the redirection of a node of a cluster. The next try goes to the named node.
type movedError struct{ err error }

func (e *movedError) Error() string { return fmt.Sprintf("lockcore: the name is moving: %v", e.err) }

func (e *movedError) Unwrap() error { return e.err }

// Redirected marks an error that is a redirection. In a cluster, a redirection ends without an operator. Elsewhere, the
// configuration is wrong.
func Redirected(err error) error {
	if HasCode(err, "MOVED", "ASK") {
		return &movedError{err}
	}
	return err
}

// Log logs a failure: at logr's error level if an operator must act, otherwise as information.
func Log(log logr.Logger, err error, message string, keysAndValues ...any) {
	if VerdictOf(err).Operator {
		log.Error(err, message, keysAndValues...)
		return
	}
	log.Info(message, append(keysAndValues, "err", err)...)
}

// IsRefused reports whether the server answered with an error.
func IsRefused(err error) bool { return is[redis.Error](err) }

// HasCode reports whether the server refused with one of these codes.
func HasCode(err error, codes ...string) bool { return conn.HasCode(err, codes...) }
