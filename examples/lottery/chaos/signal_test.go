package chaos

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A replica that receives SIGTERM in the middle of a draw claims no more noons, finishes the
// draw, leaves nothing open in the ledger, and exits with 0.
func TestStopInTheMiddleOfADraw(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			w := newWorld(t)
			r := w.start("stopping", nil)
			w.await(ctx, r, "draw committed", 1)
			trap := r.sql.Hold(recording)
			select {
			case <-trap.Caught():
			case <-ctx.Done():
				t.Fatal(context.Cause(ctx))
			}
			held, ok := w.running(ctx, r)
			if !ok {
				t.Fatal("the replica does not hold the run that it draws")
			}
			r.signal(sig)
			w.awaitStopping(ctx, r)
			trap.Release()
			if code, err := r.wait(ctx); code != 0 || err != nil {
				t.Errorf("exit code %d, %v", code, err)
			}
			runs, err := w.ledger.Runs(ctx, 1)
			if err != nil || !runs[0].Tick.Equal(held.Tick) || runs[0].Outcome != singleton.OutcomeSucceeded || runs[0].Attempt != 1 {
				t.Errorf("the last run is %+v, %v; want that of %s, succeeded at attempt 1", runs, err, held.Tick)
			}
			state, err := w.ledger.Status(ctx)
			if err != nil || len(state.Open) != 0 {
				t.Errorf("the ledger has open runs: %+v, %v", state.Open, err)
			}
			w.verify(ctx, w.await(ctx, r, "draw committed", 1).Tick, held.Tick)
		})
	}
}

// Redis is down when a replica receives SIGTERM, so it can neither record its draw nor
// release its leases. It still ends, and the next replica finds the draw.
func TestStopDuringRedisOutage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	w.env = append(w.env, "LOTTERY_DRAIN=3s")
	r := w.start("stopping", nil)
	trap := r.sql.Hold(recording)
	select {
	case <-trap.Caught():
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	away := r.redis.Faults().Partition()
	asked := time.Now()
	r.signal(syscall.SIGTERM)
	w.awaitStopping(ctx, r)
	trap.Release()
	drawn := w.await(ctx, r, "draw committed", 1)
	if code, err := r.wait(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	servers.Count(t, "with a drain of 3s and without Redis a replica that had drawn ended %s after SIGTERM", time.Since(asked).Round(time.Millisecond))
	lockcoretest.MustFire(t, away)
	next := w.start("next", nil)
	if found := w.await(ctx, next, "draw was already committed", 1); !found.Tick.Equal(drawn.Tick) || found.Attempt != 2 || found.Token <= drawn.Token {
		t.Errorf("the next replica found %+v; want that of %+v at attempt 2 under a greater token", found, drawn)
	}
	if code, err := next.terminate(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	runs, err := w.ledger.Runs(ctx, noon.KeepRuns)
	if err != nil || len(runs) == 0 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	w.verify(ctx, drawn.Tick, runs[0].Tick)
}

// Neither Redis nor the database answers in the middle of a draw. The replica still ends by
// itself, well before it would be killed, and the next replica draws the noon.
func TestStopWithoutServers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	w.env = append(w.env, "LOTTERY_DRAIN=1s")
	r := w.start("stopping", nil)
	trap := r.sql.Hold(recording)
	select {
	case <-trap.Caught(): // and stays held
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	held, ok := w.running(ctx, r)
	if !ok {
		t.Fatal("the replica does not hold the run that it draws")
	}
	away := r.redis.Faults().Partition()
	asked := time.Now()
	code, err := r.terminate(ctx)
	if code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	servers.Count(t, "with a drain of 1s and without Redis and database a replica ended %s after SIGTERM", time.Since(asked).Round(time.Millisecond))
	lockcoretest.MustFire(t, away)
	trap.Release()
	next := w.start("next", nil)
	if drawn := w.await(ctx, next, "draw committed", 1); !drawn.Tick.Equal(held.Tick) || drawn.Attempt != 2 || drawn.Token <= held.Token {
		t.Errorf("the next replica drew %+v; want that of %+v at attempt 2 under a greater token", drawn, held)
	}
	if code, err := next.terminate(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// Nobody reads the standard error of a replica, and the pipe is full. The replica draws and
// records, and it still ends.
func TestFault63_FullPipe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	w.stderr = testenv.FullPipe(t)
	r := w.start("silenced", nil)
	var runs []singleton.Entry
	w.poll(ctx, "no draws are recorded", func() bool {
		var err error
		runs, err = w.ledger.Runs(ctx, 2)
		return err == nil && len(runs) == 2
	})
	for _, run := range runs {
		if run.Outcome != singleton.OutcomeSucceeded || run.Attempt != 1 {
			t.Errorf("a draw is recorded as %+v", run)
		}
	}
	if code, err := r.terminate(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// A second signal ends the replica without that wait.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	r := w.start("stopping", nil)
	trap := r.sql.Hold(recording)
	select {
	case <-trap.Caught():
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	r.signal(syscall.SIGTERM)
	w.awaitStopping(ctx, r)
	if code, err := r.terminate(ctx); code != 1 || err != nil {
		t.Errorf("exit code %d, %v; want 1, since the second signal ends it immediately", code, err)
	}
	trap.Release()
	w.expect(ctx, 0, "SELECT COUNT(*) FROM draws")
}

// A replica that waits for its servers can be stopped, too.
func TestStopBeforeItIsReady(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	w.redis, w.sql.Host, w.sql.Port = "127.0.0.1:1", "127.0.0.1", 1
	r := w.start("waiting", nil)
	w.await(ctx, r, "redis is not available yet; retrying", 1)
	w.await(ctx, r, "database is not available yet; retrying", 1)
	if code, err := r.terminate(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	w.await(ctx, r, "replica stopped before it was ready", 1)
}

// Without arguments the program is the demo, with the bundled entrants.
func TestDemoIsTheDefault(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := &world{t: t}
	code, out := w.lottery(ctx)
	if code != 0 || !strings.Contains(out, "All checks passed.") || !strings.Contains(out, "IS CUT OFF") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

// The flags of a real process can come from its environment.
func TestRefusalOfAProcess(t *testing.T) {
	t.Parallel()
	w := &world{t: t, env: []string{"LOTTERY_LEASE=5ms"}}
	code, out := w.lottery(t.Context(), "serve", "--entrants="+filepath.Join(t.TempDir(), "none.csv"), "--schedule=0 0 30 2 *")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != 2 || len(lines) < 3 || !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "LOTTERY_LEASE is") }) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
