package browser_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// The page shows what Record, Candidates, Inspect, Status and Runs return.
func TestShowsWhatRedisHolds(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	client := e.Client("page")
	for _, identity := range []string{"web-1", "web-2", "web-3"} {
		elector(e, e.Client(identity), "board", election.Config{Metadata: map[string]string{"zone": "north"}})
	}
	work := newScript()
	draw := runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	for _, result := range []error{nil, errWorse, fmt.Errorf("%w: no answer", singleton.ErrUnknownOutcome), nil, errHang} {
		work.trigger(e, draw, result)
	}
	still := runner(e, e.Client("worker-2"), "still", "0 12 * * *", singleton.JobConfig{}, work.work)
	testenv.Must(e, still.Pause(e.Context()))
	hold(e, e.Client("billing-1"), "invoices")
	wait(e, e.Client("billing-2"), "invoices")
	wait(e, e.Client("billing-3"), "invoices")
	rw, err := e.Client("reader-1").RWMutex("prices", "nightly", lockcore.LeaseConfig{})
	testenv.Must(e, err)
	_, err = rw.TryRLock(e.Context())
	testenv.Must(e, err)
	testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{foreign}:lock", "x", 0).Err())

	b := newTab(e)
	b.visit(serveAs(e, client, statusz.Config{Title: "the title"}).URL)
	b.until("the page is live", `document.getElementById('state').textContent === 'live' && document.title === 'the title'`)

	handle, err := election.NewElection(client, "board")
	testenv.Must(e, err)
	record, err := handle.Record(e.Context())
	testenv.Must(e, err)
	b.shows("elections", "board", record.Holder, "term "+strconv.FormatUint(record.Term, 10), "token "+strconv.FormatUint(record.Token, 10),
		"leading for", "left", "zone=north", "2. ")
	waiting, err := handle.Candidates(e.Context())
	testenv.Must(e, err)
	b.sameList("elections", "board", "Candidates:", len(waiting), func(i int) string { return waiting[i].Identity })

	seen := inspect(e, client, "invoices")
	b.shows("locks", "invoices", seen.Holders[0].Identity, "holding for ", "token "+strconv.FormatUint(seen.Holders[0].Token, 10), "left", "2. ")
	b.sameList("locks", "invoices", "Queue:", len(seen.Waiters), func(i int) string { return seen.Waiters[i].Identity })
	b.shows("locks", "prices", "reader-1 for nightly", "reads", "token "+strconv.FormatUint(inspect(e, client, "prices").Holders[0].Token, 10))
	b.shows("locks", "foreign", "another program", "no TTL")

	for name, j := range map[string]*singleton.Job{"draw": draw, "still": still} {
		st, err := j.Status(e.Context())
		testenv.Must(e, err)
		b.shows("jobs", name, "schedule "+st.Schedule, "1 replica")
		if text := b.text("jobs", name); strings.Contains(text, "paused") != st.Paused || strings.Contains(text, "next tick in") == st.Paused {
			e.Errorf("Status %+v, shown: %q", st, text)
		}
		if next := eval[string](b, `[...(`+row+`).querySelectorAll('.number')].map((e) => e.title).join()`, "jobs", name); !st.Paused && next != instant(st.Next) {
			e.Errorf("the next tick of %s is %q, Status %s", name, next, instant(st.Next))
		}
		b.sameSquares(name, j, st)
	}
	b.shows("jobs", "draw", "running", "worker-1, attempt 1, for")
}

// instant is how the page shows an instant.
func instant(at time.Time) string {
	return strings.Replace(at.UTC().Format("2006-01-02 15:04:05.000"), ".000", "", 1) + " UTC"
}

// sameList asserts that a row shows a list in order.
func (b *tab) sameList(kind, name, title string, n int, want func(i int) string) {
	b.Helper()
	got := eval[[]string](b, `[...(`+row+`).querySelectorAll('.queue li')].map((e) => e.textContent)`, kind, name)
	all := []string{title}
	for i := range n {
		all = append(all, fmt.Sprintf("%d. %s", i+1, want(i)))
	}
	if !slices.Equal(got, all) {
		b.Errorf("%s %s shows %q, want %q", kind, name, got, all)
	}
}

// sameSquares asserts that the squares of a job show its ended and open runs, oldest first.
func (b *tab) sameSquares(name string, j *singleton.Job, st singleton.Status) {
	b.Helper()
	runs, err := j.Runs(b.Context(), 60)
	testenv.Must(b, err)
	slices.Reverse(runs)
	var want [][]string
	for _, r := range runs {
		texts := []string{"triggered " + instant(r.Tick) + ": " + string(r.Outcome), fmt.Sprintf("attempt %d on %s", r.Attempt, r.Holder), "took "}
		if r.Error != "" {
			texts = append(texts, "error: "+r.Error)
		}
		want = append(want, texts)
	}
	for _, o := range st.Open {
		want = append(want, []string{"triggered " + instant(o.Tick) + ": running", fmt.Sprintf("attempt %d on %s", o.Attempt, o.Holder), "for "})
	}
	got := eval[[]string](b, `[...(`+row+`).querySelectorAll('.strip li')].map((e) => e.getAttribute('aria-label'))`, "jobs", name)
	if len(got) != len(want) {
		b.Fatalf("%s has %d squares, want %d: %q", name, len(got), len(want), got)
	}
	for i, texts := range want {
		for _, text := range texts {
			if !strings.Contains(got[i], text) {
				b.Errorf("square %d of %s is %q, want %q", i, name, got[i], text)
			}
		}
	}
}
