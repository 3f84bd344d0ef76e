package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
)

// resign asks the leader to resign, or to transfer leadership.
func TestResign(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.fails(66, []string{`there is no election "board"`}, "resign", "board")
	drains := make(chan struct{})
	elector := func(identity string) *election.LeaderElector {
		le, err := election.NewLeaderElector(e.Client(identity), "board", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				<-ctx.Done()
				<-drains
			},
			OnStoppedLeading: func() {},
		}, election.Config{})
		testenv.Must(t, err)
		return le
	}
	a, b, c := elector("a"), elector("b"), elector("c")
	stopA := e.background(a.Run)
	e.Until("a leads", a.IsLeader)
	e.fails(66, []string{"election board has no candidate x; it has none"}, "resign", "board", "--to", "x")
	stopB := e.background(b.Run)
	e.Until("b waits", func() bool { return e.waiters("election/board") == 1 })
	stopC := e.background(c.Run)
	e.Until("c waits", func() bool { return e.waiters("election/board") == 2 })
	e.fails(66, []string{"election board has no candidate x; it has b, c"}, "resign", "board", "--to", "x")
	e.fails(64, []string{"Operator.Reason", "200 bytes"}, "resign", "board", "--reason", strings.Repeat("x", 201))
	if out := e.must("resign", "board", "--to", "c", "--reason", "node drained"); out != "election board: a was asked to transfer to c\n" {
		t.Errorf("resign: %q", out)
	}
	if out := e.must("describe", "election", "board"); !strings.Contains(out, ", reason node drained, to c\n") {
		t.Errorf("describe:\n%s", out)
	}
	close(drains)
	e.Until("c leads", c.IsLeader)
	e.Until("a waits", func() bool { return e.waiters("election/board") == 2 })
	if out := e.must("resign", "board"); out != "election board: c was asked to resign\n" {
		t.Errorf("resign: %q", out)
	}
	e.Until("b leads", b.IsLeader)
	stopA()
	stopC()
	stopB()
	e.fails(66, []string{"election board has no leader"}, "resign", "board")
}
