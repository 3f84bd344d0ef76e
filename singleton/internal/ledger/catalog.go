package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
)

// ErrExists and ErrNoJob are the errors of package singleton with the same names.
var (
	ErrExists = errors.New("singleton: another job with this name is stored")
	ErrNoJob  = errors.New("singleton: no such job is stored")
)

// A Catalog has the jobs that are stored for all replicas that follow it: see part_catalog.lua. It is a handle without
// state.
type Catalog struct {
	lock    *lock.Name
	scripts *scripts
	keys    []any
	channel string
}

// Stored is what the catalog has of a job, or of the deletion of one.
type Stored struct {
	Name     string
	Revision uint64
	Text     string
}

// What Change does.
const (
	ChangeCreate  = "create"
	ChangeReplace = "replace" // or create
	ChangeDelete  = "delete"
	ChangeRenew   = "renew" // the same text gets another revision; ErrExists: another call has changed it
)

const (
	// keepDeletions is how many deletions the catalog keeps. A replica that has missed more reads all jobs.
	keepDeletions = 10_000

	// mostStored is how many jobs, and how many deletions, an answer has at most. A job has up to about 25 KiB, as JSON escapes some bytes.
	mostStored = 500

	// restOfDeleted is how long the ledger of a job that was deleted is kept.
	restOfDeleted = 7 * 24 * time.Hour
)

// NewCatalog returns the catalog. The error is a *noonlock.ConfigError.
func NewCatalog(c *lockcore.Client) (*Catalog, error) {
	if c == nil {
		return nil, refuse("client", "a *lockcore.Client", "%s", "nil")
	}
	if lock.Of(c).Quorum() != nil {
		return nil, errQuorum
	}
	n, err := lock.Of(c).Name(lock.JobNames, nil) // no job has an empty name
	if err != nil {
		return nil, err
	}
	s, err := ownScripts()
	return &Catalog{lock: n, scripts: s, keys: wire.Keys(n.Key("specs"), n.Key("live"), n.Key("gone")), channel: n.Channel("job", "")}, err
}

// Change stores the text of a job, or deletes the job. of is the ledger of the job. It learns a deletion here. What is
// stored it learns from the caller: see Define. The revision will be greater than known. The result is what is stored now,
// or who has deleted it first.
func (c *Catalog) Change(ctx context.Context, of *Ledger, what, text string, known uint64) (Stored, error) {
	now := Stored{Name: of.name}
	for ; ; known = now.Revision {
		req := c.scripts.change.Call(c.keys, of.name, text, what, strconv.FormatUint(known, 10), keepDeletions, c.channel)
		answer, err := c.lock.Ask(ctx, req)
		list, _ := answer.([]any)
		var code int64
		if len(list) > 0 {
			code, _ = list[0].(int64)
		}
		switch {
		case err != nil:
			return now, err
		case code == 3:
			return now, ErrExists
		case code == 5:
			return now, ErrNoJob
		case len(list) != 3 || code < 1 || code > 4:
			return now, req.OddReply(answer)
		}
		var d Decoder
		now.Revision, now.Text = d.Token(wire.Text(list[1])), wire.Text(list[2])
		if d.Err != nil {
			return now, req.OddReply(answer)
		}
		if code == 4 || what == ChangeDelete {
			if _, err := of.Remove(ctx, now); err != nil {
				return now, err
			}
		}
		if code != 4 {
			return now, nil
		}
	}
}

// A Page is a part of the catalog.
type Page struct {
	Live, Gone []Stored
	Newest     uint64 // the newest revision of all
	UpTo       uint64 // what has changed up to that one is in the pages
	Dropped    uint64 // the newest deletion that is not kept: what the catalog lacks up to there was deleted
}

