package clientgo_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// roleVariable makes this test binary a candidate: a process that campaigns with client-go's elector or
// as a controller-runtime manager, and prints events to its standard output. serverVariable is the
// server's address, identityVariable its identity. SIGTERM ends it in order.
const (
	roleVariable     = "CLIENTGO_TEST_ROLE"
	serverVariable   = "CLIENTGO_TEST_SERVER"
	identityVariable = "CLIENTGO_TEST_IDENTITY"

	electorRole = "elector"
	managerRole = "manager"
	boundRole   = "bound" // an elector whose work checks its bound context for each line of stdin
)

// brisk has the shortest times that leave client-go's margins on a slow machine.
func brisk() timing {
	return timing{lease: 3 * time.Second, deadline: 2 * time.Second, retry: 250 * time.Millisecond}
}

func playRole(role string) int {
	fail := func(err error) int {
		fmt.Println("error", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c, err := lockcore.New(redis.NewClient(testenv.Options(os.Getenv(serverVariable))), lockcore.Config{})
	if err != nil {
		return fail(err)
	}
	defer func() { _ = c.Close(context.Background()) }() // the process ends anyway
	lock, err := clientgo.NewLock(c, lockName, clientgo.Config{Identity: os.Getenv(identityVariable)})
	if err != nil {
		return fail(err)
	}
	switch role {
	case electorRole, boundRole:
		tm := brisk()
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: tm.lease, RenewDeadline: tm.deadline, RetryPeriod: tm.retry, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					fmt.Println("started")
					if role == boundRole {
						bound, unbind := lock.Bind(ctx)
						defer unbind()
						tellOf(bound)
					}
				},
				OnStoppedLeading: func() { fmt.Println("stopped") },
				OnNewLeader:      func(identity string) { fmt.Println("leader", identity) },
			},
		})
	case managerRole:
		m, err := newManager(lock)
		if err != nil {
			return fail(err)
		}
		if err := m.Add(leaderWork(func(ctx context.Context) error {
			fmt.Println("started")
			<-ctx.Done()
			fmt.Println("stopped")
			return nil
		})); err != nil {
			return fail(err)
		}
		fmt.Println("ready")
		if err := m.Start(ctx); err != nil {
			return fail(err)
		}
	default:
		return fail(fmt.Errorf("no role %q", role))
	}
	fmt.Println("done")
	return 0
}

// tellOf prints for each line of the standard input whether a context is done.
func tellOf(ctx context.Context) {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if ctx.Err() == nil {
			fmt.Println("valid")
		} else {
			fmt.Println("ended")
		}
	}
}

// newManager returns a manager of controller-runtime without an API server.
func newManager(lock resourcelock.Interface) (ctrl.Manager, error) {
	tm := brisk()
	ctrl.SetLogger(logr.Discard())
	return ctrl.NewManager(noAPIServer(), ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &tm.lease, RenewDeadline: &tm.deadline, RetryPeriod: &tm.retry,
		Metrics:        noMetrics(),
		MapperProvider: noMapper,
	})
}

// An actor is such a process.
type actor struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Writer
	lines chan string // closed at the end of the process
}

func (e *env) startActor(role, identity string) *actor {
	e.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, identityVariable+"="+identity, serverVariable+"="+e.Real.Addr())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	must(e, err)
	stdin, err := cmd.StdinPipe()
	must(e, err)
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
		_ = cmd.Process.Kill() // the process may have ended
		for range a.lines {
		}
		_ = cmd.Wait() // reports the kill
	})
	return a
}

func (a *actor) send(line string) {
	a.t.Helper()
	_, err := io.WriteString(a.stdin, line+"\n")
	must(a.t, err)
}

// signal sends a signal. After SIGSTOP it waits until the process has stopped.
func (a *actor) signal(sig syscall.Signal) {
	a.t.Helper()
	must(a.t, a.cmd.Process.Signal(sig))
	if sig == syscall.SIGSTOP {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(a.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			a.t.Fatalf("the process does not stand still: %v, status %v", err, status)
		}
	}
}

// hear waits for a line with this prefix and skips others.
func (a *actor) hear(begin string) time.Time {
	a.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				a.t.Fatalf("the process ended without saying %q", begin)
			}
			if strings.HasPrefix(line, "error") && !strings.HasPrefix(begin, "error") {
				a.t.Fatalf("the process said %q", line)
			}
			if strings.HasPrefix(line, begin) {
				return time.Now()
			}
		case <-timer.C:
			a.t.Fatalf("the process did not say %q", begin)
		}
	}
}

// silent asserts that the process has printed no line with this prefix.
func (a *actor) silent(begin string) {
	a.t.Helper()
	for {
		select {
		case line := <-a.lines:
			if strings.HasPrefix(line, begin) {
				a.t.Fatalf("the process said %q", line)
			}
		default:
			return
		}
	}
}
