package lockcore

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

	"github.com/redis/go-redis/v9"
)

// What the answer to a request means is decided here, and only here:
//
//	nil              applied
//	isServerError    refused by the server; a script may have written before that,
//	                 see mayStand
//	isUnsent         surely not applied: it never left, because there was no
//	                 connection or setting one up was refused
//	ErrUnknown       sent and not answered
//
// and whether it is worth another try: isPassing, isShort, isLasting.

// unsentError is why a request was never sent.
type unsentError struct{ err error }

func (e *unsentError) Error() string {
	if _, plain := errors.AsType[tls.RecordHeaderError](e.err); plain {
		return fmt.Sprintf("lockcore: no connection: the server does not speak TLS on this port: %v", e.err)
	}
	return fmt.Sprintf("lockcore: no connection: %v", e.err)
}

func (e *unsentError) Unwrap() error { return e.err }

// noAnswerError is the end of a request that was not answered in its time.
type noAnswerError struct{ within time.Duration }

func (e *noAnswerError) Error() string {
	return fmt.Sprintf("lockcore: no answer within %s", e.within)
}

// Timeout reports true, as for a net.Error.
func (e *noAnswerError) Timeout() bool { return true }

// refusal is a server's refusal without what the server wrapped it in.
type refusal struct{ text string }

func (e *refusal) Error() string { return e.text }

// RedisError makes it a redis.Error, as the one it stands for.
func (e *refusal) RedisError() {}

// scriptPlace is where in a script the server says that an error was raised: Redis 6.2
// of each, others of one that the script itself raises again.
var scriptPlace = regexp.MustCompile(`^(?:ERR )?(?:Error running script \(.*?\): )?(?:@?user_script: ?\d+: )+-?`)

// errorCode is the code that a refusal begins with.
var errorCode = regexp.MustCompile(`^[A-Z]{2,} `)

// plainRefusal is the error with the code that matters in front: Redis 6.2 wraps what
// commands of a script are refused with, and a server that was not given a password
// complains about the length of what it is sent.
func plainRefusal(err error) error {
	var refused redis.Error
	if !errors.As(err, &refused) {
		return err
	}
	said := refused.Error()
	inner := strings.TrimSpace(said[len(scriptPlace.FindString(said)):])
	switch {
	case strings.HasPrefix(said, "ERR Protocol error: unauthenticated "):
		return &refusal{"NOAUTH the server asks for a password and was given none: " + strings.TrimPrefix(said, "ERR ")}
	case strings.HasPrefix(inner, "The user executing the script can't "):
		return &refusal{"NOPERM " + inner}
	case inner != said && errorCode.MatchString(inner):
		return &refusal{inner}
	}
	return err
}

// isServerError: the server answered, with a refusal.
func isServerError(err error) bool {
	var refused redis.Error
	return errors.As(err, &refused)
}

// isUnsent: nothing was sent.
func isUnsent(err error) bool {
	var unsent *unsentError
	return errors.As(err, &unsent)
}

// isPassing: the server will think better of it by itself, and has done nothing.
func isPassing(err error) bool {
	return hasCode(err, "LOADING", "BUSY", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "max number of clients")
}

// isShort: the server lacks memory, disk or replicas, and has done nothing: a
// script's first write is refused or none. Nobody knows for how long.
func isShort(err error) bool { return hasCode(err, "OOM", "MISCONF", "NOREPLICAS") }

func hasCode(err error, codes ...string) bool {
	return slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

func isNoScript(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// mayStand: something of the request may stand at the server. A script that is refused
// in its middle is not rolled back.
func mayStand(err error) bool {
	return errors.Is(err, ErrUnknown) || isServerError(err) && !isUnsent(err) && !isPassing(err) && !isShort(err)
}

// mayRetry: worth another try with the same attempt.
func mayRetry(err error) bool {
	return !isLasting(err) && (errors.Is(err, ErrUnknown) || isUnsent(err) || isPassing(err))
}

// isLasting: a connection will not be had before somebody changes something.
func isLasting(err error) bool {
	if !isUnsent(err) {
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
	case isServerError(err):
		return !isPassing(err) && !isShort(err) // the password, the rights, the number of the database
	case errors.As(err, &verification), errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &plain):
		return true
	case errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error"):
		return !strings.Contains(alert.Error(), "internal error") // TLS: they do not agree
	}
	return false
}

// Temporary reports whether the call that failed with err may succeed when it is
// made again: nobody answered, no connection was had, or the server said that it
// is loading, busy, read-only or failing over. It is false for what only an
// operator can change, such as rights, a password, a certificate or memory, for a
// refused input, and for a Client that is closed.
//
// A call that was ended by its own context may be temporary, too: look at the
// context first.
func Temporary(err error) bool {
	return mayRetry(err) && !errors.Is(err, ErrClosed)
}
