package election_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Ready returns an error while no replica can be elected, although the server answers:
// before Run, without the rights, with a record of another type, and while it hangs. A replica that has found the
// record in order before leads all the same.
func TestFault77_NotReadyWhileNoReplicaCanLead(t *testing.T) {
	t.Parallel()
	fails := func(text string) func(e *env) { return func(e *env) { e.Bubble.Server().SetError(text) } }
	for name, test := range map[string]struct{ breaks, mends func(e *env) }{
		"no rights": {fails("NOPERM this user has no permissions"), fails("")},
		"another type": {
			func(e *env) {
				e.Raw.Del(e.Context(), key("leader"))
				e.Raw.Set(e.Context(), key("leader"), "x", 0)
				e.Raw.Del(e.Context(), key("lock"))
			},
			func(e *env) { e.Raw.Del(e.Context(), key("leader")) },
		},
		"silence": {func(e *env) { e.Bubble.Hang() }, func(e *env) { e.Bubble.Unhang() }},
	} {
		for _, early := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(e *env) {
					a, b := e.replica(e.Client("a"), election.Config{}), e.replica(e.Client("b"), election.Config{})
					ready := func(when string, want bool) {
						t.Helper()
						if (a.le.Ready() == nil) != want || (b.le.Ready() == nil) != want {
							t.Errorf("%s: %v and %v", when, a.le.Ready(), b.le.Ready())
						}
					}
					ready("before Run", false)
					if early {
						test.breaks(e)
						a.run()
						b.run()
					} else {
						e.queueUp(a, b)
						time.Sleep(time.Minute)
						ready("a leader and a candidate", true)
						test.breaks(e)
					}
					time.Sleep(time.Minute)
					ready("while no replica can lead", !early && name == "another type")
					test.mends(e)
					time.Sleep(time.Minute)
					ready("afterwards", true)
					a.stop()
					b.stop()
					ready("after Run", false)
				})
			})
		}
	}
}

// A candidate lacks a right that only a leader needs, or a key of the leader has another type:
// it is not ready although another replica leads, and logs the reason once, with the command.
// The commands are read from the scripts.
// Mutants: a campaign tries only what it needs itself; a command is not tried.
func TestFault77_NotReadyLongBeforeItLeads(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	e.queueUp(e.replica(e.Client("a"), e.quick()))
	type candidate struct {
		*replica
		name, says string
		log        testenv.Log
	}
	start := func(name, says string, rules ...string) *candidate {
		c := &candidate{name: name, says: says}
		cfg := e.quick()
		cfg.LeaseDuration /= 4 // it asks once in a lease
		opt := e.As(name, append([]string{"~noonlock:*", "+@all", "allchannels"}, rules...)...)
		c.replica = e.replica(e.ClientWith(opt, lockcore.Config{Identity: name, Logger: c.log.Info("")}), cfg).run()
		return c
	}
	check := func(all ...*candidate) {
		said := func(c *candidate) bool {
			err := c.le.Ready()
			return errors.Is(err, election.ErrNotReady) && strings.Contains(err.Error(), c.says) && errors.Is(err, lockcore.ErrWrongKind) == (c.says == "WRONGTYPE")
		}
		logged := func(c *candidate) int { return c.log.Count("cannot campaign", c.says, `"error"=`) }
		for _, c := range all {
			e.Until(c.name+" is not ready, and says why", func() bool { return said(c) && logged(c) > 0 })
		}
		e.Pass(3*retryPeriod + 1500*time.Millisecond) // a failure is logged after a second
		for _, c := range all {
			if !said(c) || logged(c) != 1 {
				t.Errorf("%s: Ready says %v, and it logs\n%s", c.name, c.le.Ready(), c.log.String())
			}
		}
	}
	var all []*candidate
	lua := "../lockcore/lua/"
	for _, command := range append(testenv.Commands(t, lua+"mutex_*.lua", lua+"part_mutex.lua", lua+"part_queue.lua", lua+"part_place.lua", "../internal/wire/lua/part_token.lua",
		"lua/leader_[lr]*.lua", "lua/part_leader.lua"), "eval") {
		says := strings.ToUpper(command)
		if command == "eval" {
			says = "NOPERM" // it is no command of a script
		}
		all = append(all, start(command, says, "-"+command))
	}
	check(all...)
	for _, c := range all {
		must(e, e.Raw.ACLSetUser(e.Context(), c.name, "+"+c.name).Err())
	}
	for _, c := range all {
		e.Until(c.name+" is ready", func() bool { return c.le.Ready() == nil })
		c.stop()
	}
	must(e, e.Raw.HSet(e.Context(), key("leader"), "v", 2).Err())
	newer := start("newer", "newer schema")
	check(newer)
	newer.stop()
	for _, part := range []string{"leader", "fence"} {
		_, err := e.Raw.TxPipelined(e.Context(), func(p redis.Pipeliner) error { // at once: the leader writes its record again
			p.Del(e.Context(), key("leader"), key("fence"))
			p.XAdd(e.Context(), &redis.XAddArgs{Stream: key(part), Values: []string{"a", "b"}})
			return nil
		})
		must(e, err)
		c := start(part, "WRONGTYPE")
		check(c)
		c.stop()
	}
	if e.Exists(key("never")) {
		t.Error("a key is left behind")
	}
}
