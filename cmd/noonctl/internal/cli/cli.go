package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/noonlock/noonlock/internal/certs"
	"github.com/noonlock/noonlock/internal/login"
	"github.com/noonlock/noonlock/internal/output"
	"github.com/noonlock/noonlock/internal/tlsprobe"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
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

// redisVariable is the environment variable for --redis.
const redisVariable = "NOONLOCK_REDIS"

// prefixVariable is the environment variable for --prefix.
const prefixVariable = "NOONLOCK_PREFIX"

// An app is one run of the program.
type app struct {
	Process
	out     *output.Writer // to Stdout, for everything but the commands that noonctl starts
	url     string
	tls     certs.Files
	prefix  string
	timeout time.Duration
	reason  string // of a command that controls something
	output  string // of a command with --output

	client  *lockcore.Client // nil until connect
	options *redis.UniversalOptions
	addrs   string // of the servers, without user and password

	metrics string // an address, empty: none
	master  string // the name that the Sentinels must know, empty without them

	minReplicas int // of run, elect and cron
}

// replicasFlag declares the flag of the commands that hold leases.
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
	a := &app{Process: p, out: output.To(p.Stdout)}
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
		fmt.Fprintf(p.Stderr, "noonctl: %s\n", text)
	}
	return code
}

// Root returns the root command, for the documentation.
func Root() *cobra.Command {
	return (&app{Process: Process{Getenv: func(string) string { return "" }}, out: output.To(nil)}).root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "noonctl",
		Short: "Operate the locks, elections and jobs of noonlock", Version: output.Version(),
		Long: `noonctl shows and controls the locks, elections, jobs and daemons that programs with
noonlock have on a Redis server, and runs any command under a lock, as the leader of an election, or on a schedule.

The server is given by --redis, or in the environment variable NOONLOCK_REDIS. The URL may
name one server, Sentinel or a cluster:

    redis://user:password@host:6379/0
    unix://user:password@/run/redis.sock?db=0
    redis+sentinel://user:password@host:26379,host:26379/0?master=NAME
    redis+cluster://user:password@host:6379,host:6379

With rediss instead of redis, all connections use TLS. --redis-ca, --redis-cert and --redis-key
name the certificates for a private authority, and for a server that asks for one
(tls-auth-clients, which is yes by default). Other users of the machine can see the
arguments of a process, so put a password in NOONLOCK_REDIS, or apart from the URL and not
percent-encoded in NOONLOCK_REDIS_PASSWORD, with NOONLOCK_REDIS_USERNAME and
NOONLOCK_REDIS_SENTINEL_PASSWORD. The commands of run, elect and cron inherit none of these variables.
On Linux, only root can read them in /proc.

Exit codes:

    0    done
    1    an error that has no code of its own, or standard output could not be written; doctor: a
         check failed
    64   a wrong argument or flag; nothing was sent
    65   verify: a tick did not succeed exactly once
    66   no lock, election, job or daemon has this name, or it has no such tick, leader or candidate;
         verify: the ledger keeps no ticks of this time, or a part of it has no known schedule
    69   Redis did not answer within --timeout; doctor: nothing else failed
    75   run: the lock was not acquired
    76   run: the lease ended while the command ran, and the command was stopped; elect, cron: this
         happened while they were asked to end
    77   the Redis user lacks a right, or the password is wrong
    126  run, elect, cron: their command cannot be executed
    127  run, elect, cron: their command was not found
    130  interrupted

run and elect otherwise exit with the code of their command, and with 128 + N if signal N
ended it.`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetArgs(a.Args)
	root.SetIn(a.Stdin)
	root.SetOut(a.out)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.CompletionOptions.HiddenDefaultCmd = false
	root.DisableAutoGenTag = true
	flags := root.PersistentFlags()
	flags.StringVar(&a.url, "redis", "", "URL of Redis (default: the environment variable "+redisVariable+")")
	for _, f := range a.tlsFlags() {
		flags.StringVar(f.value, f.flag, "", f.usage+" (default: the environment variable "+f.variable+")")
	}
	flags.StringVar(&a.prefix, "prefix", cmp.Or(a.Getenv(prefixVariable), "noonlock"), "first part of all keys, as in lockcore.Config.Prefix; also in "+prefixVariable)
	flags.DurationVar(&a.timeout, "timeout", 5*time.Second, "how long Redis may take to answer")
	for _, flag := range []string{"redis", "prefix", "timeout"} {
		_ = root.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	root.AddCommand(a.getCommand(), a.describeCommand(), a.historyCommand(), a.verifyCommand(), a.doctorCommand(), a.serveCommand(), a.copyCommand())
	root.AddCommand(a.actCommands()...)
	root.AddCommand(a.commandCommands()...)
	return root
}

// perKind returns a command that has one command for each kind, and does nothing without a kind.
func perKind(name, short, kinds string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage(fmt.Errorf("the kind is %q; it must be one of %s", shown(args[0]), kinds))
			}
			_ = cmd.Help()
			return usage(fmt.Errorf("%s needs one of %s", name, kinds))
		},
	}
}

