package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
)

func (a *app) resignCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use: "resign ELECTION [--to IDENTITY] [flags]", Short: "Ask the leader of an election to resign",
		Long: `resign asks the present leader to resign, and does not wait until it has. The context of its work
ends. When the work has returned, the first candidate leads, or with --to the first candidate of
that identity. The former leader is then the last candidate; if it is the only one, it leads again.
A command of "noonctl elect" gets SIGTERM, and elect waits until it has ended.

The leader notices the request at once by a message, and at the latest when it renews its lease. If
it dies before, its lease expires as usual, and no later leader is asked. The request can be
repeated. An election on several independent servers is refused.`,
		Example: `  noonctl resign controller --reason "its node is drained"
  noonctl resign controller --to pod-2`,
		Args: exactly("ELECTION"), ValidArgsFunction: a.completeNames(electionKind, 1),
		RunE: a.asks(func(ctx context.Context, args []string) error { return a.resign(ctx, args[0], to) }),
	}
	cmd.Flags().StringVar(&to, "to", "", "the candidate that leads next (default: the first one)")
	_ = cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions)
	return a.withReason(cmd)
}

func (a *app) resign(ctx context.Context, name, to string) error {
	board, err := election.NewElection(a.client, name)
	if err == nil {
		board, err = board.By(lockcore.Operator{Reason: a.reason}) // who: the identity of the Client
	}
	if err != nil {
		return err
	}
	r, err := asked(ctx, a, func(ctx context.Context) (election.LeaderRecord, error) {
		if to != "" {
			return board.TransferTo(ctx, 0, to)
		}
		return board.Resign(ctx, 0)
	})
	switch {
	case errors.Is(err, lockcore.ErrUnknown): // perhaps the leader has changed because it was asked
		return err
	case errors.Is(err, election.ErrNoLeader) && r.Term == 0:
		return unknown(electionKind, name)
	case errors.Is(err, election.ErrNoLeader):
		return &exitError{exitUnknown, fmt.Errorf("election %s has no leader", shown(name))}
	case errors.Is(err, election.ErrTermOver):
		return fmt.Errorf("the leader of election %s has changed meanwhile; nobody was asked to resign", shown(name))
	case errors.Is(err, election.ErrNoCandidate):
		return a.noCandidate(ctx, board, to)
	case err != nil:
		return err
	}
	what := "to resign"
	if to != "" {
		what = "to transfer to " + shown(to)
	}
	fmt.Fprintf(a.out, "election %s: %s was asked %s\n", shown(name), shown(r.Holder), what)
	return nil
}

// noCandidate returns the error for a candidate that does not exist.
func (a *app) noCandidate(ctx context.Context, board *election.Election, to string) error {
	all, err := asked(ctx, a, board.Candidates)
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = shown(c.Identity)
	}
	are := "it has none"
	if len(names) > 0 {
		are = "the candidates are " + strings.Join(names, ", ")
	}
	return &exitError{exitUnknown, fmt.Errorf("election %s has no candidate %s; %s", shown(board.Name()), shown(to), are)}
}
