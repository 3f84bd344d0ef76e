//go:build unix && !linux

package command

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

func protect()      {}
func adoptOrphans() {}

func executable() (string, error) { return os.Executable() }

func now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every one of these systems has this clock
	return time.Duration(ts.Nano())
}

// onlyZombies returns false: on these systems, the first process waits for all orphans.
func onlyZombies(int) bool { return false }

// suspendTogether does nothing: a command that is suspended with Ctrl-Z keeps the terminal.
func suspendTogether(terminal, int) {}