// A tlsFlag names a file for TLS.
type tlsFlag struct {
	value                 *string
	flag, variable, usage string
}

func (a *app) tlsFlags() []tlsFlag {
	return []tlsFlag{
		{&a.tls.CA, "redis-ca", redisVariable + "_CA", "PEM file of the certificate authorities to trust, instead of the system's"},
		{&a.tls.Cert, "redis-cert", redisVariable + "_CERT", "PEM file of the client certificate; reloaded for each connection"},
		{&a.tls.Key, "redis-key", redisVariable + "_KEY", "PEM file of the private key of the client certificate"},
	}
}

// parse returns the options of a URL, with the certificates.
func (a *app) parse(url string) (*redis.UniversalOptions, error) {
	options, err := redisurl.Parse(url)
	if err != nil {
		return nil, err
	}
	for _, f := range a.tlsFlags() {
		*f.value = cmp.Or(*f.value, a.Getenv(f.variable))
	}
	a.master = options.MasterName
	apart := login.Login{User: a.Getenv(redisVariable + "_USERNAME"), Password: a.Getenv(redisVariable + "_PASSWORD"), SentinelPassword: a.Getenv(redisVariable + "_SENTINEL_PASSWORD")}
	if err := apart.Add(&options.Username, &options.Password, &options.SentinelPassword, options.MasterName != ""); err != nil {
		return nil, usage(fmt.Errorf("--redis: %w", err))
	}
	client, err := a.tls.Load()
	if wrong, ok := errors.AsType[*certs.Error](err); ok {
		return nil, usage(fmt.Errorf("--redis-%s: %w", wrong.File, err))
	}
	if err := client.Secure(options.TLSConfig); err != nil {
		return nil, usage(fmt.Errorf("--redis: %w", err))
	}
	return options, nil
}

func (a *app) checkTimeout() error {
	if a.timeout <= 0 {
		return usage(fmt.Errorf("--timeout is %s; it must be above 0", a.timeout))
	}
	return nil
}

// connect makes the Client. With a Logger it asks Redis a question in the background, and logs why
// there is no answer. Otherwise it sends nothing.
func (a *app) connect(ctx context.Context, cfg lockcore.Config) (closeAll func(), err error) {
	if err := a.checkTimeout(); err != nil {
		return nil, err
	}
	url := cmp.Or(a.url, a.Getenv(redisVariable))
	if url == "" {
		return nil, usage(errNoServer)
	}
	if a.options, err = a.parse(url); err != nil {
		return nil, err
	}
	a.addrs = strings.Join(a.options.Addrs, ", ")
	logs := cfg.Logger.GetSink() != nil
	cfg.Logger = cmp.Or(cfg.Logger, lockcore.Discard) // other commands print what fails
	cfg.Prefix, cfg.Identity, cfg.MinReplicas = a.prefix, cmp.Or(cfg.Identity, operator()), a.minReplicas
	if a.client, err = lockcore.NewFromOptions(a.options, cfg); err != nil {
		return nil, err
	}
	probing, stop := context.WithCancel(ctx)
	var probe sync.WaitGroup
	if logs {
		probe.Go(func() { a.logSilence(probing, cfg.Logger) })
	}
	return func() {
		stop()
		probe.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = a.client.Close(ctx) // at worst, a lock expires with its TTL
	}, nil
}

// logSilence is for commands that retry until Redis answers. The errors that the library logs do
// not say that only one side uses TLS.
func (a *app) logSilence(ctx context.Context, log logr.Logger) {
	_, err := asked(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, "noonctl") })
	if _, away := errors.AsType[*awayError](err); away || lockcore.IsTemporary(err) && ctx.Err() == nil {
		log.Info("Redis does not answer yet", "err", tlsprobe.Explain(ctx, err, a.options).Error())
	}
}

// operator returns user@host, which the history and other users see.
func operator() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}

// asks returns a command's RunE for work that asks Redis one question after another.
func (a *app) asks(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return err
		}
		defer closeAll()
		return work(cmd.Context(), args)
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
