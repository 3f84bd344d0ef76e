package cli

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieTogether makes the system kill the command if noonctl dies.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// suspendTogether suspends noonctl when the command is suspended at its terminal (Ctrl-Z), so
// that the shell continues, and continues the command when the shell continues noonctl. The
// lease is not renewed meanwhile.
func (c *child) suspendTogether() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	for {
		err := unix.Waitid(unix.P_PID, c.pid, nil, unix.WSTOPPED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // it has ended
		}
		c.foreground(unix.Getpgrp())
		select {
		case <-continued: // an earlier one
		default:
		}
		_ = syscall.Kill(0, syscall.SIGTSTP)
		// Another thread may get the signal, and this one may continue until then. Without a
		// shell that could continue noonctl, the system ignores the signal.
		select {
		case <-continued:
		case <-time.After(time.Second):
		}
		// The shell has continued noonctl, in the foreground or in the background.
		if inForeground(c.terminal) {
			c.foreground(c.pid)
		}
		c.signal(syscall.SIGCONT)
	}
}
