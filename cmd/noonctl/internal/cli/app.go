package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
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
	bounded bool           // unread output delays no exit
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
	if f := cmd.Flag("output"); f != nil && !slices.Contains(f.Annotations[formatsOf], a.output) {
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

const formatsOf = "formats"

func (a *app) withReason(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&a.reason, "reason", "", "why; it is logged and recorded together with user@host")
	return cmd
}

func (a *app) outputFlag(cmd *cobra.Command, formats ...string) {
	last := len(formats) - 1
	cmd.Flags().StringVarP(&a.output, "output", "o", asTable, strings.Join(formats[:last], ", ")+" or "+formats[last])
	_ = cmd.Flags().SetAnnotation("output", formatsOf, formats)
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

// byteOrderMark is what some editors put before a text.
const byteOrderMark = "\ufeff"

func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return exit.Usage(fmt.Errorf("%s needs %s", cmd.CommandPath(), strings.Join(names, " and ")))
		}
		return nil
	}
}
