package noon_test

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/examples/lottery/internal/store"
	"github.com/noonlock/noonlock/internal/console/login"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/sqlonce"
)

func at(day int) time.Time { return time.Date(2026, time.November, day, 12, 0, 0, 0, time.UTC) }

func runOf(day, attempt int, token uint64) singleton.Run {
	return singleton.Run{RunID: singleton.RunID{Tick: at(day)}, Job: noon.Job, Attempt: attempt, Token: token, Holder: "me"}
}

// A noon is drawn once, whoever draws it again. A draw that fails before its commit leaves nothing.
func TestDraw(t *testing.T) {
	t.Parallel()
	address, err := store.Parse("sqlite:"+filepath.Join(t.TempDir(), "lottery.db"), "", login.Files{})
	testenv.Must(t, err)
	list := noon.Entrants{"a": true, "b": true, "c": true, "d": true, "x": false}
	st, err := store.Open(t.Context(), address, time.Second)
	testenv.Must(t, err)
	defer st.Close()
	draws := func() []store.Draw {
		t.Helper()
		all, err := st.Draws(t.Context(), noon.Job, time.Time{}, at(30))
		testenv.Must(t, err)
		return all
	}
	d := noon.Drawing{Store: st, Entrants: list, Winners: 3}
	testenv.Must(t, d.Draw(t.Context(), runOf(1, 1, 10)))
	first := draws()
	if len(first) != 1 || first[0].Token != 10 || len(first[0].Winners) != 3 || slices.Contains(first[0].Winners, "x") {
		t.Fatalf("the draws are %+v; want one of three who are eligible", first)
	}
	if err := d.Draw(t.Context(), runOf(1, 2, 11)); err != nil {
		t.Errorf("the same noon again: %v", err)
	}
	if err := d.Draw(t.Context(), runOf(2, 1, 10)); !errors.Is(err, sqlonce.ErrStaleToken) {
		t.Errorf("an earlier token: %v", err)
	}
	errUndo := errors.New("undo")
	d.Written = func(_ singleton.Run, winners []string) error {
		if len(winners) != 3 {
			t.Errorf("written are %q", winners)
		}
		return errUndo
	}
	if err := d.Draw(t.Context(), runOf(2, 1, 12)); !errors.Is(err, errUndo) {
		t.Errorf("cut off before the commit: %v", err)
	}
	d.Written, d.Winners = nil, 5
	if err := d.Draw(t.Context(), runOf(2, 2, 13)); err == nil || !strings.Contains(err.Error(), "the number of eligible entrants is 4; it must be at least 5, the number of winners") {
		t.Errorf("five of four eligible entrants: %v", err)
	}
	if now := draws(); len(now) != 1 || !slices.Equal(now[0].Winners, first[0].Winners) {
		t.Errorf("the draws are %+v, and were %+v", now, first)
	}
}
