//go:build unix

package lockcore_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/redisurl"
)

// roleVariable makes this test binary an actor: a process with a Client. It reads orders from its standard input,
// one per line, and writes answers to its standard output. It ends with its input. serverVariable is the address or URL of
// the server, and kindVariable is the kind of its locks. Their owner is its identity.
const (
	roleVariable   = "LOCKCORE_TEST_ROLE"
	serverVariable = "LOCKCORE_TEST_SERVER"
	kindVariable   = "LOCKCORE_TEST_KIND"
)

func playRole(identity string) int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(serverVariable)})
	cfg := lockcore.Config{Identity: identity, Logger: lockcore.Discard}
	c, err := lockcore.New(rdb, cfg)
	if options, isURL := redisurl.Parse(os.Getenv(serverVariable)); isURL == nil {
		c, err = lockcore.NewFromOptions(options, cfg)
	}
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var lease *lockcore.Lease
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		fmt.Println(obey(c, &lease, strings.Fields(in.Text())))
	}
	return 0
}

func obey(c *lockcore.Client, lease **lockcore.Lease, order []string) string {
	ctx := context.Background()
	switch order[0] {
	case "try", "lock":
		ms, err := strconv.Atoi(order[2])
		if err != nil {
			return "error " + err.Error()
		}
		m, err := lockOf(c, os.Getenv(kindVariable), order[1], c.Identity(), ttl(time.Duration(ms)*time.Millisecond))
		if err != nil {
			return "error " + err.Error()
		}
		take := m.TryLock
		if order[0] == "lock" {
			take = m.Lock
		}
		if *lease, err = take(ctx); err != nil {
			return "error " + err.Error()
		}
		return fmt.Sprint("locked ", (*lease).Token())
	case "close":
		if err := c.Close(ctx); err != nil {
			return "error " + err.Error()
		}
		return "closed"
	case "check":
		if err := (*lease).Context().Err(); err != nil && (*lease).Remaining() == 0 {
			return "ended"
		}
		return "valid"
	case "unlock":
		switch err := (*lease).Unlock(ctx); {
		case err == nil:
			return "unlocked"
		case errors.Is(err, lockcore.ErrNotHeld):
			return "not-held"
		default:
			return "error " + err.Error()
		}
	}
	return "error no such order"
}

// An actor is such a process, as the test sees it.
type actor struct {
	*roleProcess
	t testing.TB
}

func (e *env) startActor(identity string) *actor {
	e.Helper()
	return &actor{e.startProcess(roleVariable+"="+identity, serverVariable+"="+e.Real.Addr(), kindVariable+"="+e.kindFor(anyName)), e.T}
}

// An answer of an actor: its word, and the details.
type answer struct {
	t         testing.TB
	text, arg string
}

func (a *actor) answer() answer {
	a.t.Helper()
	text, arg, _ := strings.Cut(a.Next(), " ")
	return answer{a.t, text, arg}
}

func (a *actor) ask(order string) answer {
	a.t.Helper()
	a.Send(order)
	return a.answer()
}

func (a answer) number(want string) uint64 {
	a.t.Helper()
	n, err := strconv.ParseUint(a.arg, 10, 64)
	if a.text != want || err != nil {
		a.t.Fatalf("the process answered %q %q, want %s and a number", a.text, a.arg, want)
	}
	return n
}

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
	stdin := call(cmd.StdinPipe()).Must(e)
	stdout := call(cmd.StdoutPipe()).Must(e)
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
	call(io.WriteString(a.Stdin, order+"\n")).Must(a.t)
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