// Look returns what has a greater revision than known. If UpTo is less than Newest, there is more.
func (c *Catalog) Look(ctx context.Context, known uint64) (p Page, _ error) {
	req := c.scripts.look.Call(c.keys, strconv.FormatUint(known, 10), mostStored).Large()
	answer, err := c.lock.Ask(ctx, req)
	if err != nil {
		return p, err
	}
	list, _ := answer.([]any)
	if len(list) < 4 || len(list)%3 != 1 {
		return p, req.OddReply(answer)
	}
	var d Decoder
	number := func(i int) uint64 { return d.Token(wire.Text(list[i])) }
	p.Newest, p.UpTo, p.Dropped = number(0), number(1), number(2)
	live, _ := list[3].(int64)
	for i := 4; i < len(list); i += 3 {
		one := Stored{wire.Text(list[i]), number(i + 1), wire.Text(list[i+2])}
		if int64(len(p.Live)) < live {
			p.Live = append(p.Live, one)
		} else {
			p.Gone = append(p.Gone, one)
		}
	}
	if d.Err != nil {
		return p, req.OddReply(answer)
	}
	return p, nil
}

// Watch calls nudge when the catalog may have changed. Messages can be lost.
func (c *Catalog) Watch(nudge func()) (stop func()) {
	return c.lock.Watch(c.channel, func(string) { nudge() })
}

// OfRevision returns a Ledger whose definition is that of a stored job with this revision: see part_definitions.lua.
func (l *Ledger) OfRevision(revision uint64) *Ledger {
	of := *l
	of.cfg.Definition += "@" + strconv.FormatUint(revision, 10)
	return &of
}

// Define makes the definition of a stored job the one that acts, unless the ledger has a greater revision. If there is no
// ledger, it begins now. The result is the revision that acts.
func (l *Ledger) Define(ctx context.Context) (revision uint64, _ error) {
	k := l.keys
	st, err := l.state(ctx, l.scripts.open.Call(wire.Keys(k.job, k.open, k.runs, k.acts, k.due, k.payloads),
		"", "", "", l.cfg.KeepRuns, l.cfg.Retain.Milliseconds(), "", l.cfg.Definition, 0, l.lock.Client().Identity(), "", l.cfg.Schedule, "", "", "", k.channel))
	return st.Revision(), opError("open ledger", l.name, err)
}

// Revision returns that of the definition that acts, or of a deletion; 0: it is not of a stored job.
func (st *State) Revision() (revision uint64) {
	_, text, _ := strings.Cut(st.Acting, "@")
	revision, _ = strconv.ParseUint(text, 10, 64)
	return revision
}

// Author returns the text of a deletion, with who does it and why.
func (l *Ledger) Author() string {
	text, _ := json.Marshal(Act{Who: l.by.Who, Why: l.by.Reason}) // texts
	return string(text)
}

// removedPrefix is that of the definition of a job that was deleted.
const removedPrefix = "removed@"

// Removed reports whether the job was stored and then deleted.
func (st *State) Removed() bool { return strings.HasPrefix(st.Acting, removedPrefix) }

// Remove ends the job, of which the catalog has a deletion. left is the longest time for which a run is held that was
// canceled; a later call records it if its holder dies.
func (l *Ledger) Remove(ctx context.Context, deleted Stored) (left time.Duration, err error) {
	const op = "delete job"
	var by Act
	if err := json.Unmarshal([]byte(deleted.Text), &by); err != nil {
		return 0, opError(op, l.name, err)
	}
	k := l.keys
	req := l.scripts.remove.Call(wire.Keys(k.job, k.open, k.runs, k.acts, k.due, k.payloads),
		removedPrefix+strconv.FormatUint(deleted.Revision, 10), mostRuns, restOfDeleted.Milliseconds(), by.Who, by.Why, k.channel)
	answer, err := l.ask(ctx, req)
	if err == nil && answer[0] == int64(11) {
		err = ErrNewerSchema
	}
	if err == nil && (len(answer) != 2 || answer[0] != int64(1)) {
		err = req.OddReply(answer)
	}
	if err != nil {
		return 0, opError(op, l.name, err)
	}
	ms, _ := answer[1].(int64)
	return time.Duration(ms) * time.Millisecond, nil
}
