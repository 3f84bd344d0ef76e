package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/internal/console/overview"
)

// Main is Run for a process that does nothing else.
func Main(ctx context.Context, p Process) int {
	p.processes = command.Adopt(redisVariable)
	return Run(ctx, p)
}

// Run runs the program and returns its exit code.
func Run(ctx context.Context, p Process) int {
	a := newApp(p)
	root := a.root() //nolint:contextcheck // a completion uses the context of its command
	err := root.ExecuteContext(ctx)
	code, text := a.verdict(ctx, err)
	if outErr := a.out.Err(); outErr != nil {
		incomplete := "the output is not complete: " + sentence(outErr)
		switch {
		case code == exit.Done, errors.Is(err, outErr):
			code, text = exit.Failed, incomplete
		case text == "":
			text = incomplete
		default:
			text += "; " + incomplete
		}
	}
	if text != "" {
		fmt.Fprintf(a.errs, "noonctl: %s\n", text)
	}
	flushing, stop := context.WithCancel(context.WithoutCancel(ctx))
	if a.bounded {
		flushing, stop = context.WithTimeout(flushing, time.Second)
	}
	defer stop()
	a.copied.Flush(flushing)
	a.errs.Flush(flushing)
	return code
}

// Root returns the root command, for the documentation.
func Root() *cobra.Command {
	return newApp(Process{Getenv: func(string) string { return "" }}).root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "noonctl",
		Short: "Operate the locks, elections and jobs of noonlock", Version: output.Version(),
		Long: `noonctl shows and controls the locks, elections and jobs that programs with noonlock have on
Redis, and runs any command under a lock, as the leader of an election, or on a schedule.

--redis, or the environment variable NOONLOCK_REDIS, names one server, Sentinel or a cluster:

    redis://user:password@host:6379/0
    unix://user:password@/run/redis.sock?db=0
    redis+sentinel://user:password@host:26379,host:26379/0?master=NAME
    redis+cluster://user:password@host:6379,host:6379

Several --redis, or URLs with spaces between them in NOONLOCK_REDIS, are the servers of a quorum (see
lockcore.NewQuorum). run with a mutex, elect, describe lock, describe election and doctor work there.

With rediss instead of redis, all connections use TLS. --redis-ca, --redis-cert and --redis-key name
the certificates of a private authority, and those for a server that asks for one (tls-auth-clients, by default
yes). Other users of the machine see the arguments of a process, so put a password in NOONLOCK_REDIS, or
apart from the URL and not percent-encoded in NOONLOCK_REDIS_PASSWORD, with NOONLOCK_REDIS_USERNAME and
NOONLOCK_REDIS_SENTINEL_PASSWORD. The commands of run, elect and cron inherit none of these variables.
On Linux, only root can read them in /proc.

Exit codes:

    0    done
    1    another error, or standard output could not be written; doctor: a check failed
    64   a wrong argument or flag; nothing was sent
    66   this name, or its tick, leader or candidate, does not exist
    69   Redis did not answer within --timeout, or too few servers of a quorum serve
    75   run: the lock was not acquired
    76   run: the lease ended while the command ran; elect, cron: this happened during their end
    77   the Redis user lacks a right, or the password is wrong
    126  run, elect, cron: their command cannot be executed; 127: it was not found
    130  interrupted

run and elect otherwise exit with the code of their command, and with 128 + N if signal N ended it.`,
		SilenceErrors: true, SilenceUsage: true,
		Args:              cobra.NoArgs,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.begin(cmd) },
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.out)
	root.SetErr(a.errs)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.Usage(err) })
	root.CompletionOptions.HiddenDefaultCmd = false
	root.DisableAutoGenTag = true
	a.addFlags(root, a.Getenv)
	root.AddCommand(a.getCommand(), a.describeCommand(), a.historyCommand(), a.doctorCommand(), a.serveCommand(), a.copyCommand(), a.nextCommand(), a.versionCommand())
	root.AddCommand(a.releaseCommand(), a.resizeCommand(), a.forgetCommand())
	root.AddCommand(a.actCommands()...)
	root.AddCommand(a.commandCommands()...)
	refuseRepeats(root)
	return root
}

// A single is the value of a flag that may be given once.
type single struct {
	pflag.Value
	given *string
}

func (s *single) Set(text string) error {
	if s.given != nil && *s.given != text {
		return fmt.Errorf("it was given before as %q; it takes one value", *s.given)
	}
	s.given = &text
	return s.Value.Set(text)
}

// refuseRepeats makes flags with one value refuse another one.
func refuseRepeats(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.PersistentFlags(), cmd.Flags()} {
		flags.VisitAll(func(f *pflag.Flag) {
			_, known := f.Value.(*single)
			if _, several := f.Value.(pflag.SliceValue); !several && !known {
				f.Value = &single{Value: f.Value}
			}
		})
	}
	for _, c := range cmd.Commands() {
		refuseRepeats(c)
	}
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the version of noonctl, its commit and that of Go", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			built := output.Built()
			if encoded, err := a.encode(built); encoded {
				return err
			}
			lines := []overview.Cell{{Label: "version", Text: built.Version}, {Label: "commit", Text: built.Commit}, {Label: "go", Text: built.Go}}
			return a.describe("", time.Time{}, overview.Description{Lines: lines})
		},
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	return cmd
}
