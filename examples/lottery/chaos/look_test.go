package chaos

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/logtest"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/singleton"
)

// drawn is a row of the table of draws.
type drawn struct {
	tick  int64 // in ms
	token uint64
}

// draws returns all draws in the order of their noons.
func (w *world) draws(ctx context.Context) []drawn {
	w.t.Helper()
	rows, err := w.db.QueryContext(ctx, "SELECT tick, token FROM draws ORDER BY tick")
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	var all []drawn
	for rows.Next() {
		var d drawn
		if err := rows.Scan(&d.tick, &d.token); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, d)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// countDraws returns the number of draws, 0 if there is no table yet.
func (w *world) countDraws(ctx context.Context) int {
	w.t.Helper()
	var n int
	if err := w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM draws").Scan(&n); err != nil {
		return 0
	}
	return n
}

func (w *world) awaitDraws(ctx context.Context, n int) {
	w.t.Helper()
	w.poll(ctx, "too few noons are drawn", func() bool { return w.countDraws(ctx) >= n })
}

// allWinners returns the winners of each noon, in order.
func (w *world) allWinners(ctx context.Context) map[int64]string {
	w.t.Helper()
	all := map[int64]string{}
	for _, d := range w.draws(ctx) {
		all[d.tick] = w.winnersOf(ctx, time.UnixMilli(d.tick))
	}
	return all
}

// awaitTick waits until a replica logs the message for this noon.
func (w *world) awaitTick(ctx context.Context, r *replica, message string, tick time.Time) (found logtest.Entry) {
	w.t.Helper()
	w.poll(ctx, r.name+" does not log "+message, func() bool {
		entries := r.logs.Entries()
		i := slices.IndexFunc(entries, func(e logtest.Entry) bool { return e.Message == message && e.Tick.Equal(tick) })
		if i >= 0 {
			found = entries[i]
		}
		return i >= 0
	})
	return found
}

// finish stops the last replica and verifies all draws.
func (w *world) finish(ctx context.Context, last *replica) {
	w.t.Helper()
	if code, err := last.terminate(ctx); code != 0 || err != nil {
		w.t.Errorf("%s: exit code %d, %v", last.name, code, err)
	}
	ticks := slices.Sorted(maps.Keys(w.allWinners(ctx)))
	w.verify(ctx, time.UnixMilli(ticks[0]), time.UnixMilli(ticks[len(ticks)-1]))
}

// verifyAll runs lottery verify over the noons from the first to the last.
func (w *world) verifyAll(ctx context.Context, first, last time.Time) (code int, out string) {
	w.t.Helper()
	return w.lottery(ctx, "verify", "--since="+first.Format(time.RFC3339Nano), "--until="+last.Add(every).Format(time.RFC3339Nano))
}

// verify runs lottery verify over the range from the first to the last noon. It fails the
// test if the number of noons differs or verify finds a problem.
func (w *world) verify(ctx context.Context, first, last time.Time) {
	w.t.Helper()
	code, out := w.verifyAll(ctx, first, last)
	servers.Count(w.t, "lottery verify: %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "; "))
	if code != 0 {
		w.t.Errorf("lottery verify exits with %d", code)
	}
	noons := int(last.Sub(first)/every) + 1
	// A later noon may have been drawn by a replica that lost its run while it stopped, as the last one.
	until := " WHERE tick <= " + strconv.FormatInt(last.UnixMilli(), 10)
	w.expect(ctx, noons, "SELECT COUNT(*) FROM draws"+until)
	w.expect(ctx, noons*winners, "SELECT COUNT(*) FROM winners JOIN entrants ON id = entrant_id AND eligible"+until)
	w.expect(ctx, noons, "SELECT COUNT(*) FROM (SELECT tick FROM winners"+until+" GROUP BY tick HAVING COUNT(DISTINCT entrant_id) = "+strconv.Itoa(winners)+") AS full")
}

func (w *world) expect(ctx context.Context, want int, query string) {
	w.t.Helper()
	var got int
	if err := w.db.QueryRowContext(ctx, query).Scan(&got); err != nil {
		w.t.Fatal(err)
	}
	if got != want {
		w.t.Errorf("%s: %d, want %d", query, got, want)
	}
}

// running returns the run that the replica holds in the ledger and has not completed.
func (w *world) running(ctx context.Context, r *replica) (run singleton.Open, ok bool) {
	w.t.Helper()
	var state singleton.Status
	w.retry(ctx, func() (err error) {
		state, err = w.ledger.Status(ctx)
		return err
	})
	for _, run := range state.Open {
		if run.Holder == r.name {
			return run, true
		}
	}
	return singleton.Open{}, false
}

// drawer returns the replica whose draw of the noon is in the database, if there is one.
func (w *world) drawer(ctx context.Context, tick time.Time) string {
	w.t.Helper()
	var name string
	err := w.db.QueryRowContext(ctx, "SELECT drawn_by FROM draws WHERE job = ? AND tick = ?", noon.Job, tick.UnixMilli()).Scan(&name)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		w.t.Fatal(err)
	}
	return name
}
