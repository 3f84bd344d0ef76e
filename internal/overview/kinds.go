// Package overview is what noonctl and the status page have in common: the kinds of things, how each kind
// is listed, read and changed, and in which order its list is shown. It knows only the public API of the
// packages that it imports.
package overview

import (
	"context"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// A Kind is a kind of things that have names.
type Kind int

// The kinds, in the order of the status page.
const (
	Elections Kind = iota
	Jobs
	Daemons
	Locks
	Kinds // how many there are
)

// String returns the plural, such as "locks".
func (k Kind) String() string { return [...]string{"elections", "jobs", "daemons", "locks"}[k] }

// Singular returns the singular, such as "lock".
func (k Kind) Singular() string { return k.String()[:len(k.String())-1] }

// Names returns the names of all things of the kind, sorted. It may return names together with an error.
func (k Kind) Names(ctx context.Context, client *lockcore.Client, cfg lockcore.ListConfig) ([]string, error) {
	switch k {
	case Elections:
		return election.Names(ctx, client, cfg)
	case Jobs:
		return singleton.Jobs(ctx, client, cfg)
	case Daemons:
		return singleton.Daemons(ctx, client, cfg)
	default:
		return client.Locks(ctx, cfg)
	}
}

// LockOf returns the name of the lock that holds a thing of the kind. A job has none.
func (k Kind) LockOf(name string) string {
	switch k {
	case Elections:
		return "election/" + name
	case Daemons:
		return "job/daemon/" + name
	default:
		return name
	}
}

// ByWhom returns who has done something, and why.
func ByWhom(by, reason string) string {
	if reason == "" {
		return by
	}
	return by + ": " + reason
}

// Request says what an operator has asked a leader to do.
func Request(r election.ResignRequest) string {
	what := "to resign"
	if r.To != "" {
		what = "to transfer to " + r.To
	}
	return what + ", by " + ByWhom(r.By, r.Reason)
}
