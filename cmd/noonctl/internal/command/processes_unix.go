//go:build unix

package command

import (
	"errors"
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

// Processes are the children of noonctl: started processes, and orphans. As the first process of
// a container, noonctl gets all orphans there. Nobody else waits for them, and too many would use up the
// limit of the container.
type Processes struct {
	secrets string // prefix of variables that no process inherits

	mu      sync.Mutex
	started map[int]chan syscall.WaitStatus
	full    atomic.Bool // the system had no room for the last command
}

// Adopt prepares this process for commands, and begins to wait for all of its children. They inherit no environment
// variable with the prefix secrets.
func Adopt(secrets string) *Processes {
	protect()
	p := &Processes{secrets: secrets, started: map[int]chan syscall.WaitStatus{}}
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

func (p *Processes) reap() {
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

// start starts a process. The process inherits file, if not nil, under the number that file has. As one of ExtraFiles,
// file would get the number 3, which a command may know as another file. Only p may wait for the process.
func (p *Processes) start(cmd *exec.Cmd, file *os.File) (<-chan syscall.WaitStatus, error) {
	p.mu.Lock() // reap must find the process in started, and no other process may inherit file
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

func (p *Processes) environment() []string {
	return slices.DeleteFunc(os.Environ(), func(pair string) bool { return strings.HasPrefix(pair, p.secrets) })
}

// IsSystemFull reports whether the system has no room for another process.
func IsSystemFull(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM)
}

// socketpair returns the two ends of a connection with a process that is to be started.
func socketpair() (theirs, ours *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
	}
	_ = syscall.SetNonblock(fds[1], true) // a goroutine that reads from it occupies no thread
	return os.NewFile(uintptr(fds[0]), "line"), os.NewFile(uintptr(fds[1]), "line"), nil
}
