package lockcore_test

import (
	"bufio"
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
)

// roleVariable makes this test binary an actor: a process with a Client that
// takes orders on its standard input, one a line, and answers on its standard
// output. It ends with its input. serverVariable tells it the server, kindVariable the
// kind of its locks, whose owner is its identity.
const (
	roleVariable   = "LOCKCORE_TEST_ROLE"
	serverVariable = "LOCKCORE_TEST_SERVER"
	kindVariable   = "LOCKCORE_TEST_KIND"
)

func playRole(identity string) int {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(serverVariable)})
	c, err := lockcore.New(rdb, lockcore.Config{Identity: identity})
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

// An actor is such a process, seen from the test.
type actor struct {
	t       testing.TB
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan string // closed at its end
}

func (e *env) startActor(identity string) *actor {
	e.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+identity, serverVariable+"="+e.Real.Addr(), kindVariable+"="+e.kind)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		e.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		e.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	a := &actor{t: e.T, cmd: cmd, stdin: stdin, answers: make(chan string, 16)}
	go func() {
		defer close(a.answers)
		out := bufio.NewScanner(stdout)
		for out.Scan() {
			a.answers <- out.Text()
		}
	}()
	e.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		a.waitForEnd()
		_ = cmd.Wait() // killed, as it should be
	})
	return a
}

func (a *actor) send(order string) {
	a.t.Helper()
	if _, err := io.WriteString(a.stdin, order+"\n"); err != nil {
		a.t.Fatalf("%s: %v", order, err)
	}
}

// An answer of an actor: what it says, and about it.
type answer struct {
	t         testing.TB
	text, arg string
}

func (a *actor) answer() answer {
	a.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case line, ok := <-a.answers:
		if !ok {
			a.t.Fatal("the process has ended")
		}
		text, arg, _ := strings.Cut(line, " ")
		return answer{a.t, text, arg}
	case <-timer.C:
		a.t.Fatal("the process does not answer")
		return answer{}
	}
}

func (a *actor) ask(order string) answer {
	a.t.Helper()
	a.send(order)
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

func (a *actor) signal(sig syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		a.t.Fatal(err)
	}
	if sig == syscall.SIGSTOP {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			a.t.Fatalf("the process does not stand still: %v, status %v", err, status)
		}
	}
}

// waitForEnd returns when the process has closed its output: it is gone.
func (a *actor) waitForEnd() {
	for range a.answers {
		continue
	}
}
