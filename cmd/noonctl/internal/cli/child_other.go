//go:build !unix

package cli

import "github.com/spf13/cobra"

type processes struct{}

func adopt() *processes { return nil }

// commandCommands returns nothing: process groups and signals are needed to end a command before its lease.
func (a *app) commandCommands() []*cobra.Command { return nil }
