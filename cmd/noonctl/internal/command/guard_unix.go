//go:build unix

package command

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
)

// GateName and GuardName are the commands of noonctl that start a command in these steps. noonctl may die after each.
//
//	the gate     is noonctl, in the process group of the command, before it becomes the command. It
//	             waits for a byte from noonctl. Without the byte, it ends.
//	the guard    is noonctl in a session of its own, which no signal to the shell's job of noonctl
//	             reaches. It kills the group at the time of its last order, and when noonctl ends
//	             without having dismissed it.
//	the byte     is sent when both have sent a byte and the guard has an order. The gate becomes the command.
//
// So the command ends in time even if noonctl was killed or is frozen.
const (
	GateName  = "command-gate"
	GuardName = "command-guard" // also the process name, so that pkill noonctl spares it
)

type gate struct {
	cmd          *exec.Cmd
	theirs, line *os.File // the ends of the gate and of noonctl
}

// Find returns the file of a command.
func Find(argv []string) (file string, err error) {
	if file, err = exec.LookPath(argv[0]); err != nil {
		return "", notStarted(err)
	}
	return file, nil
}

func newGate(argv []string) (*gate, error) {
	file, err := Find(argv)
	if err != nil {
		return nil, err
	}
	program, err := executable()
	if err != nil {
		return nil, notStarted(err)
	}
	theirs, line, err := socketpair()
	if err != nil {
		return nil, notStarted(err)
	}
	g := &gate{exec.Command(program, append([]string{GateName, strconv.Itoa(int(theirs.Fd())), file}, argv...)...), theirs, line}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return g, nil
}

// open opens the gate, and returns when the process has become the command, which closes its end of the line. An
// earlier signal could reach a thread that is about to end, and be lost. open does not wait for a stopped process.
func (g *gate) open() {
	_, _ = g.line.Write([]byte{1})
	g.theirs.Close()
	_ = g.line.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	_, _ = g.line.Read(make([]byte, 1))
}

// close ends the process if the gate was not opened.
func (g *gate) close() {
	g.theirs.Close()
	g.line.Close()
}

// PassGate waits until the gate is open, and becomes the command.
func PassGate(descriptor, file string, argv []string) error {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return exit.Usage(err)
	}
	wait := os.NewFile(uintptr(fd), GateName)
	_, _ = wait.Write([]byte{1})
	if n, _ := wait.Read(make([]byte, 1)); n == 0 {
		return &exit.Error{Code: exit.Lost} // noonctl or the lease has ended
	}
	syscall.CloseOnExec(fd)
	return notStarted(fmt.Errorf("exec %s: %w", file, syscall.Exec(file, argv, os.Environ())))
}

// notStarted returns the error for a command that could not be started, with the exit code of a shell.
func notStarted(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exit.Error{Code: exit.NotFound, Err: err}
	}
	return &exit.Error{Code: exit.NotRunnable, Err: err}
}

type guard struct {
	process *os.Process
	orders  *os.File // our end of the guard's input
	ended   <-chan syscall.WaitStatus
	at      time.Duration // time in the last order
}

const never = time.Duration(math.MaxInt64)

func startGuard(p *Processes, group int) (*guard, error) {
	program, err := executable()
	if err != nil {
		return nil, err
	}
	theirs, line, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(program, GuardName, strconv.Itoa(group))
	cmd.Args[0] = GuardName
	cmd.Env, cmd.Stdin, cmd.SysProcAttr = p.environment(), theirs, &syscall.SysProcAttr{Setsid: true}
	ended, err := p.start(cmd, nil)
	if err != nil {
		line.Close()
		return nil, err
	}
	return &guard{process: cmd.Process, orders: line, ended: ended, at: never}, nil
}

// killAt orders the guard to kill the group at an instant on the clock of now.
func (g *guard) killAt(at time.Duration) {
	order := binary.NativeEndian.AppendUint64(nil, uint64(at))
	// Without waiting, since the buffer of a frozen guard may be full. The next call tries again.
	if at != g.at && unix.Send(int(g.orders.Fd()), order, unix.MSG_DONTWAIT) == nil {
		g.at = at
	}
}

// dismiss ends the guard, which kills nothing.
func (g *guard) dismiss() {
	_ = g.process.Kill()
	<-g.ended
	_ = g.process.Release()
	g.orders.Close()
}

// startGuarded starts a gate and its guard, and waits until both work: a program in Go ends at its start if the
// system has no thread for it.
func (p *Processes) startGuarded(gate *gate) (ended <-chan syscall.WaitStatus, guard *guard, err error) {
	defer func() { p.full.Store(IsSystemFull(err)) }()
	if ended, err = p.start(gate.cmd, gate.theirs); err != nil {
		return nil, nil, err
	}
	if guard, err = startGuard(p, gate.cmd.Process.Pid); err != nil {
		return ended, nil, err
	}
	for _, line := range []*os.File{gate.line, guard.orders} {
		if n, _ := line.Read(make([]byte, 1)); n == 0 {
			return ended, guard, fmt.Errorf("a process of noonctl ended when it began: %w", syscall.EAGAIN)
		}
	}
	return ended, guard, nil
}

// Check fails while the system has no room for a command. Only after a failed start, Check tries to start a command.
func (p *Processes) Check(context.Context) error {
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

// KeepGuard is the guard: it kills a group at the ordered time. It returns at the end of the orders, when noonctl has
// ended.
func KeepGuard(argument string, orders io.ReadWriter) error {
	group, err := strconv.Atoi(argument)
	if err != nil || group < 2 {
		return exit.Usage(fmt.Errorf("the group is %q; it must be a number above 1", argument))
	}
	signal.Ignore() // all
	_, _ = orders.Write([]byte{1})
	times := make(chan time.Duration)
	go func() {
		defer close(times)
		for {
			var at time.Duration
			if binary.Read(orders, binary.NativeEndian, &at) != nil {
				return
			}
			times <- at
		}
	}()
	ended := false // after the end of the group, another group may get its number
	kill := func() {
		if !ended {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
	at := never
	for {
		ended = ended || errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
		select {
		case next, ok := <-times:
			if !ok {
				kill()
				return nil
			}
			at = next
		case <-time.After(min(at-now(), time.Second)): // a timer may stop while the machine is suspended
		}
		if at <= now() {
			kill()
			at = never
		}
	}
}
