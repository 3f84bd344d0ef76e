// Package manual holds docs/NOONCTL.md to the commands of noonctl. It has a test only, which also
// writes the page:
//
//	go test ./cmd/noonctl/internal/manual -update
package manual

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

var update = flag.Bool("update", false, "write docs/NOONCTL.md")

func TestTheManualIsCurrent(t *testing.T) {
	t.Parallel()
	const file = "../../../../docs/NOONCTL.md"
	if *update {
		testenv.Must(t, os.WriteFile(file, []byte(page()), 0o644))
	}
	committed := testenv.Call(os.ReadFile(file)).Must(t)
	if string(committed) != page() {
		t.Error(`docs/NOONCTL.md is out of date; run "go test ./cmd/noonctl/internal/manual -update"`)
	}
}

// page returns the text of docs/NOONCTL.md.
func page() string {
	var b strings.Builder
	root := cli.Root()
	root.InitDefaultCompletionCmd()
	b.WriteString("# noonctl\n\n" +
		"This page is generated from the commands: `go test ./cmd/noonctl/internal/manual -update`.\n\n" +
		"    go install github.com/noonlock/noonlock/cmd/noonctl@latest\n\n" +
		"In a clone, `go build ./cmd/noonctl` builds it.\n\n")
	b.WriteString(root.Long + "\n\n")
	b.WriteString("| command | |\n| --- | --- |\n")
	commands := shown(root)
	for _, c := range commands {
		for _, one := range append(shown(c), c) {
			if link := strings.ReplaceAll(c.CommandPath(), " ", "-"); one != c || !c.HasSubCommands() {
				fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", one.CommandPath(), link, one.Short)
			}
		}
	}
	b.WriteString("\nAll commands have these flags:\n\n" + flags(root.PersistentFlags()))
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		own := pflag.NewFlagSet("", pflag.PanicOnError)
		for _, one := range append(shown(c), c) {
			if own.AddFlagSet(one.NonInheritedFlags()); one != c || !c.HasSubCommands() {
				b.WriteString("    " + one.UseLine() + "\n")
			}
		}
		b.WriteString("\n" + cmp.Or(c.Long, c.Short+".") + "\n")
		if c.Example != "" {
			b.WriteString("\nExamples:\n\n" + indented(c.Example) + "\n")
		}
		if own := flags(own); own != "" {
			b.WriteString("\n" + own)
		}
	}
	return b.String()
}

// shown returns the commands of a command, in alphabetical order.
func shown(c *cobra.Command) []*cobra.Command {
	return slices.DeleteFunc(slices.Clone(c.Commands()), func(c *cobra.Command) bool { return c.Name() == "completion" || c.Name() == "help" || c.Hidden })
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}

func flags(set *pflag.FlagSet) string {
	var b strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fallback := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" {
			fallback = " (default: " + f.DefValue + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s%s |\n", name, f.Usage, fallback)
	})
	if b.Len() == 0 {
		return ""
	}
	return "| flag | |\n| --- | --- |\n" + b.String()
}
