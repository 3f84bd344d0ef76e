package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

func (a *app) describeCommand() *cobra.Command {
	describe := &cobra.Command{
		Use: "describe", Short: "Show all about one lock, election, job or daemon",
		Args: kindOf("lock, election, job or daemon"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usage(errors.New("describe needs one of lock, election, job, daemon, and a name"))
		},
	}
	for _, d := range []struct {
		kind
		short    string
		describe func(ctx context.Context, name string) error
	}{
		{lockKind, "Show the holders and waiters of a lock", a.describeLockNamed},
		{electionKind, "Show the leader and the candidates of an election", a.describeElection},
		{jobKind, "Show the state, the schedule and the newest runs of a job, and why attempts failed", a.describeJob},
		{daemonKind, "Show which replica runs a daemon, and which ones wait", a.describeDaemon},
	} {
		describe.AddCommand(&cobra.Command{
			Use: d.Singular() + " NAME", Aliases: []string{d.String()}, Short: d.short, Args: exactly("NAME"),
			ValidArgsFunction: a.completeNames(d.kind, 1),
			RunE:              a.asks(func(ctx context.Context, args []string) error { return d.describe(ctx, args[0]) }),
		})
	}
	return describe
}

// A page is a list of labels and values.
type page struct {
	w      io.Writer
	indent string
	width  int // of the labels
}

func (p page) line(label, value string) {
	if value != "" {
		fmt.Fprintf(p.w, "%s%s:%s%s\n", p.indent, label, strings.Repeat(" ", max(1, p.width-utf8.RuneCountInString(label))), shown(value))
	}
}

func (p page) title(text string) { fmt.Fprintf(p.w, "%s%s:\n", p.indent, text) }

func (a *app) describeLockNamed(ctx context.Context, name string) error {
	seen, err := asked(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, name) })
	if err != nil {
		return err
	}
	releases, err := a.releases(ctx, name)
	if seen.Kind == lockcore.LockFree && len(seen.Waiters) == 0 && len(releases) == 0 {
		if err != nil {
			return err
		}
		return unknown(lockKind, name)
	}
	a.describeLock(a.out, name, seen)
	a.describeReleases(page{w: a.out}, releases)
	return err
}

// releases returns the releases by force of a lock, none if the user may not read them.
func (a *app) releases(ctx context.Context, name string) ([]lockcore.ForcedRelease, error) {
	all, err := asked(ctx, a, func(ctx context.Context) ([]lockcore.ForcedRelease, error) { return a.client.ForcedReleases(ctx, name) })
	if hasCode(err, "NOPERM") {
		return nil, nil
	}
	return all, err
}

func (a *app) describeReleases(p page, releases []lockcore.ForcedRelease) {
	if len(releases) == 0 {
		return
	}
	p.title("Released by force, the last one first")
	t := &table{titles: []string{"AT", "BY", "LEASES", "REASON"}}
	for _, r := range releases {
		t.add(instant(r.At), r.By.Who, strconv.Itoa(r.Leases), r.By.Reason)
	}
	t.write(p.w, p.indent+"  ", a.columns(), true)
}

func (a *app) describeLock(w io.Writer, name string, seen lockcore.Inspection) {
	p := page{w: w, width: 10}
	p.line("Name", name)
	p.line("Kind", kindText(seen))
	a.describeHolders(p, seen)
}

func kindText(seen lockcore.Inspection) string {
	switch seen.Kind {
	case lockcore.LockForeign:
		return "foreign: another program wrote this key"
	case lockcore.LockReadWrite:
		return "read-write"
	default:
		return string(seen.Kind)
	}
}

func (a *app) describeHolders(p page, seen lockcore.Inspection) {
	if seen.NoTTL {
		p.line("Expires", "never: the key has no TTL, and waiters may wait for ever; see \"noonctl release\"")
	}
	if len(seen.Holders) > 0 {
		p.title("Holders")
		t := &table{titles: []string{"IDENTITY", "OWNER", "MODE", "SINCE", "TOKEN", "EXPIRES"}}
		for _, h := range seen.Holders {
			identity, mode, token, expires := h.Identity, "", "", "never"
			if identity == "" {
				identity = "another program"
			}
			if seen.Kind == lockcore.LockReadWrite {
				mode = modeOf(h.Reads)
			}
			if h.Token > 0 {
				token = strconv.FormatUint(h.Token, 10)
			}
			if h.TTL >= 0 {
				expires = "in " + span(h.TTL) + " unless renewed"
			}
			t.add(identity, h.Owner, mode, instant(h.Since), token, expires)
		}
		t.write(p.w, p.indent+"  ", a.columns(), true)
	}
	if len(seen.Waiters) > 0 {
		p.title("Waiters, the next one first")
		t := &table{titles: []string{"IDENTITY", "OWNER", "MODE", "SINCE", "STATE"}}
		for _, w := range seen.Waiters {
			mode, state := "", "waits"
			if seen.Kind == lockcore.LockReadWrite {
				mode = modeOf(w.Reads)
			}
			if !w.Alive {
				state = "does not answer"
			}
			t.add(w.Identity, w.Owner, mode, instant(w.Since), state)
		}
		t.write(p.w, p.indent+"  ", a.columns(), true)
	}
}

