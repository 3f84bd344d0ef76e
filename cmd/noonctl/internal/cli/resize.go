package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/lockcore"
)

func (a *app) resizeCommand() *cobra.Command {
	var slots int
	cmd := &cobra.Command{
		Use: "resize SEMAPHORE --slots N", Short: "Set how many slots a semaphore has",
		Long: `resize sets how many leases a semaphore may have at a time, for all its users, whatever number their
programs give. With a greater number, waiters are served at once. With a smaller one, no lease ends, and nothing is
granted until fewer are held. The number is kept until a week after the last lease.`,
		Example: "  noonctl resize gpus -n 4",
		Args:    exactly("SEMAPHORE"), ValidArgsFunction: a.completeNames(lockKind, 1),
	}
	cmd.Flags().IntVarP(&slots, "slots", "n", 0, "the number of slots, from 1 to 1000 (required)")
	cmd.RunE = a.withClient(func(ctx context.Context, args []string) error {
		if !cmd.Flags().Changed("slots") {
			return exit.Usage(errors.New("resize needs --slots"))
		}
		s, err := a.client.Semaphore(args[0], slots, lockcore.LeaseConfig{})
		if err != nil {
			return err
		}
		_, err = ask(ctx, a, func(ctx context.Context) (any, error) { return nil, s.Resize(ctx, slots) })
		if err == nil {
			fmt.Fprintf(a.out, "semaphore %s has %d slots\n", show.Text(args[0]), slots)
		}
		return err
	})
	return cmd
}
