//go:build unix

package lockcore_test

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A roleProcess is a process of the test's own binary, which plays a role. It reads orders from
// its standard input, one a line, and prints what happens.
type roleProcess struct {
	t     testing.TB
	Cmd   *exec.Cmd
	Stdin io.WriteCloser
	Lines chan string // what it prints; closed at its end
}

// startProcess starts a roleProcess with these environment variables, as NAME=VALUE. It is killed at
// the end of the test.
func (e *env) startProcess(variables ...string) *roleProcess {
	e.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // the test's own binary; it is killed below
	cmd.Env = append(os.Environ(), variables...)
	cmd.Stderr = cmp.Or(e.stderr, os.Stderr)
	stdin, err := cmd.StdinPipe()
	must(e, err)
	stdout, err := cmd.StdoutPipe()
	must(e, err)
	must(e, cmd.Start())
	a := &roleProcess{t: e.T, Cmd: cmd, Stdin: stdin, Lines: make(chan string, 64)}
	go func() {
		defer close(a.Lines)
		for out := bufio.NewScanner(stdout); out.Scan(); {
			a.Lines <- out.Text()
		}
		_, _ = io.Copy(io.Discard, stdout) // the rest after a line that is too long
	}()
	e.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		a.WaitForEnd()
		_ = cmd.Wait() // reports the kill
	})
	return a
}

// Send sends an order.
func (a *roleProcess) Send(order string) {
	a.t.Helper()
	_, err := io.WriteString(a.Stdin, order+"\n")
	must(a.t, err)
}

// Next returns the next line.
func (a *roleProcess) Next() string {
	a.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-a.Lines:
		if !ok {
			a.t.Fatal("the process has ended")
		}
		return line
	case <-timer.C:
		a.t.Fatal("the process does not answer")
		return ""
	}
}

// Signal sends a signal. After SIGSTOP it waits until the process has stopped.
func (a *roleProcess) Signal(sig syscall.Signal) {
	a.t.Helper()
	must(a.t, a.Cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(a.Cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			a.t.Fatalf("the process has not stopped: %v, status %v", err, status)
		}
	}
}

// WaitForEnd returns when the process has closed its output.
func (a *roleProcess) WaitForEnd() {
	for range a.Lines {
		continue
	}
}
