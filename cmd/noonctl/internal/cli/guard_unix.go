//go:build unix

package cli

import (
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

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// A command and its guard are started by noonctl in these steps. noonctl may die after each.
//
//	the gate     noonctl, in the process group of the command, before it becomes the command. It
//	             waits for a byte from noonctl. Without one, it ends.
//	the guard    noonctl, in a session of its own, so that what stops or ends the job of noonctl does
//	             not reach it. It kills the group at the time that noonctl has told it last, and when
//	             noonctl ends without having dismissed it.
//	the byte     Both have sent a byte, and the guard has been told a time. The gate becomes the command.
//
// So a noonctl that was killed or is frozen ends its command in time, like one that works.
const (
	gateName  = "command-gate"
	guardName = "command-guard" // its process has this name too, so that pkill noonctl leaves it alone
)

// internalCommands returns the commands that noonctl starts itself.
func (a *app) internalCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: gateName + " DESCRIPTOR FILE ARG...", Hidden: true, DisableFlagParsing: true,
			RunE: func(_ *cobra.Command, args []string) error {
				a.bounded = true
				return passGate(args[0], args[1], args[2:])
			},
		},
		{
			Use: guardName + " GROUP", Hidden: true,
			RunE: func(_ *cobra.Command, args []string) error { return keepGuard(args[0], os.Stdin) },
		},
	}
}

// A gate is a process that becomes a command when it is opened.
type gate struct {
	cmd          *exec.Cmd
	theirs, line *os.File
}

// findCommand returns the file of a command.
func findCommand(argv []string) (file string, err error) {
	if file, err = exec.LookPath(argv[0]); err != nil {
		return "", notStarted(err)
	}
	return file, nil
}

// newGate returns a gate that is not started.
func newGate(argv []string) (*gate, error) {
	file, err := findCommand(argv)
	if err != nil {
		return nil, err
	}
	program, err := executable()
	if err != nil {
		return nil, notStarted(err)
	}
	theirs, line, err := newLine()
	if err != nil {
		return nil, notStarted(err)
	}
	g := &gate{exec.Command(program, append([]string{gateName, strconv.Itoa(int(theirs.Fd())), file}, argv...)...), theirs, line}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return g, nil
}

// open opens the gate, and returns when the process has become the command, which closes its end of the line. A
// signal before that could reach a thread that is about to end, and be lost. A process that is stopped takes longer.
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

// passGate waits until the gate is open, and becomes the command.
func passGate(descriptor, file string, argv []string) error {
	fd, err := strconv.Atoi(descriptor)
	if err != nil {
		return usage(err)
	}
	wait := os.NewFile(uintptr(fd), gateName)
	_, _ = wait.Write([]byte{1})
	if n, _ := wait.Read(make([]byte, 1)); n == 0 {
		return &exitError{code: exitLost} // noonctl has ended, or the lease
	}
	syscall.CloseOnExec(fd)
	return notStarted(fmt.Errorf("exec %s: %w", file, syscall.Exec(file, argv, os.Environ())))
}

// notStarted returns the error for a command that could not be started, with the exit code of a shell.
func notStarted(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exitError{exitNotFound, err}
	}
	return &exitError{exitNotRunnable, err}
}

// A guard is the process that kills the group.
type guard struct {
	process *os.Process
	orders  *os.File // the guard reads them
	ended   <-chan syscall.WaitStatus
	at      time.Duration // the last order
}

const never = time.Duration(math.MaxInt64)

func startGuard(p *processes, group int) (*guard, error) {
	program, err := executable()
	if err != nil {
		return nil, err
	}
	theirs, line, err := newLine()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(program, guardName, strconv.Itoa(group))
	cmd.Args[0] = guardName
	cmd.Env, cmd.Stdin, cmd.SysProcAttr = inherited(), theirs, &syscall.SysProcAttr{Setsid: true}
	ended, err := p.start(cmd, nil)
	if err != nil {
		line.Close()
		return nil, err
	}
	return &guard{process: cmd.Process, orders: line, ended: ended, at: never}, nil
}

// kills sets the time, by now, when the group is killed.
func (g *guard) kills(at time.Duration) {
	order := binary.NativeEndian.AppendUint64(nil, uint64(at))
	// If the guard is frozen, its buffer may be full.
	if at != g.at && unix.Send(int(g.orders.Fd()), order, unix.MSG_DONTWAIT) == nil {
		g.at = at
	}
}

// dismiss ends the guard, which kills nothing any more.
func (g *guard) dismiss() {
	_ = g.process.Kill()
	<-g.ended
	_ = g.process.Release()
	g.orders.Close()
}

// keepGuard kills a group when it is time to. It returns at the end of the orders, which is the end
// of noonctl.
func keepGuard(argument string, orders io.ReadWriter) error {
	group, err := strconv.Atoi(argument)
	if err != nil || group < 2 {
		return usage(fmt.Errorf("the group is %q; it must be a number above 1", argument))
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
	gone := false // another group may have its number then
	kill := func() {
		if !gone {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
	at := never
	for {
		gone = gone || errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)
		select {
		case next, ok := <-times:
			if !ok {
				kill()
				return nil
			}
			at = next
		case <-time.After(min(at-now(), time.Second)): // a timer may stand still while the machine is suspended
		}
		if at <= now() {
			kill()
			at = never
		}
	}
}
