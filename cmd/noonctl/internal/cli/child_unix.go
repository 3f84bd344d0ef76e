//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that a command gets when noonctl gets them.
var passedOn = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// A signalError is the cause of a context that a signal has ended.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return e.String() }

// receiveSignals begins to receive signals, and returns a context that ends with the first one
// that asks the program to end. A signal that is ignored, as by nohup, stays ignored.
func receiveSignals(ctx context.Context) (received chan os.Signal, asked context.Context, stop func()) {
	received, arrived := make(chan os.Signal, 16), make(chan os.Signal, 16)
	asked, end := context.WithCancelCause(ctx)
	signal.Notify(arrived, slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)...)
	go func() {
		for sig := range arrived {
			if n := sig.(syscall.Signal); n == syscall.SIGHUP || n == syscall.SIGINT || n == syscall.SIGQUIT || n == syscall.SIGTERM {
				end(signalError{n})
			}
			select {
			case received <- sig:
			default: // nobody reads, because no command runs
			}
		}
	}()
	return received, asked, func() {
		signal.Stop(arrived) // and nothing is sent to it any more
		close(arrived)
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

// A child is the process of a command, in a process group of its own. It has ended when all
// processes of its group have.
type child struct {
	gate  *gate
	guard *guard
	pid   int // and the number of the group
	done  <-chan syscall.WaitStatus

	look     time.Duration  // when onlyZombies is called next
	zombies  bool           // what it returned
	pipes    []*os.File     // whose content is copied to Stdout and Stderr
	copies   sync.WaitGroup // of the pipes
	terminal int            // descriptor of the terminal that the group has in the foreground, -1: none
}

// start prepares a command, which supervise starts. Its input, output and errors are those of noonctl.
func (a *app) start(argv, env []string) (*child, error) {
	gate, err := newGate(argv)
	if err != nil {
		return nil, err
	}
	c := &child{gate: gate, terminal: -1}
	cmd := gate.cmd
	cmd.Env, cmd.Stdin = append(inherited(), env...), a.Stdin
	if file, ok := a.Stdin.(*os.File); ok && inForeground(int(file.Fd())) {
		// Otherwise, the command could not read from the terminal.
		c.terminal = int(file.Fd())
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, c.terminal
		signal.Ignore(syscall.SIGTTOU) // noonctl takes the terminal back from the background
	}
	out, closeOut, err1 := c.output(a.Stdout)
	errOut, closeErr, err2 := c.output(a.Stderr)
	cmd.Stdout, cmd.Stderr = out, errOut
	err = errors.Join(err1, err2)
	if err == nil {
		c.done, c.guard, err = a.processes.startGuarded(gate)
	}
	closeOut()
	closeErr()
	if err != nil {
		c.close()
		if c.done != nil {
			<-c.done
		}
		return nil, notStarted(err)
	}
	c.pid = cmd.Process.Pid
	if c.terminal >= 0 {
		go c.suspendTogether()
	}
	return c, nil
}

// output returns a file for what the command writes to w. Call opened when the command has it.
func (c *child) output(w io.Writer) (file *os.File, opened func(), err error) {
	if file, ok := w.(*os.File); ok {
		return file, func() {}, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, func() {}, err
	}
	c.pipes = append(c.pipes, read)
	c.copies.Go(func() { _, _ = io.Copy(w, read) })
	return write, func() { write.Close() }, nil
}

// close frees what the child needed. Processes that have left the group may have the pipes open.
func (c *child) close() {
	c.gate.close()
	if c.guard != nil {
		c.guard.dismiss()
	}
	for _, pipe := range c.pipes {
		_ = pipe.SetReadDeadline(time.Now().Add(time.Second))
	}
	c.copies.Wait()
	for _, pipe := range c.pipes {
		pipe.Close()
	}
}

// inForeground reports whether a descriptor is a terminal with noonctl in its foreground.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (c *child) foreground(group int) {
	if c.terminal >= 0 {
		_ = unix.IoctlSetPointerInt(c.terminal, unix.TIOCSPGRP, group)
	}
}

func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// alive reports whether a process of the group has not ended.
func (c *child) alive() bool {
	if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
		return false
	}
	if at := now(); at >= c.look {
		before := c.zombies
		c.zombies = onlyZombies(c.pid)
		c.look = now() + 20*(now()-at) // it reads all of /proc
		return !before || !c.zombies   // one look may miss a process that is started meanwhile
	}
	return true
}

// A watch says how long a command may run.
type watch struct {
	// ctx ends when the command must end, for whatever reason.
	ctx context.Context
	// remaining returns how long the lease is still valid, also after the end of ctx.
	remaining func() time.Duration
	// grace is the time from the end of the lease until the server may hand it to another client.
	grace time.Duration
	// killAfter is the time from SIGTERM to SIGKILL if ctx ends before the lease. 0 means no limit.
	killAfter time.Duration
}

// cause returns why the command must end, or nil.
func (w watch) cause() error { return context.Cause(w.ctx) }

// looks is the time between two looks at the lease and at the group.
const looks = 50 * time.Millisecond

var (
	errLost      = errors.New("the lease ended")
	errUnguarded = errors.New("the guard of the command ended, so the command was killed")
)

// supervise starts the command, waits until all processes of its group have ended, and returns its
// exit code. When the context of the watch ends, the group gets SIGTERM. When the lease ends, before
// or after that, the error is errLost: the group gets SIGTERM unless it has got it, and SIGKILL before
// another client may get the lease. The error is errUnguarded if something has killed the guard.
//
// The guard knows when to send SIGKILL at any time: while the lease is valid, at the end of the grace.
func (c *child) supervise(w watch, received <-chan os.Signal) (code int, err error) {
	defer c.close()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	asked, exited, guarded := w.ctx.Done(), c.done, c.guard.ended
	told, status := false, syscall.WaitStatus(0)
	tell := func() {
		if !told {
			c.signal(syscall.SIGTERM)
		}
		c.signal(syscall.SIGCONT) // if it is stopped, it cannot end
		told = true
	}
	end, limit := time.Duration(0), never
	for {
		at := now() // read before the lease, so that end is not too late
		switch left := w.remaining(); {
		case err != nil:
		case left > 0:
			if next := at + left + w.grace; next > end+time.Millisecond { // or the clocks were read at other instants
				end = next
			}
		default:
			err = errLost
			end = min(end, at+w.grace)
			tell()
		}
		c.guard.kills(min(end, limit))
		if err == nil {
			c.gate.open() // the first time
		}
		c.gate.close()
		if at >= min(end, limit) {
			c.signal(syscall.SIGKILL) // the guard may be stopped
		}
		if exited == nil && !c.alive() {
			return exitCode(status), err
		}
		select {
		case status = <-exited:
			exited = nil
			c.foreground(unix.Getpgrp())
		case sig := <-received:
			c.signal(sig.(syscall.Signal))
		case <-tick.C:
		case <-asked:
			asked = nil
			if w.remaining() > 0 {
				if w.killAfter > 0 {
					limit = at + w.killAfter
				}
				// It has got the signal that has ended the context.
				if _, signaled := errors.AsType[signalError](w.cause()); !signaled {
					tell()
				}
				c.signal(syscall.SIGCONT)
			}
		case <-guarded: // somebody has killed it
			guarded, err = nil, errUnguarded
			c.signal(syscall.SIGKILL)
		}
	}
}

// exitCode returns the exit code of a command as a shell reports it.
func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
