package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/internal/overview"
	"github.com/noonlock/noonlock/lockcore"
)

// Process is the environment of the program.
type Process struct {
	Args   []string // without the program's name
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	ServiceAccount string // folder of the pod's service account; empty: where Kubernetes mounts it

	processes *processes
}

type app struct {
	Process
	connection
	out     *output.Writer   // to Stdout, for everything but the commands that noonctl starts
	errs    *output.Buffer   // to Stderr, for the same
	copied  *output.Buffer   // to Stdout, for the commands of cron
	bounded bool             // output that nobody reads delays nothing
	command string           // such as describe lock
	flags   *pflag.FlagSet   // of the command
	reason  string           // of a command that controls something
	output  string           // of a command with --output
	client  *lockcore.Client // nil until connect

	noHeaders   bool   // of get
	metrics     string // an address, empty: none
	minReplicas int    // of run, elect and cron
}

func (a *app) replicasFlag(flags *pflag.FlagSet) {
	flags.IntVar(&a.minReplicas, "min-replicas", 0, "number of replicas that must acknowledge each grant, renewal and completion")
}

// Main is Run for a process that does nothing else.
func Main(ctx context.Context, p Process) int {
	p.processes = adopt()
	return Run(ctx, p)
}

// Run runs the program and returns its exit code.
func Run(ctx context.Context, p Process) int {
	a := newApp(p)
	root := a.root() //nolint:contextcheck // a completion uses the context of its command
	err := root.ExecuteContext(ctx)
	code, text := a.verdict(ctx, err)
	if lost := a.out.Err(); lost != nil {
		said := "the output is not complete: " + sentence(lost)
		switch {
		case code == exitDone, errors.Is(err, lost):
			code, text = exitFailed, said
		case text == "":
			text = said
		default:
			text += "; " + said
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

func newApp(p Process) *app {
	return &app{Process: p, out: output.To(p.Stdout), errs: output.NewBuffer(p.Stderr), copied: output.NewBuffer(p.Stdout)}
}

// logger returns the Logger of a command that logs.
func (a *app) logger() logr.Logger { return logr.FromSlogHandler(slog.NewTextHandler(a.errs, nil)) }

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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.CompletionOptions.HiddenDefaultCmd = false
	root.DisableAutoGenTag = true
	a.connectionFlags(root)
	root.AddCommand(a.getCommand(), a.describeCommand(), a.historyCommand(), a.doctorCommand(), a.serveCommand(), a.copyCommand(), a.nextCommand(), a.versionCommand())
	root.AddCommand(a.actCommands()...)
	root.AddCommand(a.commandCommands()...)
	refuseRepeats(root)
	return root
}

// begin notes which command it is, and checks the flags that several commands have.
func (a *app) begin(cmd *cobra.Command) error {
	a.command, a.flags = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), cmd.Flags()
	a.flags.AddFlagSet(cmd.InheritedFlags())
	if slices.Contains([]string{"run", "elect", "cron", "serve"}, a.command) {
		a.bounded = true
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // otherwise, a closed pipe would end noonctl
	}
	if f := cmd.Flag("output"); f != nil && !slices.Contains(f.Annotations[formatsOf], a.output) {
		return usage(fmt.Errorf("--output is %q; it must be %s", a.output, f.Usage))
	}
	if rule := input.Remark(a.reason); rule != "" {
		return usage(fmt.Errorf("--reason is %s; it must be %s", input.Quote(a.reason), rule))
	}
	return nil
}

// perKind returns a command that has one command for each kind. The arguments may also be KIND/NAME, as
// kubectl has it.
func (a *app) perKind(name, short, kinds string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Long: short + ". The arguments may also be KIND/NAME, such as " + name + " job/draw.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				_ = cmd.Help()
				return usage(fmt.Errorf("%s needs one of %s, or KIND/NAME", name, kinds))
			}
			kind, _, slash := strings.Cut(args[0], "/")
			of, names := subcommand(cmd, kind), slices.Clone(args)
			if of == nil || !slash {
				return usage(fmt.Errorf("the kind is %q; it must be one of %s, or KIND/NAME", kind, kinds))
			}
			for i, arg := range args {
				var same bool
				if names[i], same = strings.CutPrefix(arg, kind+"/"); !same {
					of, names = subcommand(cmd, "all"), args
					break
				}
			}
			if of == nil {
				return usage(fmt.Errorf("%s needs one name", name))
			}
			if of.Args != nil {
				if err := of.Args(of, names); err != nil {
					return err
				}
			}
			of.SetContext(cmd.Context())
			if err := a.begin(of); err != nil {
				return err
			}
			return of.RunE(of, names)
		},
	}
}

func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name || c.HasAlias(name) {
			return c
		}
	}
	return nil
}

// operator returns user@host, which the history and other users see.
func operator() string {
	host, _ := os.Hostname()
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + cmp.Or(host, "unknown-host")
}

// asks returns a command's RunE for work that asks Redis one question after another.
func (a *app) asks(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return err
		}
		defer closeAll()
		by := lockcore.Operator{Reason: a.reason} // who: the identity of the Client
		return work(lockcore.WithOperator(cmd.Context(), by), args)
	}
}

// errAway is the cause of a context that ended because Redis did not answer in time.
var errAway = errors.New("no answer in time")

// within returns a context that ends when Redis has not answered for --timeout. The caller
// calls answered after each answer.
func (a *app) within(ctx context.Context) (bounded context.Context, answered, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(a.timeout, func() { cancel(errAway) })
	return bounded, func() { timer.Reset(a.timeout) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// asked calls a function with a context that ends after --timeout, and marks its error if Redis
// was away.
func asked[T any](ctx context.Context, a *app, ask func(ctx context.Context) (T, error)) (T, error) {
	bounded, _, stop := a.within(ctx)
	defer stop()
	value, err := ask(bounded)
	return value, a.awayError(bounded, err)
}

// awayError marks the error of a request whose context ended because Redis did not answer.
func (a *app) awayError(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errAway) {
		return &awayError{err}
	}
	return err
}

// columns returns the width of the terminal, 0 if the output is not a terminal, or one that does not
// say its width, like a serial line.
func (a *app) columns() int {
	file, ok := a.Stdout.(*os.File)
	if !ok {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd()))
	return max(0, columns)
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
			return a.show("", time.Time{}, overview.Description{Lines: lines})
		},
	}
	a.outputFlag(cmd, asTable, asJSON, asYAML)
	return cmd
}
