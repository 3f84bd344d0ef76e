package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// concurrentReads is how many things are read at the same time. The Client sends waiting
// requests in batches, so a thousand reads take only some round trips.
const concurrentReads = 256

// A getting is one call of get.
type getting struct {
	*app
	kind
	output   string
	watch    bool
	interval time.Duration
	state    string // of jobs, see overview.States; empty: any
	sort     string // of jobs, name, or see overview.Orders
}

func (a *app) getCommand() *cobra.Command {
	get := &cobra.Command{
		Use: "get", Short: "List locks, elections, jobs or daemons",
		Args: kindOf("locks, elections, jobs or daemons"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_ = cmd.Help()
			return usage(errors.New("get needs one of locks, elections, jobs, daemons"))
		},
	}
	for _, k := range []kind{lockKind, electionKind, jobKind, daemonKind} {
		g := &getting{app: a, kind: k}
		cmd := &cobra.Command{
			Use: k.String() + " [NAME...]", Aliases: []string{k.Singular()}, Short: k.summary,
			ValidArgsFunction: a.completeNames(k, -1),
			RunE:              a.asks(g.run),
		}
		flags := cmd.Flags()
		flags.StringVarP(&g.output, "output", "o", asTable, "table, wide, json, yaml or name")
		flags.BoolVarP(&g.watch, "watch", "w", false, "print each change until interrupted")
		flags.DurationVar(&g.interval, "interval", 2*time.Second, "with --watch: the time between two looks")
		if k.Kind == overview.Jobs {
			flags.StringVar(&g.state, "state", "", "only jobs in this state: failing, running, paused or alone (default: any)")
			flags.StringVar(&g.sort, "sort", "name", "name, outcome (failed first) or next (the next tick)")
		}
		_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asTable, asWide, asJSON, asYAML, asName}, cobra.ShellCompDirectiveNoFileComp))
		get.AddCommand(cmd)
	}
	return get
}

func (g *getting) run(ctx context.Context, names []string) error {
	switch {
	case !slices.Contains([]string{asTable, asWide, asJSON, asYAML, asName}, g.output):
		return usage(fmt.Errorf("--output is %q; it must be table, wide, json, yaml or name", g.output))
	case g.state != "" && overview.States[g.state] == nil:
		return usage(fmt.Errorf("--state is %q; it must be failing, running, paused or alone", g.state))
	case g.sort != "" && g.sort != "name" && overview.Orders[g.sort] == nil:
		return usage(fmt.Errorf("--sort is %q; it must be name, outcome or next", g.sort))
	case g.watch && g.interval < 100*time.Millisecond:
		return usage(fmt.Errorf("--interval is %s; it must be at least 100ms", g.interval))
	case g.watch:
		return g.follow(ctx, names)
	}
	items, err := g.items(ctx, names)
	if err != nil && len(items) == 0 {
		return err
	}
	failing := countFailing(items)
	printed := g.print(g.chosen(items), len(names) == 1, true)
	if failing > 0 && (g.output == asTable || g.output == asWide) {
		fmt.Fprintf(g.Stderr, "Jobs that fail: %d of %d.\n", failing, len(items))
	}
	return errors.Join(printed, err)
}

// chosen returns the items of the chosen state, in the chosen order. They are sorted by their names.
func (g *getting) chosen(items []item) []item {
	if fits := overview.States[g.state]; fits != nil {
		items = slices.DeleteFunc(slices.Clone(items), func(it item) bool {
			st, ok := it.data.(singleton.Status)
			return ok && !fits(overview.MarkOf(st))
		})
	}
	if order := overview.Orders[g.sort]; order != nil {
		items = slices.SortedStableFunc(slices.Values(items), func(a, b item) int {
			x, _ := a.data.(singleton.Status)
			y, _ := b.data.(singleton.Status)
			return order(overview.MarkOf(x), overview.MarkOf(y))
		})
	}
	return items
}

// countFailing returns how many of the items are jobs that fail.
func countFailing(items []item) (n int) {
	for _, it := range items {
		if st, ok := it.data.(singleton.Status); ok && st.Failing() {
			n++
		}
	}
	return n
}

// items reads the named things, or all. It returns what it has read even if there is an error.
func (g *getting) items(ctx context.Context, names []string) ([]item, error) {
	if len(names) > 0 {
		return g.named(ctx, names)
	}
	names, failure := g.names(ctx, g.kind)
	found, err := g.readAll(ctx, g.kind, names)
	var items []item
	for i, it := range found {
		// One that ended since it was listed is left out, except a daemon that waits for a
		// replica: that it does not run is what an operator looks for.
		if it != nil {
			items = append(items, *it)
		} else if g.Kind == overview.Daemons && err == nil {
			items = append(items, lockItemOfDaemon(names[i]))
		}
	}
	return items, errors.Join(failure, err)
}

// lockItemOfDaemon returns the item of a daemon that no replica runs.
func lockItemOfDaemon(name string) item {
	it := lockItem(name, lockcore.Inspection{Kind: lockcore.LockFree, Holders: []lockcore.Holder{}, Waiters: []lockcore.Waiter{}})
	it.cells = []string{"", "", "", "0", "", ""}
	return it
}

