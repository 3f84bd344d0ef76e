//go:build unix

package cli

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/command"
)

// commandCommands returns the commands that run a command of the user, and the processes of noonctl that they start.
func (a *app) commandCommands() []*cobra.Command {
	return []*cobra.Command{
		a.runCommand(), a.electCommand(), a.cronCommand(),
		{
			Use: command.GateName + " DESCRIPTOR FILE ARG...", Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				a.bounded = true
				return command.PassGate(args[0], args[1], args[2:])
			},
		},
		{
			Use: command.GuardName + " GROUP", Hidden: true,
			RunE: func(_ *cobra.Command, args []string) error { return command.KeepGuard(args[0], os.Stdin) },
		},
	}
}
