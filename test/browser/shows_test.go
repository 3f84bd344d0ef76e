package browser_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

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

// The page of a job is reached by a link that has no password. It shows all about the job, and follows
// its changes. The details of a square show the whole error.
func TestPageOfAJob(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	work := newScript()
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 2, Retry: 100 * time.Millisecond}, work.work)
	long := errors.New(strings.Repeat("long ", 80) + "the end")
	work.results <- errWorse
	work.trigger(e, draw, long)
	ann := lockcore.WithOperator(e.Context(), lockcore.Operator{Who: "ann", Reason: "the disk is full"})
	testenv.Must(e, draw.Pause(ann))
	st := testenv.Call(draw.Status(e.Context())).Must(e)
	e.Hold(e.Client("billing-1"), "invoices")
	s := behind(e, e.Client("page"), statusz.Config{AllowActions: true, Title: "the title"}, func(w http.ResponseWriter, r *http.Request, page http.Handler) {
		if !refused(w, r) {
			page.ServeHTTP(w, r)
		}
	})
	b := newTab(e)
	b.visit(strings.Replace(s.URL, "http://", "http://user:sesame@", 1))
	b.shows("jobs", "draw", "paused")
	b.click(`document.querySelector('.strip .failed')`)
	b.until("the whole error is shown", `document.querySelector('#dialog p').textContent.includes('\nerror '+%s)`, long.Error())
	b.click(answer, "Close")
	testenv.Equal(e, "the link", eval[string](b, `document.querySelector('#jobs .name a').href`), s.URL+"/?job=draw")
	b.follow(`document.querySelector('#jobs .name a')`)
	text := `document.getElementById('main').innerText`
	for _, want := range []string{
		"@every 24h0m0s", "paused", "Replicas and their definitions", st.Definitions[0].ID, st.Definitions[0].Replicas[0].Identity,
		long.Error(), "Attempts that failed", errWorse.Error(), "Acts of operators", "\npause\n", "by ann: the disk is full", "\ntrigger\n",
	} {
		b.until("the page has "+want, text+`.includes(%s)`, want)
	}
	testenv.Equal(e, "title, query and link",
		eval[string](b, `document.title + ' ' + location.search + ' ' + document.getElementById('all').href`), "draw · the title ?job=draw "+s.URL+"/")
	if eval[bool](b, text+`.includes('invoices') || document.getElementById('filter').checkVisibility()`) {
		e.Error("the page of a job shows other things")
	}
	testenv.Must(e, draw.Resume(e.Context()))
	b.until("the act is shown", text+`.includes('\nresume\n') && !`+text+`.includes('paused since')`)

	b.visit(s.URL + "/?job=none")
	b.until("the job is unknown", text+`.includes('there is no job "none": no replica has ever run it, or its history has expired')`)
	b.follow(`document.getElementById('all')`)
	b.shows("locks", "invoices", "billing-1")
}

// follow clicks on a link, which ends the page.
func (b *tab) follow(link string) {
	b.Helper()
	at := b.middle(link)
	_, err := chromedp.Run(b.ctx, chromedp.MouseClickXY(at[0], at[1]))
	testenv.Must(b, err)
	b.until("another page is shown", `window.mark !== true && document.readyState !== 'loading'`)
}

// A script is the work of a job in a test. Each run does what the test has said for it.
type script struct {
	results chan error
	by      lockcore.Operator // who triggers runs
}

var (
	errHang  = errors.New("the run continues until its context ends")
	errWorse = errors.New("the address is unknown")
)

func newScript() *script { return &script{results: make(chan error, 100)} }

func (s *script) work(ctx context.Context, _ singleton.Run) error {
	err := <-s.results
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

// trigger triggers a run with a result, and waits until it has ended, or runs if the result is
// errHang.
func (s *script) trigger(e *testenv.Env, j *singleton.Job, result error) {
	e.Helper()
	before := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
	s.results <- result
	_, err := j.Trigger(lockcore.WithOperator(e.Context(), s.by))
	testenv.Must(e, err)
	e.Until("the run has ended", func() bool {
		if errors.Is(result, errHang) {
			st := testenv.Call(j.Status(e.Context())).Must(e)
			return len(st.Open) == 1 && st.Open[0].Running
		}
		runs := testenv.Call(j.Runs(e.Context(), 1000)).Must(e)
		return len(runs) > len(before)
	})
}
