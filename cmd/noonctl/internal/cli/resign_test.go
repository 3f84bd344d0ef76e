package cli_test

import (
	"strings"
	"testing"
)

// resign asks the leader to resign, or to transfer leadership.
func TestResign(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.says("resign board", 66, `there is no election "board"`)
	drains := make(chan struct{})
	a, b, c := e.elector("a", drains), e.elector("b", drains), e.elector("c", drains)
	stopA := e.background(a.Run)
	e.led("a")
	e.says("resign board --to x", 66, "election board has no candidate x; it has none")
	stopB := e.background(b.Run)
	e.Until("b waits", func() bool { return e.waiters("election/board") == 1 })
	stopC := e.background(c.Run)
	e.Until("c waits", func() bool { return e.waiters("election/board") == 2 })
	e.says("resign board --to x", 66, "election board has no candidate x; it has b, c")
	e.says("resign board --reason "+strings.Repeat("x", 201), 64, "--reason is", "200 bytes")
	e.says("resign board --to c --reason drained", 0, "=election board: a was asked to transfer to c\n")
	e.says("describe election board", 0, "to transfer to c, by ", ": drained\n")
	close(drains)
	e.led("c")
	e.Until("a waits", func() bool { return e.waiters("election/board") == 2 })
	e.says("resign board", 0, "=election board: c was asked to resign\n")
	e.led("b")
	stopA()
	stopC()
	stopB()
	e.says("resign board", 66, "election board has no leader")
}
