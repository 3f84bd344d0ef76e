package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func (a *app) describeCommand() *cobra.Command {
	describe := a.perKind("describe", "Show all about one lock, election, job or set of partitions", "lock, election, job or partition")
	for _, k := range kinds {
		describe.AddCommand(&cobra.Command{
			Use: k.Singular() + " NAME", Aliases: []string{k.String()}, Short: k.one, Args: exactly("NAME"),
			ValidArgsFunction: a.completeNames(k, 1),
			RunE:              a.asks(func(ctx context.Context, args []string) error { return a.describe(ctx, k, args[0]) }),
		})
	}
	return describe
}

// newest is how many runs, and how many acts of operators, describe job shows.
const newest = 10

func (a *app) describe(ctx context.Context, k kind, name string) error {
	if k.Kind == overview.Jobs {
		return a.describeJob(ctx, name)
	}
	t, err := asked(ctx, a, func(ctx context.Context) (overview.Thing, error) { return k.Read(ctx, a.client, name) })
	var releases []lockcore.ForcedRelease
	if err == nil && k.Kind == overview.Locks && t.Lock.Servers == nil { // any, also that of an election
		releases, err = a.releases(ctx, name)
	}
	if !t.Exists() && len(releases) == 0 {
		return errors.Join(a.walk(t.Now, serversOf(t)), cmp.Or(err, unknown(k, name)))
	}
	return errors.Join(a.show(t, releases), err)
}

// serversOf returns what describe prints about the servers of a quorum.
func serversOf(t overview.Thing) map[string]any {
	type row struct {
		Server string `json:"server"`
		State  string `json:"state"`
		List   int    `json:"list,omitempty"`
		Waits  int64  `json:"waits_ms,omitempty"`
		Holder string `json:"holder,omitempty"` // or a try to acquire the lock
	}
	var rows []row
	for _, v := range t.Lock.Servers {
		r := row{Server: v.Address, State: "member", List: v.List, Waits: v.Waits.Milliseconds()}
		switch {
		case v.Err != nil:
			r.State = sentence(v.Err)
		case !v.Member || v.Waits > 0:
			r.State = "grants nothing yet"
		}
		for _, h := range v.Holders {
			r.Holder = orForeign(h.Identity)
		}
		rows = append(rows, r)
	}
	return map[string]any{"servers": rows}
}

func (a *app) show(t overview.Thing, releases []lockcore.ForcedRelease) error {
	t.Lock.Holders = slices.Clone(t.Lock.Holders) // the caller's stay as they are
	for i, h := range t.Lock.Holders {
		t.Lock.Holders[i].Identity = orForeign(h.Identity)
	}
	return a.walk(t.Now, t.Data(), map[string]string{"state": t.State()}, serversOf(t), map[string]any{"releases": releases})
}

// releases returns the releases by force of a lock, none if the user may not read them.
func (a *app) releases(ctx context.Context, name string) ([]lockcore.ForcedRelease, error) {
	all, err := asked(ctx, a, func(ctx context.Context) ([]lockcore.ForcedRelease, error) { return a.client.ForcedReleases(ctx, name) })
	if hasCode(err, "NOPERM") {
		return nil, nil
	}
	return all, err
}

type jobData struct {
	singleton.Status
	State    string                   `json:"state"`
	PausedBy string                   `json:"paused_by,omitempty"`
	Runs     []singleton.HistoryEntry `json:"newest_runs"`
	Acts     []singleton.Action       `json:"acts"`
}

func (a *app) details(ctx context.Context, name string, mostRuns int) (overview.Details, error) {
	d, err := asked(ctx, a, func(ctx context.Context) (overview.Details, error) {
		return overview.Job(ctx, a.client, name, mostRuns)
	})
	if errors.Is(err, singleton.ErrNoLedger) {
		err = unknown(jobKind, name)
	}
	return d, err
}

func byAndWhy(act singleton.Action) string { return strings.TrimSuffix(act.By+": "+act.Reason, ": ") }

func (a *app) describeJob(ctx context.Context, name string) error {
	d, err := a.details(ctx, name, newest)
	if err != nil {
		return err
	}
	data := jobData{
		Status: d.Status, State: overview.Thing{Kind: overview.Jobs, Job: &d.Status}.State(),
		Runs: d.Runs, Acts: d.Acts[:min(newest, len(d.Acts))],
	}
	if data.Last.Equal(data.Begun) {
		data.Last = time.Time{} // a new ledger has no tick
	}
	for _, act := range d.Acts {
		if data.Paused && act.Verb == "pause" && act.At.Equal(data.PausedSince) {
			data.PausedBy = byAndWhy(act)
		}
	}
	for i, run := range data.Runs { // their own errors say the same as their last attempts
		data.Runs[i].Attempts = slices.DeleteFunc(run.Attempts, func(at singleton.Attempt) bool {
			return at.Error == "" || at.Error == run.Error && len(run.Attempts) == 1
		})
	}
	return a.walk(data.Now, data)
}
