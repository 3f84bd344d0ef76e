package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
)

// errTimeout is the cause of a context that ended because Redis did not answer within --timeout.
var errTimeout = errors.New("no answer in time")

// A timeoutError is the error of a request that Redis did not answer within --timeout.
type timeoutError struct{ error }

func (e *timeoutError) Unwrap() error { return e.error }

func isUntrusted(err error) bool {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unknown
}

func hasCode(err error, codes ...string) bool {
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// sentence returns the text of an error in one line, with semicolons between joined errors. It omits the error of an
// ended context if there is another text.
func sentence(err error) string {
	var parts []string
	lines := strings.Split(err.Error(), "\n")
	for _, line := range lines {
		text := line
		for _, end := range []error{context.Canceled, context.DeadlineExceeded, errTimeout} {
			text = strings.TrimSuffix(strings.TrimSuffix(text, end.Error()), ": ")
		}
		if text = strings.TrimSpace(text); text != "" {
			parts = append(parts, text)
		}
	}
	if parts == nil {
		parts = lines
	}
	return show.Text(strings.Join(parts, "; "))
}
