package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// A Ledger records which ticks of a job have run, on which replica, and how they ended.
// Replicas claim ticks there, so that one of them runs each tick.
//
// A Ledger has no state and is safe for concurrent use.
type Ledger struct {
	lock    *lock.Name
	scripts *scripts
	name    string
	keys    keys
	cfg     Config
}

// Config configures the ledger of a job. All replicas of a job should use the same. The
// caller has checked all fields except Lease.
type Config struct {
	Lease        *lockcore.LeaseConfig // of an attempt; nil for a caller that claims nothing
	MaxAttempts  int                   // of the singleton.JobConfig
	AllowOverlap bool                  // of the singleton.JobConfig
	KeepRuns     int                   // entries of the history; default 100, at most MostRuns

	// Definition identifies the definition of the job, so that replicas with different schedules or settings are
	// distinguished during a rollout. One definition is active at a time; replicas of other definitions claim nothing.
	// part_definitions.lua has the rule. Up to 200 bytes without spaces.
	Definition string

	// Schedule is the schedule of the Definition as text. When another Schedule becomes active, its ticks begin now, or
	// with State.Shared. No tick runs between the newest accounted tick and this begin: an entry of the history has
	// this time (see State.Rescheduled). Open runs are kept.
	Schedule string

	// Retain is how long the ledger is kept after its last use. It must exceed the job's
	// longest interval, otherwise a tick could be claimed again. Default and minimum 30
	// days.
	Retain time.Duration
}

const (
	// DefaultAttempts is the default of Config.MaxAttempts.
	DefaultAttempts = 5

	// DefaultKeepRuns is the default of Config.KeepRuns.
	DefaultKeepRuns = 100

	defaultRetain = 30 * 24 * time.Hour

	// tombTTL is how long a tomb is kept: longer than any request can be under way.
	tombTTL = 5 * time.Minute
)

// New returns the ledger of a job. The name follows the rules of a lock's name. New sends nothing. The error is a
// *noonlock.ConfigError.
func New(c *lockcore.Client, job string, cfg Config) (*Ledger, error) {
	if c == nil {
		return nil, refuse("client", "a *lockcore.Client", "%s", "nil")
	}
	if rule := input.Fault(job, 200, true); rule != "" {
		return nil, &noonlock.ConfigError{Package: "singleton", Field: "name", Value: input.Quote(job), Rule: rule}
	}
	if lock.Of(c).Quorum() != nil {
		return nil, errQuorum
	}
	n, err := lock.Of(c).Name(lock.JobNames+job, (*lock.LeaseConfig)(cfg.Lease))
	if err != nil {
		return nil, err
	}
	s, err := ownScripts()
	if err != nil {
		return nil, err
	}
	cfg.MaxAttempts = cmp.Or(cfg.MaxAttempts, DefaultAttempts)
	cfg.KeepRuns = cmp.Or(cfg.KeepRuns, DefaultKeepRuns)
	cfg.Retain = cmp.Or(cfg.Retain, defaultRetain)
	return &Ledger{lock: n, scripts: s, name: job, keys: keysOf(n, job), cfg: cfg}, nil
}

// ask runs a script or command that returns a list and may be repeated.
func (l *Ledger) ask(ctx context.Context, req wire.Request) ([]any, error) {
	answer, err := l.lock.Ask(ctx, req)
	if err != nil {
		return nil, err
	}
	list, ok := answer.([]any)
	if !ok || len(list) == 0 && req.IsScript() {
		return nil, req.OddReply(answer)
	}
	return list, nil
}

// Runs returns the newest n entries of the history, newest first.
func Runs[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Run) T) ([]T, error) {
	return list(ctx, l, "runs", l.keys.runs, n, decode)
}

// Actions returns the newest n actions of operators, newest first. The newest hundred are kept, for as
// long as an idle ledger. A call that changed nothing is not listed.
func Actions[T any](ctx context.Context, l *Ledger, n int, decode func(*Decoder, Action) T) ([]T, error) {
	return list(ctx, l, "acts", l.keys.acts, n, decode)
}

// onePage is how many entries one request reads. Each may have a few kilobytes of errors and payload.
const onePage = 100

// list reads the newest n entries of a list, which are JSON of type S.
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
		isLast := len(page) < size
		for len(page) > 0 && slices.Contains(before, page[0]) { // new entries have moved it from there to here
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
		if isLast {
			break
		}
		before = page
	}
	all = all[:min(n, len(all))]
	return all, nil
}
