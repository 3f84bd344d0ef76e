package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
)

func (a *app) releaseCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "release LOCK", Short: "Take a lock away from its holders",
		Long: `release deletes the lock, of any kind, for all its holders, and serves the waiters. It first shows the
holders and asks for the name of the lock to be typed. It also removes a key that another program left
without a TTL. The lock of an election is election/NAME.

The lease of a holder ends at its next renewal, by default within a third of its TTL, and the holder logs
who has released the lock and why. Until then, the old and the new holder may both work, and only the
fencing token keeps them apart. A lease that began after the holders were shown is not taken away. If a holder is
stuck, stop its process instead, if you can: the lock is then free after one TTL.

"noonctl describe lock" shows for a week who has released the lock, when and why.`,
		Args: exactly("LOCK"), ValidArgsFunction: a.completeNames(lockKind, 1),
		RunE: a.withClient(func(ctx context.Context, args []string) error { return a.release(ctx, args[0], yes) }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return a.withReason(cmd)
}

func (a *app) release(ctx context.Context, name string, yes bool) error {
	inspect := func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, name) }
	seen, err := ask(ctx, a, inspect)
	if err != nil {
		return err
	}
	if seen.Kind == lockcore.LockFree {
		return unknown(lockKind, name)
	}
	if !yes {
		err := a.describe(name, seen.Now, overview.Thing{Kind: overview.Locks, Lock: seen, Now: seen.Now}.Describe())
		if err == nil {
			err = a.confirm(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	released, err := ask(ctx, a, func(ctx context.Context) (int, error) { return a.client.ForceRelease(ctx, seen) })
	switch {
	case errors.Is(err, lockcore.ErrChanged):
		return errors.New("the holders have changed meanwhile; nothing was released")
	case errors.Is(err, lockcore.ErrUnknown):
		return fmt.Errorf("the lock may have been released: %w", err)
	case err != nil:
		return err
	case released == 0:
		fmt.Fprintf(a.out, "lock %s: its holders had released it before\n", show.Text(name))
	default:
		var names []string
		for _, h := range seen.Holders {
			names = append(names, overview.HolderName(h.Identity))
		}
		fmt.Fprintf(a.out, "lock %s released; it was held by %s\n", show.Text(name), show.Text(strings.Join(names, ", ")))
	}
	return nil
}

func (a *app) confirm(ctx context.Context, name string) error {
	if file, ok := a.Stdin.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return exit.Usage(errors.New("release asks for a confirmation, and the input is not a terminal; use --yes"))
	}
	fmt.Fprint(a.out, "Type the name of the lock to release it: ")
	if err := a.out.Err(); err != nil {
		return err // the user has not seen the holders
	}
	lines := make(chan string, 1)
	go func() { // a read of a terminal cannot be interrupted; it ends with the process
		line, _ := bufio.NewReader(io.LimitReader(a.Stdin, 1000)).ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	select {
	case line := <-lines:
		if line != name && line != show.Text(name) {
			return errors.New("the name does not match; nothing was released")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
