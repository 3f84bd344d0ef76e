package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/noonlock/noonlock/internal/wire"
)

// Runs returns the newest n entries of the history, newest first.
func Runs[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Run) T) ([]T, error) {
	return list(ctx, l, "runs", l.keys.runs, n, decode)
}

// Acts returns the newest n acts of operators, newest first. The newest hundred are kept, for as
// long as an idle ledger. A call that changed nothing is not listed.
func Acts[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Act) T) ([]T, error) {
	return list(ctx, l, "acts", l.keys.acts, n, decode)
}

// onePage is how many entries are read at once. Each may have a few kilobytes of errors and payload.
const onePage = 100

func list[S, T any](ctx context.Context, l *Ledger, op, key string, n int, decode func(*Decoder, S) T) ([]T, error) {
	if n < 1 {
		return nil, opError(op, l.name, refuse("n", "at least 1", "%d", n))
	}
	all := []T{}
	var before []any // the page before
	size := min(n, onePage)
	for from := 0; len(all) < n; from += size {
		page, err := l.ask(ctx, wire.Command("lrange", key, from, from+size-1).On(key).Large())
		if err != nil {
			return nil, opError(op, l.name, err)
		}
		last := len(page) < size
		for len(page) > 0 && slices.Contains(before, page[0]) { // a new entry has moved it to this page
			page = page[1:]
		}
		for _, text := range page {
			var stored S
			var d Decoder
			err := json.Unmarshal([]byte(wire.Text(text)), &stored)
			all = append(all, decode(&d, stored))
			if err := errors.Join(err, d.Err); err != nil {
				return nil, opError(op, l.name, fmt.Errorf("singleton: invalid ledger entry: %w", err))
			}
		}
		if last {
			break
		}
		before = page
	}
	all = all[:min(n, len(all))]
	return all, nil
}
