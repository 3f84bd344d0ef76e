//go:build !unix

package cli

import "github.com/spf13/cobra"

// commandCommands returns no commands: process groups and signals are needed to end a command
// before its lease.
func (a *app) commandCommands() []*cobra.Command { return nil }
