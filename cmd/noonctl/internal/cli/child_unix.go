//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/noonlock/noonlock/lockcore"
)

// passedOn are the signals that a command gets when noonctl gets them.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// A signals receives the signals of the program.
type signals struct {
	received chan os.Signal
}

// A signalError is the cause of a context that a signal has ended.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return e.String() }

// receiveSignals begins to receive signals, and returns a context that ends with the first one
// that asks the program to end. A signal that is ignored, as by nohup, stays ignored.
func receiveSignals(ctx context.Context) (s *signals, asked context.Context, stop func()) {
	s = &signals{received: make(chan os.Signal, 16)}
	asked, end := context.WithCancelCause(ctx)
	all := slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)
	arrived := make(chan os.Signal, 16)
	signal.Notify(arrived, all...)
	quit := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-arrived:
				if n := sig.(syscall.Signal); n == syscall.SIGHUP || n == syscall.SIGINT || n == syscall.SIGQUIT || n == syscall.SIGTERM {
					end(signalError{n})
				}
				select {
				case s.received <- sig:
				default: // nobody reads, because no command runs
				}
			case <-quit:
				return
			}
		}
	}()
	return s, asked, func() {
		signal.Stop(arrived)
		close(quit)
		end(nil)
	}
}

// endedBy returns the error for a program that a signal has ended, as a shell reports it.
func endedBy(ctx context.Context) error {
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return &exitError{128 + int(sig.Signal), fmt.Errorf("ended by the signal %q", sig.String())}
	}
	return ctx.Err()
}

// A child is the process of a command, in a process group of its own. If noonctl dies, the
// system kills the child, where it can (Linux).
type child struct {
	pid  int
	done chan struct{}
	err  error // of Wait

	terminal int // descriptor of the terminal that the group has in the foreground, -1: none
}

// start starts a command. Its input, output and errors are those of noonctl.
func (a *app) start(argv, env []string) (*child, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.Stdin, a.Stdout, a.Stderr
	c := &child{done: make(chan struct{}), terminal: -1}
	cmd.WaitDelay = time.Second // for output that is copied: what the command leaves behind may keep it open
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieTogether(cmd.SysProcAttr)
	if file, ok := a.Stdin.(*os.File); ok && inForeground(int(file.Fd())) {
		// Otherwise, the command could not read from the terminal.
		c.terminal = int(file.Fd())
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, c.terminal
		signal.Ignore(syscall.SIGTTOU) // noonctl takes the terminal back from the background
	}
	started := make(chan error, 1)
	go func() {
		// The system sends the signal of the parent's death when this thread ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	err := <-started
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, &exitError{exitNotFound, err}
	case err != nil:
		return nil, &exitError{exitNotRunnable, err}
	}
	c.pid = cmd.Process.Pid
	if c.terminal >= 0 {
		go c.suspendTogether()
	}
	return c, nil
}

// inForeground reports whether a descriptor is a terminal with noonctl in its foreground.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// foreground gives the terminal to a process group.
func (c *child) foreground(group int) {
	if c.terminal >= 0 {
		_ = unix.IoctlSetPointerInt(c.terminal, unix.TIOCSPGRP, group)
	}
}

// signal sends a signal to the whole group. Processes that the command has started are
// among them.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// A guard says how long a command may run.
type guard struct {
	// ctx ends when the command must end.
	ctx context.Context
	// valid reports whether the lease is valid at this moment.
	valid func() bool
	// grace is the time from the local end of the lease until the server may hand it to
	// another client.
	grace time.Duration
	// elapsed is the clock of the lease.
	elapsed func() time.Duration
	// killAfter is the time from SIGTERM to SIGKILL when the context ends for another reason
	// than the lease. 0 means no limit.
	killAfter time.Duration
}

// looks is the time between two looks at the clock of the lease. After a pause of the process
// they show how long ago the lease ended.
const looks = 50 * time.Millisecond

// supervise waits until the command has ended, and returns its exit code. When the context of
// the guard ends, the command gets SIGTERM. If it ended because the lease ended, the command gets
// SIGKILL before another client may get the lock, and lost is the cause.
func (c *child) supervise(g guard, s *signals) (code int, lost error) {
	tick := time.NewTicker(looks)
	defer tick.Stop()
	valid := g.elapsed()
	ended := g.ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case <-c.done:
			c.foreground(unix.Getpgrp())
			if lost != nil {
				c.signal(syscall.SIGKILL) // what the command has left behind
			}
			return exitCode(c.err), lost
		case sig := <-s.received:
			c.signal(sig.(syscall.Signal))
		case <-tick.C:
			now := g.elapsed()
			if g.ctx.Err() == nil && g.valid() {
				valid = now
			}
		case <-ended:
			ended = nil
			cause := context.Cause(g.ctx)
			if errors.Is(cause, lockcore.ErrLeaseLost) || errors.Is(cause, lockcore.ErrLeaseExpired) {
				lost = cause
				kill = time.After(valid + g.grace - g.elapsed())
			}
			if lost == nil && g.killAfter > 0 {
				kill = time.After(g.killAfter)
			}
			if _, signaled := errors.AsType[signalError](cause); !signaled { // it has got that signal
				c.signal(syscall.SIGTERM)
			}
			c.signal(syscall.SIGCONT) // if it is stopped, it cannot end
		case <-kill:
			c.signal(syscall.SIGKILL)
		}
	}
}

// exitCode returns the exit code of a command as a shell reports it.
func exitCode(err error) int {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return exitDone
	case !ok:
		return exitFailed // its output could not be copied
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}
