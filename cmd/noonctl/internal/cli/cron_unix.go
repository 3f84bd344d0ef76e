//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/schedule"
)

// Exit codes of the command: the run is tried again, or its outcome is unknown (default of --unknown-code).
const codeTryAgain, codeUnknownOutcome = 75, 76

type cronCall struct {
	*app
	zone, catchUp string

	job         singleton.JobConfig
	ttl, drain  time.Duration
	killAfter   time.Duration
	unknownCode int
	file        string // path of the crontab
	maxRuns     int    // concurrent runs

	stopping context.Context        // ends with the first signal to stop
	lost     atomic.Pointer[string] // job whose lease was lost while stopping: the exit code must say so
}

var catchUps = map[string]singleton.CatchUp{"latest": singleton.CatchUpLatest, "all": singleton.CatchUpAll}

func (a *app) cronCommand() *cobra.Command {
	c := &cronCall{app: a}
	cmd := &cobra.Command{
		Use: "cron [flags] (NAME SCHEDULE -- COMMAND [ARG...] | --file FILE)", Short: "Run commands on schedules, on one of many replicas",
		Long: `cron is started on every replica with the same arguments, or the same file. When a tick of the schedule is due, one
replica runs the command. If that replica dies, another one runs it again. The schedule is a cron
expression such as "0 12 * * *", or "@every 10m"; "noonctl next" shows its ticks. The job is one of package singleton: get jobs,
history, pause, resume and trigger work with it.

A crontab file has a name before each schedule: NAME SCHEDULE COMMAND. sh -c runs the command. Unlike in a file of cron(8),
lines cannot set variables or name users, and % has no special meaning. The schedule has no seconds and no years. Empty
lines and lines that begin with # are skipped. The flags apply to all jobs; CRON_TZ=ZONE before a schedule replaces
--time-zone. The file is read once. If only a command changes, change --revision, too; otherwise replicas with the old
file may run the old command.

The command has these environment variables:

    NOONLOCK_JOB       the name of the job
    NOONLOCK_TICK      the scheduled instant, such as 2026-01-02T12:00:00Z; of a triggered run,
                       when it was requested
    NOONLOCK_TRIGGERED true if the run was triggered, otherwise false
    NOONLOCK_ATTEMPT   the number of the attempt at this tick, from 1
    NOONLOCK_TOKEN     the fencing token, greater than that of every earlier holder
    NOONLOCK_KEY       an idempotency key, the same for all attempts at this tick
    NOONLOCK_ID, NOONLOCK_PAYLOAD   those of "noonctl trigger --at", otherwise empty

Its exit code is the outcome:

    0    succeeded
    75   failed; the command is tried again, up to --max-attempts
    76   unknown: it cannot tell whether it took effect (--unknown-code chooses another code). It
         is tried again, and if no attempt succeeds, the tick is recorded as unknown
    any other code, or a signal: failed, and not tried again

The history contains the end of its standard error. cron copies both outputs of the command to its own. If
nobody has read them for a second, or they cannot be written, it drops what the command prints, and prints how
many bytes it has dropped as soon as somebody reads again.

If the lease of the run ends, the process group of the command gets SIGTERM, and SIGKILL after a fifth of
--ttl. noonctl ends the lease that much earlier than its TTL, so the command has ended when another replica
may start. At --run-timeout, it gets SIGTERM, and SIGKILL after --kill-after. On HUP, INT, QUIT or TERM, cron
claims no further tick. A command that still runs after --drain gets SIGTERM. As with run, the command has
ended when all processes of its group have: the next attempt waits for them.`,
		Example: `  noonctl cron --file /etc/noonctl/crontab --max-concurrent-runs 10
  noonctl cron backup "0 3 * * *" --time-zone Europe/Paris --run-timeout 1h -- ./backup.sh
  noonctl cron poll "@every 30s" --max-attempts 1 -- curl --fail https://example.com/poll`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch isJob := cmd.ArgsLenAtDash() == 2 && len(args) > 2; {
			case c.file != "" && len(args) > 0:
				return exit.Usage(errors.New("noonctl cron takes --file, or a NAME, a SCHEDULE and a command, not both"))
			case c.file == "" && !isJob:
				return exit.Usage(errors.New("noonctl cron needs a NAME, a SCHEDULE, and -- before a command, or --file"))
			}
			return nil
		},
		ValidArgsFunction: a.completeNames(jobKind, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return c.run(cmd.Context(), []cronJob{{name: args[0], spec: args[1], argv: args[2:]}})
			}
			jobs, err := a.readCrontab(c.file)
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), jobs)
		},
	}
	flags := cmd.Flags()
	a.replicaFlags(cmd, "name of this replica in the history")
	flags.StringVar(&c.zone, "time-zone", "UTC", "time zone of the schedule, such as Europe/Paris")
	flags.DurationVar(&c.job.Timeout, "run-timeout", 0, "how long one attempt may take (default: without limit)")
	flags.IntVar(&c.job.MaxAttempts, "max-attempts", 5, "number of attempts at a tick, over all replicas")
	flags.DurationVar(&c.job.Retry, "retry", time.Second, "pause after a failed attempt; it doubles each time, up to a minute")
	flags.DurationVar(&c.job.StartingDeadline, "starting-deadline", 0, "how late a tick may begin (default: without limit)")
	flags.BoolVar(&c.job.AllowOverlap, "allow-overlap", false, "run a tick although an earlier one still runs")
	flags.IntVar(&c.job.KeepRuns, "keep-runs", 0, "number of entries in the history (default: 100)")
	flags.StringVar(&c.catchUp, "catch-up", "latest", "which missed ticks run late: latest or all")
	_ = cmd.RegisterFlagCompletionFunc("catch-up", cobra.FixedCompletions([]string{"latest", "all"}, cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&c.file, "file", "", "crontab file with a name before each schedule; - is standard input")
	flags.IntVar(&c.maxRuns, "max-concurrent-runs", 0, "number of runs at a time on this replica, of all jobs (default: without limit)")
	flags.IntVar(&c.job.Revision, "revision", 0, "a number; change it so that older replicas do not run the job any more")
	flags.IntVar(&c.unknownCode, "unknown-code", codeUnknownOutcome, "exit code for an unknown outcome")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "how long the other replicas wait if this one dies")
	flags.DurationVar(&c.drain, "drain", 20*time.Second, "how long the command may continue after a signal to cron")
	flags.DurationVar(&c.killAfter, "kill-after", 10*time.Second, "time from SIGTERM to SIGKILL")
	return cmd
}

