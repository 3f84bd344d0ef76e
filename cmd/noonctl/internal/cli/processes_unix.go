//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// processes are the children of noonctl: those that it has started, and orphans. As the first process of
// a container, noonctl gets all orphans there. Nobody else waits for them, and too many would use up the
// limit of the container.
type processes struct {
	mu      sync.Mutex
	started map[int]chan syscall.WaitStatus
	full    atomic.Bool // there was no room for the last command
}

// adopt prepares this process for commands, and begins to wait for all of its children.
func adopt() *processes {
	protect()
	p := &processes{started: map[int]chan syscall.WaitStatus{}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	go func() {
		for {
			p.reap()
			<-ended
		}
	}()
	return p
}

func (p *processes) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err != nil || pid == 0 {
			return
		}
		if ended, ok := p.started[pid]; ok {
			delete(p.started, pid)
			ended <- status
			close(ended)
		}
	}
}

// start starts a process, which inherits a file under its number unless it is nil: as one of ExtraFiles, it would
// get the number 3, which a command may know as another file. Only p may wait for the process.
func (p *processes) start(cmd *exec.Cmd, file *os.File) (<-chan syscall.WaitStatus, error) {
	p.mu.Lock() // reap must know it, and no other process may inherit the file
	defer p.mu.Unlock()
	if file != nil {
		defer file.Close()
		if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFD, 0); err != nil {
			return nil, err
		}
	}
	adoptOrphans()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	p.started[cmd.Process.Pid] = ended
	return ended, nil
}

// startGuarded starts a gate and its guard, and waits until both work. A program in Go ends at once if the
// system starts no thread for it.
func (p *processes) startGuarded(gate *gate) (done <-chan syscall.WaitStatus, guard *guard, err error) {
	defer func() { p.full.Store(isFull(err)) }()
	if done, err = p.start(gate.cmd, gate.theirs); err != nil {
		return nil, nil, err
	}
	if guard, err = startGuard(p, gate.cmd.Process.Pid); err != nil {
		return done, nil, err
	}
	for _, line := range []*os.File{gate.line, guard.orders} {
		if n, _ := line.Read(make([]byte, 1)); n == 0 {
			return done, guard, fmt.Errorf("a process of noonctl ended when it began: %w", syscall.EAGAIN)
		}
	}
	return done, guard, nil
}

// isFull reports whether the system has no room for another process.
func isFull(err error) bool { return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) }

// check fails while there is no room for a command. It tries that only after it has failed.
func (p *processes) check(context.Context) error {
	if !p.full.Load() {
		return nil
	}
	program, err := executable()
	if err != nil {
		return err
	}
	g, err := newGate([]string{program})
	if err != nil {
		return err
	}
	defer g.close()
	_, guard, err := p.startGuarded(g)
	if guard != nil {
		guard.dismiss()
	}
	return err
}

// newLine returns the two ends of a connection with a process that is to be started.
func newLine() (theirs, ours *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	_ = syscall.SetNonblock(fds[1], true) // who reads from it occupies no thread
	return os.NewFile(uintptr(fds[0]), "line"), os.NewFile(uintptr(fds[1]), "line"), nil
}

// inherited is the environment of all processes that noonctl starts, without the URL and passwords.
func inherited() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, redisVariable) })
}
