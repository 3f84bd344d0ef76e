//go:build unix && !linux

package cli

import "syscall"

// dieTogether does nothing: only Linux has a signal for the death of a parent.
func dieTogether(*syscall.SysProcAttr) {}

// suspendTogether does nothing: a command that is suspended with Ctrl-Z keeps the terminal.
func (c *child) suspendTogether() {}
