package clientgo_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
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
	*testenv.Actor
	t testing.TB
}

func (e *env) startActor(role, identity string) *actor {
	e.Helper()
	return &actor{e.StartActor(roleVariable+"="+role, identityVariable+"="+identity, serverVariable+"="+e.Real.Addr()), e.T}
}

// hear waits for a line with this prefix and skips others.
func (a *actor) hear(begin string) time.Time {
	a.t.Helper()
	for {
		line := a.Next()
		if strings.HasPrefix(line, "error") && !strings.HasPrefix(begin, "error") {
			a.t.Fatalf("the process said %q, want %q", line, begin)
		}
		if strings.HasPrefix(line, begin) {
			return time.Now()
		}
	}
}

// silent asserts that the process has printed no line with this prefix.
func (a *actor) silent(begin string) {
	a.t.Helper()
	for {
		select {
		case line := <-a.Lines:
			if strings.HasPrefix(line, begin) {
				a.t.Fatalf("the process said %q", line)
			}
		default:
			return
		}
	}
}
