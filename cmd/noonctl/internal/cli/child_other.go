//go:build !unix

package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// processes are none.
type processes struct{}

func adopt() *processes { return nil }

// commandCommands returns commands that refuse to run: process groups and signals are needed to end a
// command before its lease.
func (a *app) commandCommands() (all []*cobra.Command) {
	for _, name := range []string{"run", "elect", "cron"} {
		all = append(all, &cobra.Command{
			Use: name, Hidden: true, DisableFlagParsing: true,
			RunE: func(*cobra.Command, []string) error {
				return usage(fmt.Errorf("%s needs process groups and signals, which %s does not have", name, runtime.GOOS))
			},
		})
	}
	return all
}
