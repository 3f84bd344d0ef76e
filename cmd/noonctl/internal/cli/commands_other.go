//go:build !unix

package cli

import "github.com/spf13/cobra"

// commandCommands returns nothing, see package command.
func (a *app) commandCommands() []*cobra.Command { return nil }