func modeOf(reads bool) string {
	if reads {
		return "reads"
	}
	return "writes"
}

func (a *app) describeDaemon(ctx context.Context, name string) error {
	seen, err := asked(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) {
		return a.client.Inspect(ctx, overview.Daemons.LockOf(name))
	})
	if err != nil {
		return err
	}
	state := "runs"
	if seen.Kind == lockcore.LockFree {
		known, err := a.names(ctx, daemonKind)
		if err != nil {
			return err
		}
		state = "no replica runs it"
		if !slices.Contains(known, name) && len(seen.Waiters) == 0 {
			return unknown(daemonKind, name)
		}
	}
	p := page{w: a.out, width: 10}
	p.line("Name", name)
	p.line("State", state)
	p.line("Lock", overview.Daemons.LockOf(name))
	a.describeHolders(p, seen)
	releases, err := a.releases(ctx, overview.Daemons.LockOf(name))
	a.describeReleases(p, releases)
	return err
}

func (a *app) describeElection(ctx context.Context, name string) error {
	data, err := asked(ctx, a, func(ctx context.Context) (electionData, error) { return readElection(ctx, a, name) })
	if err != nil {
		return err
	}
	if data.Term == 0 && len(data.Candidates) == 0 {
		return unknown(electionKind, name)
	}
	p := page{w: a.out, width: 14}
	p.line("Name", data.Name)
	if data.Leader != "" {
		p.line("Leader", data.Leader)
		p.line("Since", instant(data.Acquired)+" ("+relative(data.Acquired, data.now)+")")
		p.line("Lease expires", "in "+span(time.Duration(data.Left)*time.Millisecond)+" unless renewed")
	} else {
		p.line("Leader", "none")
		p.line("Last leader", data.Last)
		p.line("Last renewal", instant(data.Renewed))
		p.line("Resigned", instant(data.Released))
	}
	if data.Asked != nil {
		p.line("Asked", overview.Request(election.ResignRequest{By: data.Asked.By, Reason: data.Asked.Reason, To: data.Asked.To}))
	}
	if data.Term > 0 {
		p.line("Term", strconv.FormatUint(data.Term, 10))
		p.line("Token", strconv.FormatUint(data.Token, 10))
	}
	if len(data.Metadata) > 0 {
		p.title("Metadata")
		for _, key := range sortedKeys(data.Metadata) {
			page{w: p.w, indent: "  ", width: p.width - 2}.line(shown(key), data.Metadata[key])
		}
	}
	if len(data.Candidates) > 0 {
		p.title("Candidates, the next leader first")
		t := &table{titles: []string{"IDENTITY", "SINCE", ""}}
		for _, c := range data.Candidates {
			promoted := ""
			if c.Promoted {
				promoted = "promoted"
			}
			t.add(c.Identity, instant(c.Since), promoted)
		}
		t.write(p.w, "  ", a.columns(), true)
	}
	releases, err := a.releases(ctx, overview.Elections.LockOf(name))
	a.describeReleases(p, releases)
	return err
}

// newestRuns is how many runs, and how many acts of operators, describe job shows. It reads all
// acts, to find the one that has paused the job.
const (
	newestRuns = 10
	allActs    = 100
)

