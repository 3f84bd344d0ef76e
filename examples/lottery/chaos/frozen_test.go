package chaos

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FAULTS 2 with a real process and a real statement: a replica is frozen with SIGSTOP just
// after it has sent the INSERT of its winners, and the network holds the INSERT back.
// Another replica takes the noon over and commits. Then the INSERT arrives. MariaDB has
// ended the session, so it refuses the INSERT, and none of its rows remain.
func TestInsertOfAFrozenHolderIsRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	frozen := w.start("frozen", nil)
	w.await(ctx, frozen, "draw committed", 1)
	trap := frozen.sql.Hold(recording)
	select {
	case <-trap.Caught():
	case <-ctx.Done():
		t.Fatal(context.Cause(ctx))
	}
	frozen.signal(syscall.SIGSTOP)
	held, ok := w.running(ctx, frozen)
	if !ok {
		t.Fatal("the frozen replica does not hold the run of which it has sent the INSERT")
	}

	successor := w.start("successor", nil)
	taken := w.await(ctx, successor, "draw committed", 1)
	if !taken.Tick.Equal(held.Tick) || taken.Attempt != 2 || taken.Token <= held.Token {
		t.Fatalf("the successor drew %+v; want tick %s at attempt 2 under a greater token than %d", taken, held.Tick, held.Token)
	}
	drawn := w.winnersOf(ctx, held.Tick)

	trap.Release()
	refusal := trap.Refused(ctx)
	if refusal == nil {
		t.Error("MariaDB has taken the INSERT")
	}
	t.Logf("the answer to the INSERT: %v", refusal)
	frozen.signal(syscall.SIGCONT)
	lost := w.await(ctx, frozen, "run lost; another replica takes over", 1)
	t.Logf("the holder's error: %s", lost.Error)
	if !lost.Tick.Equal(held.Tick) || lost.Error == "" {
		t.Errorf("the holder lost %+v; want tick %s", lost, held.Tick)
	}
	if got := w.winnersOf(ctx, held.Tick); got != drawn || w.drawer(ctx, held.Tick) != "successor" {
		t.Errorf("the winners of %s are %s, drawn by %s; they were %s, drawn by the successor", held.Tick, got, w.drawer(ctx, held.Tick), drawn)
	}

	// The replica works again like any other.
	successor.kill()
	before := frozen.logs.Count("draw committed")
	last := w.await(ctx, frozen, "draw committed", before+2)
	if code, err := frozen.terminate(ctx); code != 0 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	first := w.await(ctx, frozen, "draw committed", 1).Tick
	for _, e := range frozen.logs.Entries() {
		if e.Message == "draw committed" && e.Tick.After(last.Tick) {
			last = e
		}
	}
	w.verify(ctx, first, last.Tick)
}

func (w *world) winnersOf(ctx context.Context, tick time.Time) string {
	w.t.Helper()
	rows, err := w.db.QueryContext(ctx, "SELECT entrant_id FROM winners WHERE tick = ? ORDER BY position", tick.UnixMilli())
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			w.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return strings.Join(ids, " ")
}
