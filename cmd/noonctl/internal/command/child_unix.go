//go:build unix

package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// A Child is the process of a command, in a process group of its own. It has ended when all
// processes of its group have.
type Child struct {
	gate  *gate
	guard *guard
	pid   int // also the number of the group
	ended <-chan syscall.WaitStatus

	nextCheck time.Duration  // next call of onlyZombies
	zombies   bool           // last result of onlyZombies
	pipes     []*os.File     // outputs that are copied
	copies    sync.WaitGroup // goroutines that read the pipes
	terminal  terminal       // terminal in whose foreground the group is
}

// Streams are the input and the outputs of a command.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Prepare returns a command that waits for Supervise. env extends the environment of noonctl.
func (p *Processes) Prepare(argv, env []string, streams Streams) (*Child, error) {
	gate, err := newGate(argv)
	if err != nil {
		return nil, err
	}
	c := &Child{gate: gate, terminal: noTerminal}
	cmd := gate.cmd
	cmd.Env, cmd.Stdin = append(p.environment(), env...), streams.Stdin
	if file, ok := streams.Stdin.(*os.File); ok && terminal(file.Fd()).inForeground() {
		// Otherwise, the command could not read from the terminal.
		c.terminal = terminal(file.Fd())
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, int(c.terminal)
		signal.Ignore(syscall.SIGTTOU) // noonctl takes the terminal back from the background
	}
	out, closeOut, err1 := c.output(streams.Stdout)
	errOut, closeErr, err2 := c.output(streams.Stderr)
	cmd.Stdout, cmd.Stderr = out, errOut
	err = errors.Join(err1, err2)
	if err == nil {
		c.ended, c.guard, err = p.startGuarded(gate)
	}
	closeOut()
	closeErr()
	if err != nil {
		c.close()
		if c.ended != nil {
			<-c.ended
		}
		return nil, notStarted(err)
	}
	c.pid = cmd.Process.Pid
	if c.terminal != noTerminal {
		go suspendTogether(c.terminal, c.pid)
	}
	return c, nil
}

// output returns a file whose content goes to w. The caller calls inherited as soon as the command has the file.
func (c *Child) output(w io.Writer) (file *os.File, inherited func(), err error) {
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

// close frees the resources of the child. Processes that have left the group may keep the pipes open.
func (c *Child) close() {
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

func (c *Child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

// alive reports whether a process of the group has not ended.
func (c *Child) alive() bool {
	if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
		return false
	}
	if at := now(); at >= c.nextCheck {
		before := c.zombies
		c.zombies = onlyZombies(c.pid)
		c.nextCheck = now() + 20*(now()-at) // onlyZombies reads all of /proc
		return !before || !c.zombies        // two checks in a row: one may miss a process that is started meanwhile
	}
	return true
}

// A Watch limits how long a command may run.
type Watch struct {
	// Context ends when the command must end, for whatever reason.
	Context context.Context
	// Remaining returns how long the lease is still valid, also after the end of Context.
	Remaining func() time.Duration
	// Grace is the time from the end of the lease to SIGKILL. It must end before another client may get the lease.
	Grace time.Duration
	// KillAfter is the time from SIGTERM to SIGKILL if Context ends before the lease. 0 means no limit.
	KillAfter time.Duration
}

const checkInterval = 50 * time.Millisecond

// The errors of Supervise.
var (
	ErrLost      = errors.New("the lease ended")
	ErrUnguarded = errors.New("the guard of the command ended, so the command was killed")
)

// Supervise starts the command, waits until all processes of its group have ended, and returns its
// exit code. When the Context of the Watch ends, the group gets SIGTERM. When the lease ends, the error is ErrLost. The
// group then gets SIGTERM, if it has not got SIGTERM before, and SIGKILL before another client may get the lease. The
// error is ErrUnguarded if something has killed the guard.
//
// The guard always has an order when to send SIGKILL, so that the group ends in time even if noonctl is killed.
func (c *Child) Supervise(w Watch, received <-chan os.Signal) (code int, err error) {
	defer c.close()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	canceled, exited, unguarded := w.Context.Done(), c.ended, c.guard.ended
	terminated, status := false, syscall.WaitStatus(0)
	terminate := func() {
		if !terminated {
			c.signal(syscall.SIGTERM)
		}
		c.signal(syscall.SIGCONT) // a stopped process cannot end
		terminated = true
	}
	end, limit := time.Duration(0), never // of the grace, and of KillAfter
	for {
		at := now() // read before the lease, so that end is not too late
		switch left := w.Remaining(); {
		case err != nil:
		case left > 0:
			if next := at + left + w.Grace; next > end+time.Millisecond { // a smaller difference comes from reading two clocks
				end = next
			}
		default:
			err = ErrLost
			end = min(end, at+w.Grace)
			terminate()
		}
		c.guard.killAt(min(end, limit))
		if err == nil {
			c.gate.open() // has no effect after the first time
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
			exited = nil // the command has ended, but other processes of its group may run
			c.terminal.takeForeground()
		case sig := <-received:
			c.signal(sig.(syscall.Signal))
		case <-tick.C:
		case <-canceled:
			canceled = nil
			if w.Remaining() > 0 {
				if w.KillAfter > 0 {
					limit = at + w.KillAfter
				}
				// If a signal has ended the context, the group has got that signal.
				if _, signaled := errors.AsType[signalError](context.Cause(w.Context)); !signaled {
					terminate()
				}
				c.signal(syscall.SIGCONT)
			}
		case <-unguarded:
			unguarded, err = nil, ErrUnguarded
			c.signal(syscall.SIGKILL)
		}
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
