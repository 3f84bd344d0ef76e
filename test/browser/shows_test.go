package browser_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// The page shows what overview tells of each thing, and a square for each run.
func TestShowsWhatRedisHolds(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	client := e.Client("page")
	for _, identity := range []string{"web-1", "web-2", "web-3"} {
		actors.Elector(e, e.Client(identity), "board", election.Config{Metadata: map[string]string{"zone": "north"}})
	}
	work := newScript()
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	for _, result := range []error{nil, errWorse, fmt.Errorf("%w: no answer", singleton.ErrUnknownOutcome), nil, errHang} {
		work.trigger(e, draw, result)
	}
	still, _ := actors.Runner(e, e.Client("worker-2"), "still", "0 12 * * *", singleton.JobConfig{}, work.work)
	testenv.Must(e, still.Pause(e.Context()))
	e.Hold(e.Client("billing-1"), "invoices")
	actors.Wait(e, e.Client("billing-2"), "invoices")
	actors.Wait(e, e.Client("billing-3"), "invoices")
	rw, err := e.Client("reader-1").RWMutex("prices", "nightly", lockcore.LeaseConfig{})
	testenv.Must(e, err)
	_, err = rw.TryRLock(e.Context())
	testenv.Must(e, err)
	testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{foreign}:lock", "x", 0).Err())

	shards, err := partition.NewRunner(e.Client("worker-1"), "shards", 2, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{})
	testenv.Must(e, err)
	e.Background(shards.Run)
	e.Until("all partitions are led", func() bool {
		seen, err := overview.Partitions.Read(e.Context(), client, "shards")
		testenv.Must(e, err)
		return seen.Exists() && seen.Row()[0].Text == "led"
	})

	b := newTab(e)
	b.visit(serve(e, client, statusz.Config{Title: "the title"}).URL)
	b.until("the page is live", `document.getElementById('state').textContent === 'live' && document.title === 'the title'`)

	for kind, names := range map[overview.Kind][]string{
		overview.Elections: {"board"}, overview.Locks: {"invoices", "prices", "foreign"}, overview.Jobs: {"draw", "still"}, overview.Partitions: {"shards"},
	} {
		for _, name := range names {
			thing, err := kind.Read(e.Context(), client, name)
			testenv.Must(e, err)
			all := thing.Describe()
			texts := textsOf(all.Lines)
			if kind == overview.Partitions {
				all.Lists = all.Lists[:1]
			}
			for _, l := range all.Lists {
				for _, row := range l.Rows {
					texts = append(append(texts, l.Title+":"), textsOf(row.Cells)...)
				}
			}
			b.shows(kind.String(), name, texts...)
		}
	}
	runs, err := draw.Runs(e.Context(), 60)
	testenv.Must(e, err)
	st, err := draw.Status(e.Context())
	testenv.Must(e, err)
	slices.Reverse(runs) // the oldest first
	rows := slices.Concat(overview.Runs(runs).Rows, overview.OpenRuns(st.Open).Rows)
	squares := eval[[]string](b, `[...(`+row+`).querySelectorAll('.strip li')].map((e) => e.className + '\n' + e.getAttribute('aria-label'))`, "jobs", "draw")
	if len(squares) != len(rows) {
		e.Fatalf("%d squares, want %d: %q", len(squares), len(rows), squares)
	}
	for i, r := range rows {
		tick, attempt := r.Cells[0].Text+": "+r.Class, "\nholder worker-1"
		if !strings.HasPrefix(squares[i], r.Class+"\n"+tick) || !strings.Contains(squares[i], attempt) {
			e.Errorf("square %d is %q, want %q and %q", i, squares[i], tick, attempt)
		}
	}
}

// textsOf returns what the page shows of cells, without times that are counted.
func textsOf(cells []overview.Cell) (texts []string) {
	for _, c := range cells {
		switch {
		case c.At > 0:
			texts = append(texts, c.Label)
		case c.Text == "" || c.Class == "who" || strings.HasPrefix(c.Class, "chip"):
			texts = append(texts, c.Text)
		default:
			texts = append(texts, c.Label+" "+c.Text)
		}
	}
	return texts
}