func (g *getting) named(ctx context.Context, names []string) ([]item, error) {
	found, err := g.readAll(ctx, g.kind, names)
	var items []item
	for i, it := range found {
		if it != nil {
			items = append(items, *it)
			continue
		}
		if err != nil {
			continue
		}
		if g.Kind == overview.Daemons {
			known, failure := g.names(ctx, g.kind)
			if failure != nil {
				err = failure
				continue
			}
			if slices.Contains(known, names[i]) {
				items = append(items, lockItemOfDaemon(names[i]))
				continue
			}
		}
		err = unknown(g.kind, names[i])
	}
	return items, err
}

// names lists the names of a kind. On a terminal, it reports its progress if it takes long. It
// may return names together with an error.
func (a *app) names(ctx context.Context, k kind) ([]string, error) {
	bounded, answered, stop := a.within(ctx)
	defer stop()
	began, reported := time.Now(), false
	_, terminal := isTerminal(a.Stderr)
	names, err := k.Names(bounded, a.client, lockcore.ListConfig{Progress: func(keys int) {
		answered()
		if terminal && time.Since(began) > time.Second {
			reported = true
			fmt.Fprintf(a.Stderr, "\rsearching: %d keys\x1b[K", keys)
		}
	}})
	if reported {
		fmt.Fprint(a.Stderr, "\r\x1b[K")
	}
	return names, a.awayError(bounded, err)
}

// A partialError has the errors of things that could not be read while others could. Such a thing
// has a key of another program, or one of a newer version.
type partialError struct{ errs []error }

func (e *partialError) Error() string {
	const most = 3
	text := errors.Join(e.errs[:min(most, len(e.errs))]...).Error()
	if more := len(e.errs) - most; more > 0 {
		text += fmt.Sprintf("\nand %d more could not be read", more)
	}
	return text
}

func (e *partialError) Unwrap() []error { return e.errs }

// isPartial reports whether an error of a read says nothing about the next one. Without an answer,
// or without a right, all reads fail.
func isPartial(err error) bool {
	if lockcore.IsTemporary(err) || errors.Is(err, lockcore.ErrUnknown) || hasCode(err, "NOPERM", "NOAUTH", "WRONGPASS") {
		return false
	}
	_, answered := errors.AsType[redis.Error](err)
	return answered || errors.Is(err, singleton.ErrNewerSchema) || errors.Is(err, election.ErrNewerSchema)
}

// readAll reads things, many at a time. The result is nil for names that do not exist. If only some
// things cannot be read, the error is a *partialError.
func (a *app) readAll(ctx context.Context, k kind, names []string) ([]*item, error) {
	bounded, answered, stop := a.within(ctx)
	defer stop()
	failing, fail := context.WithCancel(bounded)
	defer fail()
	var once sync.Once
	var failure error // the first one that is not partial, which ends the other reads
	partial := make([]error, len(names))
	items := make([]*item, len(names))
	slots := make(chan struct{}, concurrentReads)
	var all sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		if failing.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			it, found, err := k.read(failing, a, name)
			switch {
			case err != nil && isPartial(err):
				partial[i] = err
			case err != nil:
				once.Do(func() { failure = err })
				fail()
				return
			case found:
				items[i] = &it
			}
			answered()
		})
	}
	all.Wait()
	if partial = slices.DeleteFunc(partial, func(err error) bool { return err == nil }); failure == nil && len(partial) > 0 {
		failure = &partialError{partial}
	}
	return items, a.awayError(bounded, failure)
}

// print prints items. single says that one was asked for by name.
func (g *getting) print(items []item, single, titled bool) error {
	data := make([]any, len(items))
	for i, it := range items {
		data[i] = it.data
	}
	var value any = data
	if single && len(data) == 1 {
		value = data[0]
	}
	switch g.output {
	case asJSON:
		return writeJSON(g.out, value, false)
	case asYAML:
		return writeYAML(g.out, value)
	case asName:
		for _, it := range items {
			fmt.Fprintln(g.out, it.name)
		}
		return g.out.Err()
	}
	if len(items) == 0 {
		fmt.Fprintf(g.Stderr, "There are no %s with the prefix %s.\n", g.String(), shown(g.prefix))
		return nil
	}
	g.tableOf(items).write(g.out, "", g.columns(), titled)
	return g.out.Err()
}

// columns returns the width of the terminal, 0 if the output is not a terminal.
func (a *app) columns() int {
	columns, _ := isTerminal(a.Stdout)
	return columns
}

func (g *getting) tableOf(items []item) *table {
	show := g.wide
	if g.output == asWide {
		show = len(g.titles)
	}
	t := &table{titles: g.titles[:show]}
	for _, it := range items {
		t.add(append([]string{it.name}, it.cells...)[:show]...)
	}
	return t
}

// unknown returns the error for a name that does not exist.
func unknown(k kind, name string) error {
	text := fmt.Sprintf("there is no %s %q", k.Singular(), name)
	if k.Kind == overview.Locks {
		text = fmt.Sprintf("no lock %q is held or has waiters", name)
	}
	return &exitError{exitUnknown, errors.New(text)}
}

// completeNames returns a completion with the names of a kind. limit is how many names the
// command takes, -1 means any number.
func (a *app) completeNames(k kind, limit int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		const none = cobra.ShellCompDirectiveNoFileComp
		if limit >= 0 && len(args) >= limit {
			return nil, none
		}
		a.timeout = min(a.timeout, 2*time.Second) // the user waits for a key
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return nil, none
		}
		defer closeAll()
		a.Stderr = io.Discard
		names, _ := a.names(cmd.Context(), k)
		return slices.DeleteFunc(names, func(name string) bool {
			return !strings.HasPrefix(name, begin) || slices.Contains(args, name)
		}), none
	}
}
