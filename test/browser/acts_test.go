package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// act is the element of a visible button of a row. Its arguments are those of row and the text.
const act = `[...((` + row + `)?.querySelectorAll('.acts button') ?? [])].find((b) => b.textContent === %s && b.checkVisibility())`

// answer is the element of a button of the dialog. Its argument is the text.
const answer = `[...document.querySelectorAll('#dialog button')].find((b) => b.textContent === %s)`

const dialogOpen, dialogClosed = `document.getElementById('dialog').open`, `!document.getElementById('dialog').open`

// Each action happens after a click and a confirmation, and not before.
func TestActions(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	worker := e.Client("worker-1")
	work := newScript()
	draw := runner(e, worker, "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	work.trigger(e, draw, errWorse)
	first := elector(e, e.Client("web-1"), "board", election.Config{})
	second := elector(e, e.Client("web-2"), "board", election.Config{})
	hold(e, e.Client("billing-1"), "invoices")
	hold(e, e.Client("billing-2"), "prices")
	client := e.Client("page")
	s := serveAs(e, client, statusz.Config{AllowActions: true, Operator: func(*http.Request) string { return "ann" }})
	b := newTab(e)
	b.visit(s.URL)
	status := func() singleton.Status {
		e.Helper()
		st, err := draw.Status(e.Context())
		testenv.Must(e, err)
		return st
	}
	runs := func() []singleton.HistoryEntry {
		e.Helper()
		all, err := draw.Runs(e.Context(), 100)
		testenv.Must(e, err)
		return all
	}
	// choose clicks on a button of a row, and on the button of the dialog.
	choose := func(kind, name, text string) {
		e.Helper()
		b.until(text+" can be clicked", `!!(`+act+`)`, kind, name, text)
		b.click(act, kind, name, text)
		b.until("a confirmation is asked for", dialogOpen)
		if len(b.sent("/act")) > 0 {
			e.Fatalf("%s is done without a confirmation", text)
		}
	}
	confirm := func(text string) {
		e.Helper()
		b.click(answer, text)
		b.until("the action is done", dialogClosed)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = nil
	}

	choose("jobs", "draw", "Pause")
	b.click(answer, "Close")
	b.until("the dialog is closed", dialogClosed)
	if status().Paused {
		e.Error("the job is paused without a confirmation")
	}
	choose("jobs", "draw", "Pause")
	confirm("Pause")
	if !status().Paused {
		e.Error("the job is not paused")
	}
	b.shows("jobs", "draw", "paused")
	choose("jobs", "draw", "Resume")
	confirm("Resume")
	if status().Paused {
		e.Error("the job is paused")
	}

	work.results <- errHang
	choose("jobs", "draw", "Trigger")
	b.click(`document.querySelector('#dialog input')`)
	b.press("late ", "night")
	confirm("Trigger")
	b.shows("jobs", "draw", "running", "worker-1, attempt 1")
	if open := status().Open; len(open) != 1 || open[0].Request == nil || open[0].Request.By != "ann" || open[0].Request.Reason != "late night" {
		e.Errorf("open runs %+v", open)
	}
	choose("jobs", "draw", "Cancel")
	confirm("Cancel")
	e.Until("the run has ended", func() bool { return len(runs()) == 2 })
	if r := runs()[0]; r.Outcome != singleton.OutcomeFailed || !strings.Contains(r.Error, "ann") {
		e.Errorf("after a cancelation: %+v", r)
	}

	// The tick that failed first runs again.
	tick := runs()[1].Tick
	work.results <- nil
	b.until("two squares", `(`+row+`).querySelectorAll('.strip .f').length === 2`, "jobs", "draw")
	b.click(`(`+row+`).querySelector('.strip li')`, "jobs", "draw")
	b.until("the details are shown", dialogOpen)
	b.click(answer, "Run again…")
	b.until("a confirmation is asked for", `!!(`+answer+`)`, "Run again")
	confirm("Run again")
	e.Until("the run has ended", func() bool { return len(runs()) == 3 })
	if r := runs()[0]; r.Outcome != singleton.OutcomeSucceeded || !r.Tick.Equal(tick) {
		e.Errorf("after a rerun: %+v, want tick %s", r, tick)
	}

	b.shows("elections", "board", "web-1\n", "1. web-2")
	choose("elections", "board", "Resign")
	confirm("Resign")
	e.Until("web-2 leads", second.IsLeader)
	if first.IsLeader() {
		e.Error("two replicas lead")
	}
	b.shows("elections", "board", "web-2\n")

	choose("locks", "invoices", "Release")
	if !eval[bool](b, `(`+answer+`).disabled`, "Release") {
		e.Error("a release needs no name")
	}
	b.click(`[...document.querySelectorAll('#dialog input')].at(-1)`) // after that of the reason
	b.press("invoice", "s")
	b.until("the button can be clicked", `!(`+answer+`).disabled`, "Release")
	confirm("Release")
	if seen := inspect(e, client, "invoices"); seen.Kind != lockcore.LockFree {
		e.Errorf("after a release: %+v", seen)
	}

	// What fails is said in the dialog.
	b.shows("locks", "prices", "billing-2")
	choose("locks", "prices", "Release")
	_, err := client.ForceRelease(e.Context(), inspect(e, client, "prices"), lockcore.Operator{})
	testenv.Must(e, err)
	b.click(`[...document.querySelectorAll('#dialog input')].at(-1)`)
	b.press("prices", kb.Enter)
	b.until("the error is shown", `document.querySelector('#dialog [role=alert]').textContent.includes('the lock has other holders')`)
}

// A page that is read-only has no buttons, and refuses actions. Pages of other origins in the same
// browser cannot act.
func TestActionsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	draw := runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{}, newScript().work)
	client := e.Client("page")
	readOnly := serveAs(e, client, statusz.Config{})
	acting := serveAs(e, client, statusz.Config{AllowActions: true})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!DOCTYPE html><title>another site</title><body>"))
	}))
	e.Cleanup(other.Close)
	b := newTab(e)
	// post sends the action as a page would, and returns the code of the answer, or 0.
	const post = `fetch(%s, { method: 'POST', mode: %s, credentials: 'include', headers: %s, body: '{"action":"pause","name":"draw"}' }).then((a) => a.status, () => 0)`
	full := map[string]string{"Content-Type": "application/json", "Noonlock-Action": "pause"}

	b.visit(readOnly.URL)
	b.shows("jobs", "draw", "next tick")
	if n := eval[int](b, `document.querySelectorAll('.acts button').length`); n != 0 {
		e.Errorf("the read-only page has %d buttons", n)
	}
	if code := eval[int](b, post, "act", "same-origin", full); code != http.StatusForbidden {
		e.Errorf("the read-only page answers %d", code)
	}

	for _, site := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} {
		b.visit(site)
		for name, c := range map[string]struct {
			mode    string
			headers map[string]string
		}{
			"with a preflight":    {"cors", full},
			"without one":         {"no-cors", map[string]string{"Content-Type": "text/plain"}},
			"readable, if it was": {"cors", map[string]string{"Content-Type": "text/plain"}},
		} {
			if code := eval[int](b, post, acting.URL+"/act", c.mode, c.headers); code != 0 {
				e.Errorf("%s, from %s: %d", name, site, code)
			}
		}
		b.visit(site)
		eval[bool](b, `(() => {
			const f = document.createElement('form');
			f.action = %s; f.method = 'post'; f.enctype = 'text/plain';
			const i = document.createElement('input');
			i.name = '{"action":"pause","name":"draw","reason":"'; i.value = '"}';
			f.append(i); document.body.append(f); f.submit();
			return true;
		})()`, acting.URL+"/act")
		b.until("the form is answered", `document.body?.innerText.includes('the request does not come from this page')`)
		// The page does not open in a frame, and its stream is not for other sites.
		b.visit(site)
		if got := eval[string](b, `new Promise((done) => {
			const f = document.createElement('iframe');
			f.src = %s;
			f.onload = () => { try { done(f.contentDocument === null ? 'another origin' : f.contentDocument.body.innerText); } catch { done('another origin'); } };
			document.body.append(f);
		})`, acting.URL); got != "another origin" {
			e.Errorf("in a frame: %q", got)
		}
		if got := eval[bool](b, `new Promise((done) => {
			const s = new EventSource(%s);
			s.onmessage = () => done(true);
			s.onerror = () => { s.close(); done(false); };
		})`, acting.URL+"/events"); got {
			e.Errorf("%s reads the stream", site)
		}
	}
	if st, err := draw.Status(e.Context()); err != nil || st.Paused {
		e.Errorf("the job is paused by another site: %+v, %v", st, err)
	}

	b.visit(acting.URL)
	if code := eval[int](b, post, "act", "same-origin", full); code != http.StatusOK {
		e.Errorf("the same request from the page itself: %d", code)
	}
	if st, err := draw.Status(e.Context()); err != nil || !st.Paused {
		e.Errorf("after the request of the page itself: %+v, %v", st, err)
	}
}
