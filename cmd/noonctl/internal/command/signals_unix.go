//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/noonlock/noonlock/cmd/noonctl/internal/exit"
)

// forwarded are the signals that a command gets when noonctl gets them.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// A signalError is the cause of a context that a signal has ended.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return e.String() }

// Signals begins to receive signals. received has the signals to pass on to a command. stopping ends with the first
// signal that asks the program to end. A signal that is ignored, as by nohup, stays ignored.
func Signals(ctx context.Context) (received <-chan os.Signal, stopping context.Context, stop func()) {
	forward, arrived := make(chan os.Signal, 16), make(chan os.Signal, 16)
	stopping, end := context.WithCancelCause(ctx)
	signal.Notify(arrived, slices.DeleteFunc(slices.Clone(forwarded), signal.Ignored)...)
	go func() {
		for sig := range arrived {
			if n := sig.(syscall.Signal); n == syscall.SIGHUP || n == syscall.SIGINT || n == syscall.SIGQUIT || n == syscall.SIGTERM {
				end(signalError{n})
			}
			select {
			case forward <- sig:
			default: // nobody reads, because no command runs
			}
		}
	}()
	return forward, stopping, func() {
		signal.Stop(arrived) // nothing is sent to arrived after Stop
		close(arrived)
		end(nil)
	}
}

// EndedBy returns the error for a program that a signal has ended, as a shell reports it.
func EndedBy(ctx context.Context) error {
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return &exit.Error{Code: 128 + int(sig.Signal), Err: fmt.Errorf("ended by the signal %q", sig.String())}
	}
	return ctx.Err()
}

// A terminal is the descriptor of the terminal that a command shares with noonctl, or noTerminal.
type terminal int

const noTerminal terminal = -1

func (t terminal) inForeground() bool {
	group, err := unix.IoctlGetInt(int(t), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

func (t terminal) setForeground(group int) {
	if t != noTerminal {
		_ = unix.IoctlSetPointerInt(int(t), unix.TIOCSPGRP, group)
	}
}

func (t terminal) takeForeground() { t.setForeground(unix.Getpgrp()) }
