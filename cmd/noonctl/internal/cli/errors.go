package cli

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/lockcore"
)

// The exit codes. Those above 63 are the ones of sysexits.h, so that they differ from the codes
// of most commands that run and elect start.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 64
	exitUnknown     = 66
	exitAway        = 69
	exitNotAcquired = 75
	exitLost        = 76
	exitForbidden   = 77
	exitNotRunnable = 126
	exitNotFound    = 127
	exitInterrupted = 130
)

// An exitError ends the program with a code. Without err, it prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprint("exit code ", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

var errNoServer = errors.New("no Redis server is given; use --redis or the environment variable " + redisVariable)

// fieldName matches the name of a field of the library, such as JobConfig.Retry.
var fieldName = regexp.MustCompile(`\b([A-Z]\w*\.)*[A-Z]\w+`)

// flagsOf has the flags whose names differ from those of the library.
var flagsOf = map[string]string{
	"Config.LeaseDuration": "lease", "JobConfig.Timeout": "run-timeout",
	"n": "slots", "name": "lock", "servers": "redis",
}

// flagOf returns the flag of the command for a field or an argument of the library, such as --retry for
// JobConfig.Retry, or "".
func (a *app) flagOf(field string) (flag string) {
	if a.flags == nil {
		return ""
	}
	own := field[strings.LastIndexByte(field, '.')+1:]
	a.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == flagsOf[field] || flagsOf[field] == "" && strings.EqualFold(strings.ReplaceAll(f.Name, "-", ""), own) {
			flag = "--" + f.Name
		}
	})
	return flag
}

func usage(err error) error { return &exitError{exitUsage, err} }

// An awayError is the error of a request that Redis did not answer within --timeout.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }

func (e *awayError) Unwrap() error { return e.err }

// verdict returns the exit code for an error, and the sentence to print.
func (a *app) verdict(ctx context.Context, err error) (code int, text string) {
	if err == nil {
		return exitDone, ""
	}
	if refused, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		if flag := a.flagOf(refused.Field); flag != "" {
			named := func(field string) string { return cmp.Or(a.flagOf(field), field) }
			rule := fieldName.ReplaceAllStringFunc(refused.Rule, named)
			return exitUsage, shown(fmt.Sprintf("%s is %s; it must be %s", flag, refused.Value, rule))
		}
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		if exit.err == nil {
			return exit.code, ""
		}
		return exit.code, sentence(exit.err)
	}
	_, away := errors.AsType[*awayError](err)
	switch {
	case isUntrusted(err):
		return exitFailed, sentence(explain(ctx, err, a.options...))
	case hasCode(err, "MOVED"):
		return exitFailed, fmt.Sprintf("Redis at %s is one node of a cluster; use a URL that begins with redis+cluster: %s", a.addrs, sentence(err))
	case errors.Is(err, noonlock.ErrConfig):
		return exitUsage, sentence(err)
	case hasCode(err, "NOPERM"):
		return exitForbidden, "the Redis user lacks a right: " + sentence(err)
	case hasCode(err, "NOAUTH", "WRONGPASS"):
		return exitForbidden, "Redis refuses the user or the password: " + sentence(err)
	case away:
		return exitAway, fmt.Sprintf("Redis at %s did not answer within %s: %s", a.addrs, a.timeout, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, lockcore.ErrNoQuorum):
		return exitAway, fmt.Sprintf("of the servers %s, too few serve: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case lockcore.IsTemporary(err):
		return exitAway, fmt.Sprintf("Redis at %s does not answer: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, context.Canceled):
		return exitInterrupted, "interrupted"
	case strings.HasPrefix(err.Error(), "unknown command "), strings.Contains(err.Error(), "arg(s)"):
		return exitUsage, sentence(err) // of cobra, which has no type for it
	}
	return exitFailed, a.named(sentence(err))
}

// named replaces the words of the library for a name that the Sentinels do not know by the name.
func (a *app) named(text string) string {
	return strings.ReplaceAll(text, "the name in MasterName", "the name "+a.masters)
}

func isUntrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

func hasCode(err error, codes ...string) bool {
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// sentence returns the text of an error in one line. The texts of joined errors are separated by
// semicolons. That a context has ended is left out if there is another text, as it says
// nothing more.
func sentence(err error) string {
	var parts []string
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		said := line
		for _, end := range []error{context.Canceled, context.DeadlineExceeded, errAway} {
			said = strings.TrimSuffix(strings.TrimSuffix(said, end.Error()), ": ")
		}
		if said = strings.TrimSpace(said); said != "" {
			parts = append(parts, said)
		}
	}
	if parts == nil {
		parts = lines
	}
	return shown(strings.Join(parts, "; "))
}
