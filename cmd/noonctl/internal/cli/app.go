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
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/lockcore"
)

// Process is the environment of the program.
type Process struct {
	Args   []string // without the program's name
	Getenv func(string) string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	ServiceAccount string // folder of the pod's service account (default: podlabel.Account)

	processes *command.Processes
}

// An app is one call of noonctl.
type app struct {
	Process
	servers
	out     *output.Writer // Stdout of noonctl itself
	errs    *output.Buffer // Stderr of noonctl itself
	copied  *output.Buffer // Stdout of the commands of cron
	bounded bool           // at exit, unread output is waited for only a second
	command string         // path of the command, such as describe lock
	flags   *pflag.FlagSet
	client  *lockcore.Client // nil until connect

	reason      string // --reason
	output      string // --output
	noHeaders   bool   // --no-headers
	identity    string // --identity
	metrics     string // --metrics
	minReplicas int    // --min-replicas
}

func newApp(p Process) *app {
	return &app{Process: p, out: output.To(p.Stdout), errs: output.NewBuffer(p.Stderr), copied: output.NewBuffer(p.Stdout)}
}

func (a *app) logger() logr.Logger { return logr.FromSlogHandler(slog.NewTextHandler(a.errs, nil)) }

// begin records the command, and checks the flags that several commands have.
func (a *app) begin(cmd *cobra.Command) error {
	a.command, a.flags = strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), cmd.Flags()
	a.flags.AddFlagSet(cmd.InheritedFlags())
	if slices.Contains([]string{"run", "elect", "cron", "serve"}, a.command) {
		a.bounded = true
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // otherwise, a closed pipe would end noonctl
	}
	if f := cmd.Flag("output"); f != nil && !slices.Contains(f.Annotations[formatsAnnotation], a.output) {
		return exit.Usage(fmt.Errorf("--output is %q; it must be %s", a.output, f.Usage))
	}
	if rule := input.Remark(a.reason); rule != "" {
		return exit.Usage(fmt.Errorf("--reason is %s; it must be %s", input.Quote(a.reason), rule))
	}
	return nil
}

const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
	asName  = "name"
)

const formatsAnnotation = "formats" // has the formats of --output

func (a *app) withReason(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.reason, "reason", "", "why; it is logged and recorded together with user@host")
	return cmd
}

func (a *app) outputFlag(cmd *cobra.Command, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(&a.output, "output", "o", asTable, strings.Join(formats[:last], ", ")+" or "+formats[last])
	_ = cmd.Flags().SetAnnotation("output", formatsAnnotation, formats)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) encode(v any) (encoded bool, err error) {
	switch a.output {
	case asJSON:
		err = show.JSON(a.out, v)
	case asYAML:
		err = show.YAML(a.out, v)
	default:
		return false, nil
	}
	return true, errors.Join(err, a.out.Err())
}

func (a *app) describe(name string, now time.Time, d overview.Description) error {
	show.Description(a.out, name, now, d, a.columns())
	return a.out.Err()
}

// columns returns the width of the terminal, or 0 without a terminal of known width.
func (a *app) columns() int {
	file, ok := a.Stdout.(*os.File)
	if !ok {
		return 0
	}
	columns, _, _ := term.GetSize(int(file.Fd()))
	return max(0, columns)
}

// byteOrderMark is at the start of files that some editors write.
const byteOrderMark = "\ufeff"

func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return exit.Usage(fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(names, " and ")))
		}
		return nil
	}
}

// operator returns user@host.
func operator() string {
	host, _ := os.Hostname()
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + cmp.Or(host, "unknown-host")
}

// connect makes the Client. With a Logger, it sends one request in the background, and logs why Redis does not answer.
// Otherwise it sends nothing.
func (a *app) connect(ctx context.Context, cfg lockcore.Config) (closeAll func(), err error) {
	if err := a.locate(a.command, a.minReplicas); err != nil {
		return nil, err
	}
	logs := cfg.Logger.GetSink() != nil
	cfg.Logger = cmp.Or(cfg.Logger, lockcore.Discard) // other commands print what fails
	cfg.Prefix, cfg.Identity, cfg.MinReplicas = a.prefix, cmp.Or(cfg.Identity, operator()), a.minReplicas
	if len(a.options) == 1 {
		a.client, err = lockcore.NewFromOptions(a.options[0], cfg)
	} else {
		var all []redis.UniversalClient
		for _, options := range a.options {
			rdb := redis.NewUniversalClient(options)
			defer rdb.Close() // it only has the options; lockcore makes the connections
			all = append(all, rdb)
		}
		a.client, err = lockcore.NewQuorum(all, lockcore.QuorumConfig{Config: cfg, List: a.list, MaxTTL: a.maxTTL})
	}
	if err != nil {
		return nil, err
	}
	probing, stop := context.WithCancel(ctx)
	var probe sync.WaitGroup
	if logs && a.command != "run" { // run ends with the error of its first request
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

// logSilence logs why Redis does not answer, for commands that retry until it does. The errors that the library logs
// do not say that only one side uses TLS, and which flag is for a private authority.
func (a *app) logSilence(ctx context.Context, log logr.Logger) {
	_, err := ask(ctx, a, func(ctx context.Context) (lockcore.Inspection, error) { return a.client.Inspect(ctx, "noonctl") })
	if _, timedOut := errors.AsType[*timeoutError](err); timedOut || (lockcore.IsTemporary(err) || isUntrusted(err)) && ctx.Err() == nil {
		log.Info("Redis does not answer yet", "err", explain(ctx, err, a.options...).Error())
	}
}

// withClient returns the RunE of a command that needs the Client.
func (a *app) withClient(work func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		closeAll, err := a.connect(cmd.Context(), lockcore.Config{})
		if err != nil {
			return err
		}
		defer closeAll()
		by := lockcore.Operator{Reason: a.reason} // an empty name means the identity of the Client
		return work(lockcore.WithOperator(cmd.Context(), by), args)
	}
}

// within returns a context that ends --timeout after the last call of answered.
func (a *app) within(ctx context.Context) (bounded context.Context, answered, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(a.timeout, func() { cancel(errTimeout) })
	return bounded, func() { timer.Reset(a.timeout) }, func() {
		timer.Stop()
		cancel(nil)
	}
}

// markTimeout returns a *timeoutError if err is the error of a request whose context errTimeout has ended.
func markTimeout(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return &timeoutError{err}
	}
	return err
}

// ask calls a function with a context that ends after --timeout.
func ask[T any](ctx context.Context, a *app, call func(ctx context.Context) (T, error)) (T, error) {
	bounded, _, stop := a.within(ctx)
	defer stop()
	value, err := call(bounded)
	return value, markTimeout(bounded, err)
}
