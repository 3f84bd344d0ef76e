package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
	"github.com/noonlock/noonlock/cmd/noonctl/internal/show"
	"github.com/noonlock/noonlock/internal/console/output"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/lockcore"
)

// Main is Run for a process of noonctl, which can also start commands.
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

// refuseRepeats makes flags with one value refuse a second value.
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

// fieldName matches the name of a field of the library, such as JobConfig.Retry.
var fieldName = regexp.MustCompile(`\b([A-Z]\w*\.)*[A-Z]\w+`)

// otherNames has the flags whose names differ from the names of the library.
var otherNames = map[string]string{
	"Config.LeaseDuration": "lease", "JobConfig.Timeout": "run-timeout",
	"n": "slots", "name": "lock", "servers": "redis",
}

// flagOf returns the flag of the command for a field or an argument of the library, such as --retry for
// JobConfig.Retry, or "".
func (a *app) flagOf(field string) (flag string) {
	if a.flags == nil {
		return ""
	}
	own := field[strings.LastIndexByte(field, '.')+1:]
	a.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == otherNames[field] || otherNames[field] == "" && strings.EqualFold(strings.ReplaceAll(f.Name, "-", ""), own) {
			flag = "--" + f.Name
		}
	})
	return flag
}

// verdict returns the exit code for an error, and the sentence to print.
func (a *app) verdict(ctx context.Context, err error) (code int, text string) {
	if err == nil {
		return exit.Done, ""
	}
	if invalid, ok := errors.AsType[*noonlock.ConfigError](err); ok {
		if flag := a.flagOf(invalid.Field); flag != "" {
			asFlag := func(field string) string { return cmp.Or(a.flagOf(field), field) }
			rule := fieldName.ReplaceAllStringFunc(invalid.Rule, asFlag)
			return exit.Misuse, show.Text(fmt.Sprintf("%s is %s; it must be %s", flag, invalid.Value, rule))
		}
	}
	if ended, ok := errors.AsType[*exit.Error](err); ok {
		if ended.Err == nil {
			return ended.Code, ""
		}
		return ended.Code, sentence(ended.Err)
	}
	_, timedOut := errors.AsType[*timeoutError](err)
	switch {
	case isUntrusted(err):
		return exit.Failed, sentence(explain(ctx, err, a.options...))
	case hasCode(err, "MOVED"):
		return exit.Failed, fmt.Sprintf("Redis at %s is one node of a cluster; use a URL that begins with redis+cluster: %s", a.addrs, sentence(err))
	case errors.Is(err, noonlock.ErrConfig):
		return exit.Misuse, sentence(err)
	case hasCode(err, "NOPERM"):
		return exit.Forbidden, "the Redis user lacks a right: " + sentence(err)
	case hasCode(err, "NOAUTH", "WRONGPASS"):
		return exit.Forbidden, "Redis refuses the user or the password: " + sentence(err)
	case timedOut:
		return exit.NoAnswer, fmt.Sprintf("Redis at %s did not answer within %s: %s", a.addrs, a.timeout, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, lockcore.ErrNoQuorum):
		return exit.NoAnswer, fmt.Sprintf("of the servers %s, too few serve: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case lockcore.IsTemporary(err):
		return exit.NoAnswer, fmt.Sprintf("Redis at %s does not answer: %s", a.addrs, sentence(explain(ctx, err, a.options...)))
	case errors.Is(err, context.Canceled):
		return exit.Interrupted, "interrupted"
	case strings.HasPrefix(err.Error(), "unknown command "), strings.Contains(err.Error(), "arg(s)"):
		return exit.Misuse, sentence(err) // an error of cobra, which has no type for it
	}
	return exit.Failed, a.named(sentence(err))
}
