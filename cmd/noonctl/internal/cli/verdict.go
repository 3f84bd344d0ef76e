package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/lockcore"
)

// fieldName matches the name of a field of the library, such as JobConfig.Retry.
var fieldName = regexp.MustCompile(`\b([A-Z]\w*\.)*[A-Z]\w+`)

// flagsOf has the flags whose names differ from the names of the library.
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

// verdict returns the exit code for an error, and the sentence to print.
func (a *app) verdict(ctx context.Context, err error) (code int, text string) {
	if err == nil {
		return exit.Done, ""
	}
	if invalid, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		if flag := a.flagOf(invalid.Field); flag != "" {
			named := func(field string) string { return cmp.Or(a.flagOf(field), field) }
			rule := fieldName.ReplaceAllStringFunc(invalid.Rule, named)
			return exit.Misuse, show.Text(fmt.Sprintf("%s is %s; it must be %s", flag, invalid.Value, rule))
		}
	}
	if ended, ok := errors.AsType[*exit.Error](err); ok {
		if ended.Err == nil {
			return ended.Code, ""
		}
		return ended.Code, sentence(ended.Err)
	}
	_, timedOut := errors.AsType[*timeoutError](err)
	switch {
	case isUntrusted(err):
		return exit.Failed, sentence(explain(ctx, err, a.options...))
	case hasCode(err, "MOVED"):
		return exit.Failed, fmt.Sprintf("Redis at %s is one node of a cluster; use a URL that begins with redis+cluster: %s", a.addrs, sentence(err))
	case errors.Is(err, noonlock.ErrConfig):
		return exit.Misuse, sentence(err)
	case hasCode(err, "NOPERM"):
		return exit.Forbidden, "the Redis user lacks a right: " + sentence(err)
	case hasCode(err, "NOAUTH", "WRONGPASS"):
		return exit.Forbidden, "Redis refuses the user or the password: " + sentence(err)
	case timedOut:
		return exit.NoAnswer, fmt.Sprintf("Redis at %s did not answer within %s: %s", a.addrs, a.timeout, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, lockcore.ErrNoQuorum):
		return exit.NoAnswer, fmt.Sprintf("of the servers %s, too few serve: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case lockcore.IsTemporary(err):
		return exit.NoAnswer, fmt.Sprintf("Redis at %s does not answer: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, context.Canceled):
		return exit.Interrupted, "interrupted"
	case strings.HasPrefix(err.Error(), "unknown command "), strings.Contains(err.Error(), "arg(s)"):
		return exit.Misuse, sentence(err) // an error of cobra, which has no type for it
	}
	return exit.Failed, a.named(sentence(err))
}
