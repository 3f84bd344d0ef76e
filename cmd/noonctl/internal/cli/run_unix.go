//go:build unix

package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/doctor"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/lease"
	"github.com/noonlock/noonlock/lockcore"
)

type runCall struct {
	*app
	lock, mode string
	ttl, wait  time.Duration
	slots      int
	slotsGiven bool // the lock is a semaphore
	killAfter  time.Duration
	waitGiven  bool // otherwise, run waits without limit
}

func (a *app) runCommand() *cobra.Command {
	r := &runCall{app: a}
	cmd := &cobra.Command{
		Use: "run --lock NAME [flags] -- COMMAND [ARG...]", Short: "Run a command while holding a lock",
		Long: `run acquires the lock, runs the command, and releases the lock when the command has ended. It waits in the
queue of the lock until it is free, without polling.

The command has these environment variables:

    NOONLOCK_LOCK    the name of the lock
    NOONLOCK_TOKEN   the fencing token of the lease, greater than that of every earlier one
    NOONLOCK_SLOT    with -n, the slot of the semaphore, from 0. The token fences this slot

Standard input, output and errors are those of run. The command has a process group of its own, to
which run passes on the signals HUP, INT, QUIT, TERM, USR1, USR2 and WINCH. run holds the lock until
all processes of the group have ended, including those that the command leaves behind.

If the lease ends before that, because Redis did not answer in time or somebody has released the lock, the
group gets SIGTERM, and after --kill-after SIGKILL. noonctl ends the lease --kill-after earlier than its TTL,
so the group has ended when Redis grants the lock to another client. A second process of noonctl,
command-guard, sends SIGKILL in time even if run is killed or frozen.

Not guaranteed: run does not wait for processes that run as another user or leave the group, nor end them.
setsid, "set -m" in a shell, and timeout within a script without its option --foreground make a group
of their own. Nothing is ended in time while both run and command-guard are frozen, or the machine or container. Only a
check of the token protects the resource then.`,
		Example: `  noonctl run --lock backup -- pg_dump --file /backup/db.sql db
  noonctl run --lock deploy --wait 0s -- ./deploy.sh
  noonctl run --lock catalogue --mode read --wait 30s -- ./export.sh
  noonctl run --lock gpus -n 3 -- ./train.sh`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usage(errors.New("noonctl run needs a command"))
			}
			return nil
		},
		ValidArgsFunction: cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.waitGiven, r.slotsGiven = cmd.Flags().Changed("wait"), cmd.Flags().Changed("slots")
			return r.run(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	a.replicaFlags(cmd, "name of the holder that others see")
	flags.SetInterspersed(false)
	flags.StringVar(&r.lock, "lock", "", "name of the lock (required)")
	flags.StringVar(&r.mode, "mode", "mutex", "mutex, read or write; read and write are the two sides of a read-write lock")
	flags.IntVarP(&r.slots, "slots", "n", 0, "acquire one of so many slots of a semaphore, unless another number is stored (see resize)")
	flags.DurationVar(&r.wait, "wait", 0, "how long to wait for the lock; 0s does not wait (default: without limit)")
	flags.DurationVar(&r.ttl, "ttl", 10*time.Second, "TTL of the lease: how long others wait if this machine dies")
	flags.DurationVar(&r.killAfter, "kill-after", 0, "time from SIGTERM to SIGKILL when the lease has ended (default: a fifth of --ttl)")
	_ = cmd.RegisterFlagCompletionFunc("lock", a.completeNames(lockKind, -1))
	_ = cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions([]string{"mutex", "read", "write"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// margin returns the time from SIGKILL until the lease ends on the server: the margin by which the library ends each
// lease early, and a tenth of the TTL, as a busy machine takes time to kill.
func margin(ttl time.Duration) time.Duration { return lease.Margin(ttl) + ttl/10 }

// lockers returns the functions that acquire the lock without and with waiting.
func (r *runCall) lockers() (try, lock func(ctx context.Context) (*lockcore.Lease, error), err error) {
	cfg := lockcore.LeaseConfig{TTL: r.ttl, ValidFor: r.ttl - margin(r.ttl) - r.killAfter, Wait: r.wait}
	switch {
	case r.slotsGiven && r.mode != "mutex":
		return nil, nil, exit.Usage(errors.New("run takes --slots or --mode, not both"))
	case len(r.options) > 1 && (r.slotsGiven || r.mode != "mutex"):
		return nil, nil, exit.Usage(errors.New("run with --slots or --mode works on one server, and several are given: a quorum has mutexes only"))
	case r.slotsGiven:
		s, err := r.client.Semaphore(r.lock, r.slots, cfg)
		if err != nil {
			return nil, nil, err
		}
		return s.TryAcquire, s.Acquire, nil
	}
	switch r.mode {
	case "mutex":
		m, err := r.client.Mutex(r.lock, cfg)
		if err != nil {
			return nil, nil, err
		}
		return m.TryLock, m.Lock, nil
	case "read", "write":
		owner := "noonctl-" + strings.ToLower(rand.Text()[:12])
		m, err := r.client.RWMutex(r.lock, owner, cfg)
		if err != nil {
			return nil, nil, err
		}
		if r.mode == "read" {
			return m.TryRLock, m.RLock, nil
		}
		return m.TryLock, m.Lock, nil
	}
	return nil, nil, exit.Usage(fmt.Errorf("--mode is %q; it must be mutex, read or write", r.mode))
}

func (r *runCall) run(ctx context.Context, argv []string) error {
	switch {
	case r.lock == "":
		return exit.Usage(errors.New("run needs --lock"))
	case r.wait < 0:
		return exit.Usage(fmt.Errorf("--wait is %s; it must be 0 or above", r.wait))
	case r.ttl < 100*time.Millisecond:
		return exit.Usage(fmt.Errorf("--ttl is %s; it must be at least 100ms", r.ttl))
	}
	if r.killAfter == 0 {
		r.killAfter = r.ttl / 5
	}
	if r.killAfter < 0 || r.killAfter > r.ttl/2 {
		return exit.Usage(fmt.Errorf("--kill-after is %s; it must be at most half of --ttl", r.killAfter))
	}
	if _, err := command.Find(argv); err != nil {
		return err
	}
	closeAll, serveHealth, err := r.connectReplica(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	try, lock, err := r.lockers()
	if err != nil {
		return err
	}
	use := doctor.UseMutex
	if r.slotsGiven || r.mode != "mutex" {
		use = doctor.UseOwned
	}
	err = serveHealth(healthz.Checker{Name: "redis", Check: func(ctx context.Context) error { return doctor.CheckRights(ctx, r.client, r.lock, use) }})
	if err != nil {
		return err
	}
	signals, waiting, stop := command.Signals(ctx)
	defer stop()
	lease, err := r.acquire(waiting, try, lock)
	if err != nil {
		if waiting.Err() != nil {
			return command.EndedBy(waiting)
		}
		return err
	}
	env := []string{"NOONLOCK_LOCK=" + r.lock, "NOONLOCK_TOKEN=" + strconv.FormatUint(lease.Token(), 10)}
	if lease.Slot() >= 0 {
		env = append(env, "NOONLOCK_SLOT="+strconv.Itoa(lease.Slot()))
	}
	c, err := r.processes.Prepare(argv, env, command.Streams{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr})
	if err != nil {
		_ = r.unlock(ctx, lease)
		return err
	}
	code, endErr := c.Supervise(command.Watch{Context: lease.Context(), Remaining: lease.Remaining, Grace: r.killAfter}, signals)
	cause := context.Cause(lease.Context()) //nolint:contextcheck // the context of the lease
	err = r.unlock(ctx, lease)
	switch {
	case errors.Is(endErr, command.ErrUnguarded):
		return endErr
	case endErr != nil || errors.Is(err, lockcore.ErrNotHeld):
		return &exit.Error{Code: exit.Lost, Err: fmt.Errorf("the lease of the lock %q ended while the command ran: %w", r.lock, cmp.Or(cause, err))}
	case err != nil:
		fmt.Fprintf(r.errs, "noonctl: %s\n", sentence(err)) // the lock expires with its TTL
	}
	return &exit.Error{Code: code}
}

// acquire acquires the lock. Its first try does not wait, so that an outage of Redis is soon reported.
func (r *runCall) acquire(ctx context.Context, try, lock func(ctx context.Context) (*lockcore.Lease, error)) (*lockcore.Lease, error) {
	lease, err := ask(ctx, r.app, try)
	if _, timedOut := errors.AsType[*timeoutError](err); err == nil || timedOut || !errors.Is(err, lockcore.ErrNotAcquired) {
		return lease, err
	}
	within := "at once"
	if !r.waitGiven || r.wait > 0 {
		within = "within " + r.wait.String()
		lease, err = lock(ctx)
		if err == nil || !errors.Is(err, lockcore.ErrNotAcquired) || ctx.Err() != nil {
			return lease, err
		}
	}
	if held, ok := errors.AsType[*lockcore.HeldError](err); ok {
		err = held // the other errors add nothing
	}
	return nil, &exit.Error{Code: exit.NotAcquired, Err: fmt.Errorf("the lock %q was not acquired %s: %w", r.lock, within, err)}
}

func (r *runCall) unlock(ctx context.Context, lease *lockcore.Lease) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout)
	defer cancel()
	return lease.Unlock(ctx)
}
