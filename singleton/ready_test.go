package singleton_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

// Ready returns an error while no tick can be run, although the server answers: before Run,
// on a read-only server, with a newer schema, with a key of another type, without the
// rights, and when the runner stops. One job that cannot be run is enough.
// Mutants: Ready only requires an answer to TIME; an old error counts forever.
func TestFault77_NotReadyWhileNothingCanRun(t *testing.T) {
	t.Parallel()
	const job = "noonlock:{job/draw}:job"
	fails := func(text string) func(f *fleet) {
		return func(f *fleet) { f.Bubble.Server().SetError(text) }
	}
	for name, test := range map[string]struct {
		breaks func(f *fleet)
		mends  func(f *fleet)
		says   string
	}{
		"a read-only replica": {fails("READONLY You can't write against a read only replica."), fails(""), "READONLY"},
		"no rights":           {fails("NOPERM this user has no permissions"), fails(""), "NOPERM"},
		"out of memory":       {fails("OOM command not allowed"), fails(""), "OOM"},
		"a newer schema": {
			func(f *fleet) { f.Raw.HSet(f.Context(), job, "v", "999") },
			func(f *fleet) { f.Raw.Del(f.Context(), job) }, "newer schema",
		},
		"another type": {
			func(f *fleet) { f.Raw.Del(f.Context(), job); f.Raw.Set(f.Context(), job, "x", 0) },
			func(f *fleet) { f.Raw.Del(f.Context(), job) }, "WRONGTYPE",
		},
		"no claims": {
			func(f *fleet) {
				claims := f.Bubble.Faults().ScriptContaining("local overlap, keep, retain")
				f.Bubble.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
					refused := claims(append([]string{cmd}, args...))
					if refused {
						c.WriteError("NOPERM this user has no permissions")
					}
					return refused
				})
			},
			func(f *fleet) { f.Bubble.Server().Server().SetPreHook(nil) }, "NOPERM",
		},
		"silence": {func(f *fleet) { f.Bubble.Hang() }, func(f *fleet) { f.Bubble.Unhang() }, ""},
	} {
		for _, early := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if early && name == "no claims" {
					t.Skip("its scripts are not known before they were sent")
				}
				inBubble(t, func(t *testing.T, f *fleet) {
					opt, _ := f.Link()
					c := f.ClientWith(opt, lockcore.Config{})
					if name == "no claims" {
						c = f.ClientWith(f.Direct(), lockcore.Config{})
					}
					r, err := singleton.NewRunner(c, singleton.Config{Logger: f.log.Info("a" + ": ")})
					if err != nil {
						t.Fatal(err)
					}
					for _, job := range []string{"other", "draw"} {
						if err := r.Add(job, "@every 1m", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}); err != nil {
							t.Fatal(err)
						}
					}
					ready := func(when string, want bool) {
						t.Helper()
						if err := r.Ready(); (err == nil) != want || !want && err != nil && !strings.Contains(err.Error(), test.says) {
							t.Errorf("%s: Ready says %v", when, err)
						}
					}
					if !errors.Is(r.Ready(), singleton.ErrNotReady) {
						t.Error("ready before it runs")
					}
					if early {
						test.breaks(f)
					}
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error, 1)
					go func() { done <- r.Run(ctx) }()
					if !early {
						time.Sleep(5*time.Minute + 10*time.Second)
						ready("while all is well", true)
						test.breaks(f)
					}
					time.Sleep(100 * time.Second)
					ready("while it cannot run", false)
					test.mends(f)
					time.Sleep(100 * time.Second)
					ready("when it can", true)
					cancel()
					if err := <-done; err != nil || r.Ready() == nil {
						t.Errorf("Run: %v; ready after it: %v", err, r.Ready() == nil)
					}
					if errors, lasting := f.log.Count(`"error"=`), name != "a read-only replica" && name != "silence"; (errors > 0) != lasting {
						t.Errorf("%d errors are logged:\n%s", errors, f.log.String())
					}
				})
			})
		}
	}
}

