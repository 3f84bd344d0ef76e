package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/singleton"
)

func (a *app) forgetCommand() *cobra.Command {
	forget := a.perKind("forget", "Remove the ledger of a job that no replica runs", "job")
	forget.Long = `forget job removes the state and the history of a job that no replica runs any more, and its runs that wait for their
instants. Otherwise they are kept for 30 days or more, and those of a paused job for ever. It is refused while a replica
runs the job, for 90 s to 6 min after that replica has died. The counter of fencing tokens is kept for its week. A
replica that adds the job later begins a new ledger, and no earlier tick runs. The arguments may also be job/NAME.`
	forget.AddCommand(&cobra.Command{
		Use: "job NAME", Short: forget.Short, Long: forget.Long, Args: exactly("NAME"), ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: a.withClient(func(ctx context.Context, args []string) error {
			j, err := singleton.NewJob(a.client, args[0])
			if err != nil {
				return err
			}
			_, err = ask(ctx, a, func(ctx context.Context) (any, error) { return nil, j.Forget(ctx) })
			if err != nil {
				return a.refusal(ctx, jobKind, overview.Action{Name: args[0]}, err)
			}
			fmt.Fprintf(a.out, "job %s forgotten\n", show.Text(args[0]))
			return nil
		}),
	})
	return forget
}