func (a *app) describeJob(ctx context.Context, name string) error {
	j, err := singleton.NewJob(a.client, name)
	if err != nil {
		return err
	}
	st, err := asked(ctx, a, j.Status)
	if errors.Is(err, singleton.ErrNoLedger) {
		return unknown(jobKind, name)
	}
	if err != nil {
		return err
	}
	schedules, err := asked(ctx, a, j.Schedules)
	if err != nil {
		return err
	}
	runs, err := asked(ctx, a, func(ctx context.Context) ([]singleton.Entry, error) { return j.Runs(ctx, newestRuns) })
	if err != nil {
		return err
	}
	acts, err := asked(ctx, a, func(ctx context.Context) ([]singleton.Act, error) { return j.Acts(ctx, allActs) })
	if err != nil {
		return err
	}
	p := page{w: a.out, width: 14}
	at := func(label string, t time.Time) {
		if !t.IsZero() {
			p.line(label, instant(t)+" ("+relative(t, st.Now)+")")
		}
	}
	p.line("Name", st.Job)
	p.line("State", jobState(st))
	at("Paused since", st.PausedSince)
	for _, act := range acts {
		if st.Paused && act.Action == "pause" && act.At.Equal(st.PausedSince) {
			p.line("Paused by", overview.ByWhom(act.By, act.Reason))
		}
	}
	at("Next tick", st.Next)
	at("Last tick", lastTick(st))
	at("Last success", st.LastSuccess)
	p.line("Last outcome", st.Outcome)
	if n := len(schedules); n > 0 {
		p.line("Schedule", schedules[n-1].Text)
		at("In use since", schedules[n-1].Since)
	}
	at("Begun", st.Begun)
	a.describeReplicas(p, st)
	if len(st.Open) > 0 {
		p.title("Runs that have not ended")
		t := &table{titles: []string{"TICK", "ATTEMPT", "HOLDER", "SINCE", "STATE", "TOKEN"}}
		for _, open := range st.Open {
			state, token := "running", ""
			switch {
			case open.Attempt == 0:
				state = "waits for a replica"
			case !open.Running:
				state = "its holder has stopped; waits for a replica"
			}
			if c := open.Canceled; c != nil {
				state += ", canceled " + relative(c.At, st.Now) + " by " + overview.ByWhom(c.By, c.Reason)
			}
			if open.Token > 0 {
				token = strconv.FormatUint(open.Token, 10)
			}
			t.add(open.Name(), strconv.Itoa(open.Attempt), open.Holder, relative(open.Since, st.Now), state, token)
		}
		t.write(p.w, "  ", a.columns(), true)
	}
	if len(runs) > 0 {
		p.title("Newest runs")
		historyTable(runs).write(p.w, "  ", a.columns(), true)
	}
	if t := attemptTable(st.Open, runs); len(t.rows) > 0 {
		p.title("Their attempts that failed")
		t.write(p.w, "  ", a.columns(), true)
	}
	if len(acts) > 0 {
		p.title("Newest acts of operators")
		actTable(acts[:min(newestRuns, len(acts))]).write(p.w, "  ", a.columns(), true)
	}
	return nil
}

// describeReplicas shows the replicas of each definition, and why it runs the job or does not.
func (a *app) describeReplicas(p page, st singleton.Status) {
	if len(st.Definitions) == 0 {
		p.line("Replicas", "none")
		return
	}
	p.title("Replicas")
	t := &table{titles: []string{"IDENTITY", "SINCE", "DEFINITION", "STATE"}}
	for _, d := range st.Definitions {
		state := "waits: " + d.Why
		if d.Acts {
			state = "runs the job: " + d.Why
		}
		for _, r := range d.Replicas {
			t.add(r.Identity, instant(r.Since), d.ID, state)
		}
	}
	t.write(p.w, p.indent+"  ", a.columns(), true)
}

// attemptTable shows the failed attempts of open runs, and those of other runs unless their table shows
// the same: that has the error of a run with one attempt, except if the run was canceled after it.
func attemptTable(open []singleton.Open, runs []singleton.Entry) *table {
	t := &table{titles: []string{"TICK", "ATTEMPT", "HOLDER", "START", "TOOK", "TOKEN", "ERROR"}}
	add := func(run singleton.RunID, attempts []singleton.Attempt) {
		for _, at := range attempts {
			if at.Error == "" {
				continue
			}
			took, token := "", ""
			if !at.Start.IsZero() && !at.End.IsZero() {
				took = span(at.End.Sub(at.Start))
			}
			if at.Token > 0 {
				token = strconv.FormatUint(at.Token, 10)
			}
			t.add(run.Name(), strconv.Itoa(at.Number), at.Holder, instant(at.Start), took, token, oneLine(at.Error))
		}
	}
	for _, o := range open {
		add(o.RunID, o.Attempts)
	}
	for _, e := range runs {
		if len(e.Attempts) > 1 || len(e.Attempts) == 1 && e.Attempts[0].Error != e.Error {
			add(e.RunID, e.Attempts)
		}
	}
	return t
}
