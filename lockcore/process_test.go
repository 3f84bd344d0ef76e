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

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
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
		answer, err := obey(c, &lease, strings.Fields(in.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
	return 0
}

func obey(c *lockcore.Client, lease **lockcore.Lease, order []string) (string, error) {
	ctx := context.Background()
	switch order[0] {
	case "try", "lock":
		ms, err := time.ParseDuration(order[2] + "ms")
		if err != nil {
			return "", err
		}
		m, err := lockOf(c, os.Getenv(kindVariable), order[1], c.Identity(), ttl(ms))
		if err != nil {
			return "", err
		}
		take := m.TryLock
		if order[0] == "lock" {
			take = m.Lock
		}
		if *lease, err = take(ctx); err != nil {
			return "", err
		}
		return fmt.Sprint("locked ", (*lease).Token()), nil
	case "close":
		return "closed", c.Close(ctx)
	case "check":
		if err := (*lease).Context().Err(); err != nil && (*lease).Remaining() == 0 {
			return "ended", nil
		}
		return "valid", nil
	case "unlock":
		err := (*lease).Unlock(ctx)
		if errors.Is(err, lockcore.ErrNotHeld) {
			return "not-held", nil
		}
		return "unlocked", err
	}
	return "", errors.New("no such order")
}

// An actor is such a process, as the test sees it.
type actor struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // what it prints; closed at its end
}

// startActor starts an actor that uses a server. It is killed at the end of the test.
func (e *env) startActor(identity, server string) *actor {
	e.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:gosec,noctx // the test's own binary; it is killed below
	cmd.Env = append(os.Environ(), roleVariable+"="+identity, serverVariable+"="+server, kindVariable+"="+e.kindFor(anyName))
	cmd.Stderr = cmp.Or(e.stderr, os.Stderr)
	stdin := call(cmd.StdinPipe()).Must(e)
	stdout := call(cmd.StdoutPipe()).Must(e)
	must(e, cmd.Start())
	a := &actor{t: e.T, cmd: cmd, stdin: stdin, lines: make(chan string, 64)}
	go func() {
		defer close(a.lines)
		for out := bufio.NewScanner(stdout); out.Scan(); {
			a.lines <- out.Text()
		}
		_, _ = io.Copy(io.Discard, stdout) // the rest after a line that is too long
	}()
	e.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		for range a.lines {
			continue
		}
		_ = cmd.Wait() // reports the kill
	})
	return a
}

// send sends an order.
func (a *actor) send(order string) {
	a.t.Helper()
	call(io.WriteString(a.stdin, order+"\n")).Must(a.t)
}

// An answer of an actor: its word, and the details.
type answer struct {
	t         testing.TB
	text, arg string
}

// answer returns the next answer.
func (a *actor) answer() answer {
	a.t.Helper()
	line, lives := await(a.t, "the process answers", a.lines)
	if !lives {
		a.t.Fatal("the process has ended")
	}
	text, arg, _ := strings.Cut(line, " ")
	return answer{a.t, text, arg}
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

// signal sends a signal. After SIGSTOP it waits until the process has stopped.
func (a *actor) signal(sig syscall.Signal) {
	a.t.Helper()
	must(a.t, a.cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			a.t.Fatalf("the process has not stopped: %v, status %v", err, status)
		}
	}
}

// The holder's process is stopped for longer than its TTL. When it continues, its context is done before any call
// succeeds, and it cannot harm its successor.
func TestFault01_HolderFrozenPastItsTTL(t *testing.T) {
	onServerAllKinds(t, func(e *env) {
		frozen := e.startActor("holder", e.Real.Addr())
		token := frozen.ask("try orders 3000").number("locked")
		equal(e, "its lease", frozen.ask("check").text, "valid")
		frozen.signal(syscall.SIGSTOP)
		next := e.lock(e.mutex(e.Client("b"), "orders", ttl(20*time.Second)))
		// The successor acquired a lock that is renewed, so the fault was injected.
		if next.Token() <= token {
			e.Errorf("token %d after %d", next.Token(), token)
		}
		frozen.send("check") // waits in the pipe
		frozen.signal(syscall.SIGCONT)
		equal(e, "the first look after the pause", frozen.answer().text, "ended")
		equal(e, "Unlock", frozen.ask("unlock").text, "not-held")
		e.refused(e.mutex(e.Client("c"), "orders", ttl(time.Second)))
		must(e, next.Context().Err())
		e.unlock(next)
	})
}

// The process is frozen after it has sent the request. The TTL may have passed when it reads the grant, which must
// then be ignored.
func TestFault03_FrozenBetweenRequestAndReply(t *testing.T) {
	for name, taken := range map[string]bool{"name still free": false, "name taken in the meantime": true} {
		t.Run(name, func(t *testing.T) {
			inBubbleAllKinds(t, func(e *env) {
				e.warmAll()
				clock := testenv.NewClock()
				opt, f := e.Link()
				m := e.mutex(e.ClientOn(clock.Now, opt, lockcore.Config{}), "orders", ttl(10*time.Second))
				late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Match: e.script("mutex_acquire"), Count: 1})
				p := e.going(m.TryLock)
				e.WaitIdle()
				if late.Fired() != 1 || e.stored("orders") == "" {
					e.Fatal("the reply is not held back")
				}
				// Both clocks move by more than the TTL; no timer runs.
				clock.Advance(11 * time.Second)
				e.Bubble.StepClock(11 * time.Second)
				if taken {
					e.try(e.mutex(e.Client("b"), "orders", ttl(10*time.Second)))
				}
				late.Lift()
				lease, err := p.wait()
				if held, ok := errors.AsType[*lockcore.HeldError](err); taken && (!ok || held.Holder != "b" || held.TTL <= 0) {
					e.Errorf("lease %v, error %v: want a HeldError with the content of the last answer", lease, err)
				}
				// The repeated acquire extended the lock, and validity counts from then.
				if !taken && (err != nil || lease.Remaining() <= 0 || lease.Remaining() > e.pttl("orders")) {
					e.Errorf("%v, or longer than the server's %v", err, e.pttl("orders"))
				}
			})
		})
	}
}
