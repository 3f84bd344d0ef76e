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
	"syscall"

	"golang.org/x/sys/unix"
)

// processes are the children of noonctl: those that it has started, and orphans. As the first process of
// a container, noonctl gets all orphans there. Nobody else waits for them, and too many would use up the
// limit of the container.
type processes struct {
	mu      sync.Mutex
	started map[int]chan syscall.WaitStatus
	full    bool // the system did not start the last one
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
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid == 0:
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
	err := cmd.Start()
	if p.full = isFull(err); err != nil {
		return nil, err
	}
	ended := make(chan syscall.WaitStatus, 1)
	p.started[cmd.Process.Pid] = ended
	return ended, nil
}

// began waits until the process at the other end of each line works. A program in Go ends at once if the
// system starts no thread for it.
func (p *processes) began(lines ...*os.File) error {
	for _, line := range lines {
		if n, _ := line.Read(make([]byte, 1)); n == 0 {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.full = true
			return fmt.Errorf("a process of noonctl ended when it began: %w", syscall.EAGAIN)
		}
	}
	return nil
}

// isFull reports whether the system has no room for another process.
func isFull(err error) bool { return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) }

// check fails while the system starts no process. It tries that only after it has failed.
func (p *processes) check(context.Context) error {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	if !full {
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
	if _, err := p.start(g.cmd, g.theirs); err != nil {
		return err
	}
	return p.began(g.line)
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