func (c *cronCall) run(ctx context.Context, jobs []cronJob) error {
	var err error
	var known bool
	c.job.TimeZone, err = parseZone(c.zone)
	c.job.CatchUp, known = catchUps[c.catchUp]
	switch {
	case err != nil:
		return err
	case !known:
		return exit.Usage(fmt.Errorf("--catch-up is %q; it must be latest or all", c.catchUp))
	case c.job.MaxAttempts < 1:
		return exit.Usage(fmt.Errorf("--max-attempts is %d; it must be at least 1", c.job.MaxAttempts))
	case c.unknownCode < 1 || c.unknownCode > 255 || c.unknownCode == codeTryAgain:
		return exit.Usage(fmt.Errorf("--unknown-code is %d; it must be from 1 to 255, and not 75, which means that the command failed", c.unknownCode))
	case c.ttl < 100*time.Millisecond:
		return exit.Usage(fmt.Errorf("--ttl is %s; it must be at least 100ms", c.ttl))
	case c.drain <= 0 || c.killAfter <= 0:
		return exit.Usage(errors.New("--drain and --kill-after must be above 0"))
	}
	for _, j := range jobs {
		if _, err = schedule.Parse(j.spec, schedule.Config{TimeZone: c.job.TimeZone, Name: j.name}); err != nil {
			return j.invalid(err)
		}
	}
	if _, err := command.Find(jobs[0].argv); err != nil { // all jobs of a file use the same shell
		return err
	}
	closeAll, serveHealth, err := c.connectReplica(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	runner, err := singleton.NewRunner(c.client, singleton.Config{
		TTL: c.ttl, ValidFor: c.ttl - margin(c.ttl) - c.grace(), Drain: c.drain, ShutdownTimeout: c.drain + c.killAfter + 10*time.Second,
		MaxConcurrentRuns: c.maxRuns,
	})
	if err != nil {
		return err
	}
	for _, j := range jobs {
		work := func(ctx context.Context, run singleton.Run) error { return c.attempt(ctx, run, j.argv) }
		if err := runner.Add(j.name, j.spec, work, c.job); err != nil {
			return j.invalid(err)
		}
	}
	err = serveHealth(healthz.Ready("job", runner.Ready), healthz.Overdue("job", runner.Check, c.killAfter+c.ttl))
	if err != nil {
		return err
	}
	_, stopping, stop := command.Signals(ctx) // cron passes no signals on to its commands
	defer stop()
	c.stopping = stopping
	c.logger().Info("noonctl begins", "version", output.Version())
	err = runner.Run(stopping)
	if job := c.lost.Load(); err == nil && job != nil {
		return &exit.Error{Code: exit.Lost, Err: fmt.Errorf("the lease of a run of %q ended while the command ran", *job)}
	}
	return err
}

// grace returns the time from the end of a lease to SIGKILL. The server's TTL ends after the SIGKILL.
func (c *cronCall) grace() time.Duration { return c.ttl / 5 }

// An attemptError tells package singleton whether to try again.
type attemptError struct {
	error
	permanent, unknown bool
}

// Permanent reports whether no other attempt is made.
func (e *attemptError) Permanent() bool { return e.permanent }

// OutcomeUnknown reports whether the command cannot tell if it took effect.
func (e *attemptError) OutcomeUnknown() bool { return e.unknown }

// attempt runs the command once. Its outputs are Waiting: a reader that is slow, but reads each second, loses
// nothing, and delays the command.
func (c *cronCall) attempt(ctx context.Context, run singleton.Run, argv []string) error {
	var stderr tail
	tick := singleton.RunID{Tick: run.Tick}.Name() // the instant; the name of a triggered run would have a prefix
	child, err := c.processes.Prepare(argv, []string{
		"NOONLOCK_JOB=" + run.Job, "NOONLOCK_TICK=" + tick, "NOONLOCK_TRIGGERED=" + strconv.FormatBool(run.Triggered),
		"NOONLOCK_ATTEMPT=" + strconv.Itoa(run.Attempt),
		"NOONLOCK_TOKEN=" + strconv.FormatUint(run.Token, 10), "NOONLOCK_KEY=" + run.Key(),
		"NOONLOCK_ID=" + run.ID, "NOONLOCK_PAYLOAD=" + run.Payload,
	}, command.Streams{Stdout: c.copied.Waiting(), Stderr: io.MultiWriter(&stderr, c.errs.Waiting())})
	if err != nil {
		return &attemptError{error: err, permanent: !command.IsSystemFull(err)}
	}
	code, err := child.Supervise(command.Watch{Context: ctx, Remaining: lockcore.FromContext(ctx).Remaining, Grace: c.grace(), KillAfter: c.killAfter}, nil)
	if errors.Is(err, command.ErrLost) && c.stopping.Err() != nil {
		c.lost.Store(&run.Job)
	}
	switch {
	case errors.Is(err, command.ErrUnguarded): // noonctl has killed the command, which may have taken effect
		return &attemptError{error: err, unknown: true}
	case ctx.Err() != nil && code != exit.Done:
		return fmt.Errorf("exit code %d: %w", code, context.Cause(ctx))
	case code == exit.Done:
		return nil
	}
	text := fmt.Sprint("exit code ", code)
	if printed := strings.TrimSpace(string(bytes.ToValidUTF8(stderr, nil))); printed != "" {
		text += ": " + printed
	}
	return &attemptError{error: errors.New(text), permanent: code != codeTryAgain && code != c.unknownCode, unknown: code == c.unknownCode}
}

// A tail keeps the last maxTail bytes that are written to it.
type tail []byte

const maxTail = 500

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = slices.Delete(*t, 0, max(0, len(*t)-maxTail))
	return len(p), nil
}
