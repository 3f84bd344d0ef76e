package election_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// roleVariable makes this test binary a replica: a process that campaigns under that
// identity. It reports events on its standard output, and answers questions from its
// standard input. serverVariable is the address of the server.
const (
	roleVariable   = "ELECTION_TEST_ROLE"
	serverVariable = "ELECTION_TEST_SERVER"
)

func playRole() int {
	rdb := redis.NewClient(testenv.Options(os.Getenv(serverVariable)))
	c, err := lockcore.New(rdb, lockcore.Config{Identity: os.Getenv(roleVariable)})
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	var mu sync.Mutex
	var newest func() error // of the context of the newest term
	hold := make(chan struct{})
	le, err := election.NewLeaderElector(c, electionName, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			mu.Lock()
			newest = ctx.Err
			mu.Unlock()
			term, _ := election.TermFrom(ctx)
			fmt.Println("started", term.Token)
			<-ctx.Done()
			fmt.Println("cause", strings.ReplaceAll(context.Cause(ctx).Error(), "\n", "; "))
			if term.Number == 1 {
				<-hold
			}
		},
		OnStoppedLeading: func() { fmt.Println("stopped") },
	}, quick(""))
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- le.Run(ctx) }()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		switch in.Text() {
		case "look":
			mu.Lock()
			fmt.Println("look", le.IsLeader(), newest(), le.Check(0) != nil)
			mu.Unlock()
		case "return":
			close(hold)
		}
	}
	cancel()
	if err := <-done; err != nil {
		fmt.Println("error", err)
		return 1
	}
	return 0
}

// An actor is such a process, as the test sees it.
type actor struct {
	*testenv.Actor
	t testing.TB
}

func (e *env) startActor(identity string) *actor {
	e.Helper()
	return &actor{e.StartActor(roleVariable+"="+identity, serverVariable+"="+e.Real.Addr()), e.T}
}

// hear returns the rest of the next line, which begins with the word.
func (a *actor) hear(word string) string {
	a.t.Helper()
	line := a.Next()
	rest, found := strings.CutPrefix(line, word)
	if !found {
		a.t.Fatalf("the process said %q, want %q", line, word)
	}
	return strings.TrimSpace(rest)
}

func (a *actor) started() uint64 {
	a.t.Helper()
	token, err := strconv.ParseUint(a.hear("started"), 10, 64)
	must(a.t, err)
	return token
}

// The leader's process is stopped for longer than its lease. When it continues, its first
// call is refused, before any timer has run. Liveness fails until the work has returned,
// and then it queues again.
//
// Caught mutant: the lease checks its cause and not the clock.
func TestFault01_LeaderProcessFrozen(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	frozen := e.startActor("frozen")
	token := frozen.started()
	frozen.Send("look")
	if got := frozen.hear("look"); got != "true <nil> false" {
		t.Fatalf("before the pause: %s", got)
	}
	frozen.Signal(syscall.SIGSTOP)
	frozen.Send("look") // it waits in the pipe
	b := e.replica(e.Client("b"), quick(""))
	second := b.run().leads(1) // so the pause was longer than the lease
	if second.Token <= token {
		t.Errorf("token %d after %d", second.Token, token)
	}
	frozen.Signal(syscall.SIGCONT)
	// The answer and the end of the context come from two goroutines.
	for range 2 {
		line := frozen.hear("")
		if look, ok := strings.CutPrefix(line, "look "); ok {
			if look != "false context canceled true" {
				t.Errorf("after the pause: %s", look)
			}
		} else if !strings.HasPrefix(line, "cause lockcore: lease") {
			t.Errorf("after the pause it said %q", line)
		}
	}
	frozen.Send("return")
	frozen.hear("stopped")
	e.queued(1)
	b.stop()
	if third := frozen.started(); third <= second.Token {
		t.Errorf("token %d after %d", third, second.Token)
	}
}

// The leader's process is killed. The next one leads when the lease has expired, and not
// earlier.
//
// Caught mutant: mutex_acquire grants a lock that has a TTL left.
func TestFault54_LeaderProcessKilled(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	killed := e.startActor("killed")
	token := killed.started()
	b, c := e.replica(e.Client("b"), quick("")), e.replica(e.Client("c"), quick(""))
	b.run()
	e.queued(1)
	c.run()
	e.queued(2)
	killed.Signal(syscall.SIGKILL)
	killed.WaitForEnd()
	if left := e.Raw.PTTL(e.Context(), key("lock")).Val(); left > 0 {
		// The lock may have expired by now only if this machine was paused.
		b.never()
	}
	second := b.leads(1)
	if second.Token <= token || second.Number != 2 {
		t.Errorf("term %+v after token %d", second, token)
	}
	c.never()
	e.Until("all know", func() bool { return c.le.GetLeader() == "b" })
	e.history.Require(e)
}

// A process that is asked to end releases its lease, and its successor leads at once. Here
// the end of its input replaces the signal.
func TestLeaderProcessStops(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	first := e.startActor("first")
	token := first.started()
	b := e.replica(e.Client("b"), election.Config{LeaseDuration: time.Hour})
	b.run()
	e.queued(1)
	first.Send("return")
	must(e, first.Stdin.Close())
	if cause := first.hear("cause"); cause != "context canceled" {
		t.Errorf("cause %q", cause)
	}
	first.hear("stopped")
	if term := b.leads(1); term.Token <= token {
		t.Errorf("token %d after %d", term.Token, token)
	}
}
