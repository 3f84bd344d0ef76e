package chaos

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
)

// FAULTS 15, 16 and 17, of class D, with real processes: Redis loses all or its newest data
// while a replica draws. No lock on a single Redis survives that. The replicas restore what
// they still know, and the database ensures the rest: every noon is drawn once, with a
// growing token. lottery verify reports the lost part of the ledger.

// Redis restarts empty.
func TestEmptyRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.survives(func() {
		w.server.Kill()
		if err := os.RemoveAll(w.logOfRedis()); err != nil {
			t.Fatal(err)
		}
		w.server.Restart(t)
	}, func() {})
}

// Redis restarts with its data of some noons ago, as from a backup or from a disk that lost
// writes.
func TestOldSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := filepath.Join(t.TempDir(), "old")
	w.survives(func() {
		w.server.Kill()
		if err := os.RemoveAll(w.logOfRedis()); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(w.logOfRedis(), os.DirFS(old)); err != nil {
			t.Fatal(err)
		}
		w.server.Restart(t)
	}, func() {
		if err := os.CopyFS(old, os.DirFS(w.logOfRedis())); err != nil {
			t.Fatal(err)
		}
	})
}

// The master dies, and a replica of it takes its place that has received no data for some
// noons.
func TestFailoverToALaggingReplica(t *testing.T) {
	t.Parallel()
	master, standby := durableRedis(t), durableRedis(t)
	replication := newLink(t, master.Addr())
	address := newLink(t, master.Addr()) // forwards to the current server
	w := newWorldOn(t, master, address.Addr())

	rdb := redis.NewClient(&redis.Options{Addr: standby.Addr()})
	defer rdb.Close()
	host, port, err := net.SplitHostPort(replication.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := rdb.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	synced := func() bool {
		text, err := rdb.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(text, "master_link_status:up")
	}
	w.survives(func() {
		master.Kill()
		if err := rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		address.Retarget(standby.Addr())
	}, func() {
		w.poll(t.Context(), "the standby does not follow", synced)
		replication.Away(true)
	})
}

// logOfRedis is the file in which Redis stores its data.
func (w *world) logOfRedis() string { return filepath.Join(w.server.Dir(), "appendonlydir") }

// survives has the replicas draw some noons, calls lag, has them draw more noons, and calls
// lose while one of them draws. Afterwards only the ledger may be incomplete.
func (w *world) survives(lose, lag func()) {
	t := w.t
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var fleet []*replica
	for _, name := range []string{"a", "b", "c"} {
		fleet = append(fleet, w.start(name, nil))
	}
	w.awaitDraws(ctx, 2)
	lag()
	w.awaitDraws(ctx, w.countDraws(ctx)+3)
	holder, release := w.holdDraw(ctx, fleet)
	before := w.allWinners(ctx)
	lose()
	release()
	w.awaitDraws(ctx, len(before)+5)
	for _, r := range fleet {
		if code, err := r.terminate(ctx); code != 0 || err != nil {
			t.Errorf("%s: exit code %d, %v", r.name, code, err)
		}
	}

	draws := w.draws(ctx)
	for i, d := range draws {
		if i == 0 {
			continue
		}
		if last := draws[i-1]; d.tick-last.tick != every.Milliseconds() || d.token <= last.token {
			t.Errorf("after the draw of %d under token %d comes that of %d under token %d; want the next noon and a greater token", last.tick, last.token, d.tick, d.token)
		}
	}
	after := w.allWinners(ctx)
	for tick, winners := range before {
		if after[tick] != winners {
			t.Errorf("the winners of %d were %s, and then %s", tick, winners, after[tick])
		}
	}
	w.expect(ctx, len(draws), "SELECT COUNT(*) FROM (SELECT tick FROM winners GROUP BY tick HAVING COUNT(DISTINCT entrant_id) = 10 AND COUNT(*) = 10) AS full")
	again := 0
	for _, r := range fleet {
		again += r.logs.Count("draw was already committed")
	}
	code, out := w.verifyAll(ctx, time.UnixMilli(draws[0].tick), time.UnixMilli(draws[len(draws)-1].tick))
	unledgered := strings.Count(out, "\nunledgered")
	servers.Count(t, "lost in the middle of a draw by %s, of %d noons: %d draws, none twice, none missing; runs that found theirs drawn already: %d; draws that verify misses in the ledger: %d",
		holder.name, len(draws), len(draws), again, unledgered)
	if code != 1 || unledgered == 0 {
		t.Errorf("verify exits with %d and misses %d draws in the ledger; it must tell of some:\n%s", code, unledgered, out)
	}
	for line := range strings.Lines(out) {
		for _, bad := range []string{"missing", "extra", "short", "repeated", "ineligible", "unrecorded"} {
			if strings.HasPrefix(line, bad) {
				t.Errorf("verify finds: %s", line)
			}
		}
	}
}

// holdDraw holds the next draw of one of the replicas back until release is called.
func (w *world) holdDraw(ctx context.Context, fleet []*replica) (holder *replica, release func()) {
	w.t.Helper()
	traps := make([]*trap, len(fleet))
	for i, r := range fleet {
		traps[i] = r.sql.Hold(recording)
	}
	w.poll(ctx, "no replica draws", func() bool {
		return slices.ContainsFunc(fleet, func(r *replica) bool {
			select {
			case <-traps[slices.Index(fleet, r)].Caught():
				holder = r
				return true
			default:
				return false
			}
		})
	})
	return holder, func() {
		for _, trap := range traps {
			trap.Release()
		}
	}
}
