//go:build unix

package command

import "golang.org/x/sys/unix"

// A terminal is the descriptor of the terminal that a command shares with noonctl, or noTerminal.
type terminal int

const noTerminal terminal = -1

// isOurs reports whether noonctl is in the foreground.
func (t terminal) isOurs() bool {
	group, err := unix.IoctlGetInt(int(t), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// give puts a process group in the foreground.
func (t terminal) give(group int) {
	if t != noTerminal {
		_ = unix.IoctlSetPointerInt(int(t), unix.TIOCSPGRP, group)
	}
}

// takeBack puts noonctl in the foreground.
func (t terminal) takeBack() { t.give(unix.Getpgrp()) }