// A Daemon is ready while it is queued or works, and not while no replica could take over.
func TestFault77_DaemonReady(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"READONLY You can't write against a read only replica.", "NOPERM this user has no permissions"} {
		inBubble(t, func(t *testing.T, f *fleet) {
			work := func(ctx context.Context, _ uint64) error { <-ctx.Done(); return nil }
			reg := prometheus.NewRegistry()
			var all []*singleton.Daemon
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 2)
			for range 2 {
				s, err := singleton.NewDaemon(f.ClientWith(f.Direct(), lockcore.Config{}), "feed", work, singleton.DaemonConfig{Registerer: reg})
				if err != nil {
					t.Fatal(err)
				}
				if s.Ready() == nil {
					t.Error("ready before Run")
				}
				go func() { done <- s.Run(ctx) }()
				time.Sleep(time.Second)
				all = append(all, s)
			}
			time.Sleep(time.Hour)
			for i, s := range all {
				if err := s.Ready(); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
			if n, _ := metric(t, reg, "noonlock_daemon_running", "name", "feed"); n != 1 {
				t.Errorf("it runs on %v replicas", n)
			}
			f.Bubble.Server().SetError(text)
			time.Sleep(time.Minute)
			for i, s := range all {
				if s.Ready() == nil {
					t.Errorf("%d is ready although the server says %s", i, text)
				}
			}
			f.Bubble.Server().SetError("")
			time.Sleep(time.Minute)
			for i, s := range all {
				if err := s.Ready(); err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
			cancel()
			for range all {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if n, _ := metric(t, reg, "noonlock_daemon_running", "name", "feed"); n != 0 || all[0].Ready() == nil {
				t.Errorf("after Run: running %v, Ready %v", n, all[0].Ready())
			}
		})
	}
}

// A user has one right too few, or a key has another type: the check reports that when the
// replica starts, long before the first tick, even if only a later script needs them.
// Mutant: a start tries only what it needs itself.
func TestFault77_NotReadyLongBeforeTheFirstTick(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	for _, missing := range []string{"time", "hset", "hgetall", "exists", "persist", "fence", "runs", "defs"} {
		says, without := "NOPERM", missing
		if missing == "fence" || missing == "runs" || missing == "defs" {
			says, without = "WRONGTYPE", ""
			if err := f.Raw.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key("without-"+missing, missing), Values: []string{"a", "b"}}).Err(); err != nil {
				t.Fatal(err)
			}
		}
		u := f.narrowUser(t, "without-"+missing, "noonlock:job:*", onceRights, without)
		c, _ := u.client(missing)
		r, err := singleton.NewRunner(c, singleton.Config{Logger: u.log.Info(missing + ": ")})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Add("without-"+missing, "0 0 1 1 *", func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		u.wait = 5 * time.Second
		if err := u.come("the check reports it", func() bool {
			err := r.Ready()
			return err != nil && strings.Contains(err.Error(), says)
		}); err != nil {
			t.Errorf("without %s: %v, the check says %v", missing, err, r.Ready())
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("without %s: Run: %v", missing, err)
		}
	}
}

// The same for a Daemon whose function another replica runs: a right that only the holder of
// the lease needs, and a token counter of another type.
// Mutants: a campaign tries only what it needs itself; a command is not tried.
func TestFault77_DaemonNotReadyLongBeforeItRuns(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	type daemon struct {
		*singleton.Daemon
		name, says string
		log        testenv.Log
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	start := func(name, says string, rules ...string) *daemon {
		d := &daemon{name: name, says: says}
		opt := f.As(name, append([]string{"~noonlock:*", "+@all", "allchannels"}, rules...)...)
		var err error
		d.Daemon, err = singleton.NewDaemon(f.ClientWith(opt, lockcore.Config{Identity: name}), "feed", func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			return nil
		}, singleton.DaemonConfig{TTL: 2 * time.Second, Logger: d.log.Info("")})
		testenv.Must(t, err)
		running.Go(func() {
			if err := d.Run(ctx); err != nil {
				t.Errorf("%s: Run: %v", name, err)
			}
		})
		return d
	}
	holder := start("holder", "")
	f.Until("it runs", func() bool { return holder.Ready() == nil })
	var all []*daemon
	lua := "../lockcore/lua/"
	for _, command := range append(testenv.Commands(t, lua+"mutex_*.lua", lua+"part_mutex.lua", lua+"part_queue.lua", "../internal/wire/lua/part_token.lua"), "eval") {
		says := strings.ToUpper(command)
		if command == "eval" {
			says = "NOPERM" // it is no command of a script
		}
		all = append(all, start(command, says, "-"+command))
	}
	check := func(all ...*daemon) {
		said := func(d *daemon) bool {
			err := d.Ready()
			return errors.Is(err, singleton.ErrNotReady) && strings.Contains(err.Error(), d.says)
		}
		for _, d := range all {
			f.Until(d.name+" is not ready", func() bool { return said(d) })
		}
		f.Pass(300 * time.Millisecond)
		for _, d := range all {
			if !said(d) || d.log.Count("cannot campaign", d.says, `"error"=`) != 1 {
				t.Errorf("%s: Ready says %v, and it logs\n%s", d.name, d.Ready(), d.log.String())
			}
		}
	}
	check(all...)
	for _, d := range all {
		testenv.Must(t, f.Raw.ACLSetUser(t.Context(), d.name, "+"+d.name).Err())
	}
	for _, d := range all {
		f.Until(d.name+" is ready", func() bool { return d.Ready() == nil })
	}
	fence := f.key("daemon/feed", "fence")
	testenv.Must(t, f.Raw.Del(t.Context(), fence).Err())
	testenv.Must(t, f.Raw.XAdd(t.Context(), &redis.XAddArgs{Stream: fence, Values: []string{"a", "b"}}).Err())
	check(start("fence", "WRONGTYPE"))
	if f.Exists(f.key("daemon/feed", "never")) {
		t.Error("a key is left behind")
	}
	testenv.Must(t, f.Raw.Del(t.Context(), fence).Err())
}
