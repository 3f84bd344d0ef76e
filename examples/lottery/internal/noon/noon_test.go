package noon_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

var errUndo = errors.New("undo")

func at(day int) time.Time { return time.Date(2026, time.November, day, 12, 0, 0, 0, time.UTC) }

func runOf(day, attempt int, token uint64) singleton.Run {
	return singleton.Run{Job: noon.Job, Tick: at(day), Attempt: attempt, Token: token, Holder: "me"}
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	dsn, err := store.ParseDSN("sqlite:" + filepath.Join(t.TempDir(), "lottery.db"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dsn, noon.StoreConfig(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	list := fstest.MapFS{"list.csv": {Data: []byte("id,eligible\na,true\nb,true\nc,true\nd,true\nx,false\n")}}
	if _, err := st.LoadEntrants(t.Context(), entrants.FS(list, "list.csv")); err != nil {
		t.Fatal(err)
	}
	return st
}

// A triggered draw is logged with the time of the trigger, and not as a tick.
func TestTriggeredDrawIsLogged(t *testing.T) {
	t.Parallel()
	var line string
	d := noon.Drawing{Store: newStore(t), Winners: 1, Logger: funcr.New(func(_, args string) { line = args }, funcr.Options{})}
	run := runOf(1, 1, 10)
	run.Triggered = true
	if err := d.Draw(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(line, "draw committed") || !strings.Contains(line, `"triggered"="2026-11-01 `) || strings.Contains(line, `"tick"`) {
		t.Errorf("logged is %s", line)
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	st := newStore(t)
	d := noon.Drawing{Store: st, Winners: 3}
	must := func(err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("Draw: %v, want %v", err, want)
		}
	}
	must(d.Draw(t.Context(), runOf(1, 1, 10)), nil)
	first := winners(t, st, 1)
	if len(first) != 3 || slices.Contains(first, "x") {
		t.Fatalf("the winners are %q; want three of those who are eligible", first)
	}
	// Another replica draws the same noon again: nothing changes, and the result is success.
	must(d.Draw(t.Context(), runOf(1, 2, 11)), nil)
	must(d.Draw(t.Context(), runOf(2, 1, 10)), sqlonce.ErrStaleToken)
	if got := winners(t, st, 1); !slices.Equal(got, first) {
		t.Errorf("the winners are %q, and were %q", got, first)
	}

	// The rows are visible to Written before the commit. Its error rolls them back.
	d.Written = func(ctx context.Context, tx *sql.Tx, run singleton.Run, ids []string) error {
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM winners WHERE tick = ?", run.Tick.UnixMilli()).Scan(&n); err != nil {
			return err
		}
		if n != 3 || len(ids) != 3 {
			t.Errorf("%d rows are written for the winners %q", n, ids)
		}
		return errUndo
	}
	must(d.Draw(t.Context(), runOf(2, 1, 12)), errUndo)
	d.Written = nil
	d.Winners = 5
	must(d.Draw(t.Context(), runOf(2, 2, 13)), draw.ErrTooFew)
	if got := winners(t, st, 2); len(got) != 0 {
		t.Errorf("the winners of a noon that was not drawn: %q", got)
	}
	draws, err := st.Draws(t.Context(), noon.Job, time.UnixMilli(0), time.UnixMilli(math.MaxInt64))
	if err != nil || len(draws) != 1 || draws[0].Attempt != 1 || draws[0].Token != 10 || draws[0].DrawnBy != "me" {
		t.Errorf("the draws are %+v, %v; want that of the first run", draws, err)
	}
}

func winners(t *testing.T, st *store.Store, day int) []string {
	t.Helper()
	winners, err := st.Winners(t.Context(), noon.Job, at(day), at(day+1))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, w := range winners[singleton.RunID{Tick: at(day)}.Key()] {
		ids = append(ids, w.ID)
	}
	return ids
}

// The idle timeout of a frozen replica is close to the lease, in whole seconds, and at least
// one second.
func TestStoreConfig(t *testing.T) {
	t.Parallel()
	for lease, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: time.Second, 1400 * time.Millisecond: time.Second,
		10 * time.Second: 10 * time.Second, 24 * time.Hour: 24 * time.Hour,
	} {
		if got := noon.StoreConfig(lease).IdleTimeout; got != want {
			t.Errorf("lease %s: %s, want %s", lease, got, want)
		}
	}
}
