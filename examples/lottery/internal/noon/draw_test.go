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

// Each ordered pair of five is drawn about as often as each other one.
func TestWinnersAreUniform(t *testing.T) {
	t.Parallel()
	const draws, pairs = 20_000, 5 * 4
	times := map[string]int{}
	for range draws {
		ids, err := noon.Winners([]string{"a", "b", "c", "d", "e"}, 2)
		testenv.Must(t, err)
		times[strings.Join(ids, "")]++
	}
	square := 0.
	for _, n := range times {
		d := float64(n) - draws/pairs
		square += d * d / (draws / pairs)
	}
	// Of a fair draw, the sum exceeds 75 once in 10^8 runs of this test (19 degrees of freedom).
	if len(times) != pairs || square > 75 {
		t.Errorf("%d pairs, chi-square %.1f: %v", len(times), square, times)
	}
}

func TestAllWin(t *testing.T) {
	t.Parallel()
	ids, err := noon.Winners([]string{"a", "b", "c"}, 3)
	if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", ids, err)
	}
}

// A list is read, and an error names the line and the rule.
func TestReadEntrants(t *testing.T) {
	t.Parallel()
	list, err := noon.ReadEntrants(strings.NewReader("\ufeffid,eligible\r\n\"a, b\",true\r\nc,false\r\n"))
	if err != nil || len(list) != 2 || !list["a, b"] || list["c"] || len(list.Eligible()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	for text, want := range map[string]string{
		"":                                 "the list has no entrants; it must have the header id,eligible",
		"id,eligible\n":                    "the list has no entrants",
		"a,b\n":                            `line 1: the header is "a,b"; it must be id,eligible`,
		"id,eligible\na\n":                 "record on line 2: wrong number of fields",
		"id,eligible\na,maybe\n":           `line 2: eligible is "maybe"; it must be true or false`,
		"id,eligible\na,true\na,true\n":    `line 3: the id is "a", as in an earlier line; it must be unique`,
		"id,eligible\n a,true\n":           `line 2: the id is " a"; it must be 1 to 200 bytes of UTF-8`,
		"id,eligible\n,true\n":             `line 2: the id is ""; it must be 1 to 200 bytes`,
		"id,eligible\n\xff,true\n":         `line 2: the id is "\xff"; it must be`,
		"id,eligible\nb,true\na\"b,true\n": `line 3, column 2: bare " in non-quoted-field`,
		"id,eligible\n" + strings.Repeat("a", 201) + ",true\n": "it must be 1 to 200 bytes",
	} {
		if list, err := noon.ReadEntrants(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, list, err, want)
		}
	}
}
