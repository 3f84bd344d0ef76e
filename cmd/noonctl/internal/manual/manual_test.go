// Package manual holds docs/NOONCTL.md to the commands of noonctl. It has a test only, which also
// writes the page:
//
//	go test ./cmd/noonctl/internal/manual -update
package manual

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/cli"
)

var update = flag.Bool("update", false, "write docs/NOONCTL.md")

func TestTheManualIsCurrent(t *testing.T) {
	t.Parallel()
	const file = "../../../../docs/NOONCTL.md"
	if *update {
		if err := os.WriteFile(file, []byte(page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
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
		"    go install github.com/noonlock/noonlock/cmd/noonctl@latest\n\n")
	b.WriteString(root.Long + "\n\n")
	b.WriteString("| command | |\n| --- | --- |\n")
	commands := runnable(root)
	for _, c := range commands {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	b.WriteString("\nAll commands have these flags:\n\n" + flags(root.PersistentFlags()))
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n    %s\n\n", c.CommandPath(), c.UseLine())
		if c.Long == "" {
			b.WriteString(c.Short + ".\n")
		} else {
			b.WriteString(c.Long + "\n")
		}
		if c.Example != "" {
			b.WriteString("\nExamples:\n\n" + indented(c.Example) + "\n")
		}
		if own := flags(c.NonInheritedFlags()); own != "" {
			b.WriteString("\n" + own)
		}
	}
	return b.String()
}

// runnable returns the commands that do something, in alphabetical order.
func runnable(root *cobra.Command) (all []*cobra.Command) {
	for _, c := range root.Commands() {
		switch {
		case c.Name() == "completion" || c.Name() == "help" || c.Hidden:
		case c.HasSubCommands():
			all = append(all, runnable(c)...)
		default:
			all = append(all, c)
		}
	}
	return all
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
