package browser_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
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
	draw, _ := actors.Runner(e, worker, "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	work.trigger(e, draw, errWorse)
	first, _ := actors.Elector(e, e.Client("web-1"), "board", election.Config{})
	actors.Elector(e, e.Client("web-2"), "board", election.Config{})
	third, _ := actors.Elector(e, e.Client("web-3"), "board", election.Config{})
	e.Hold(e.Client("billing-1"), "invoices")
	client := e.Client("page")
	s := serve(e, client, statusz.Config{AllowActions: true, Operator: func(*http.Request) string { return "ann" }})
	b := newTab(e)
	b.visit(s.URL)
	status := func() singleton.Status {
		e.Helper()
		return testenv.Call(draw.Status(e.Context())).Must(e)
	}
	runs := func() []singleton.HistoryEntry {
		e.Helper()
		return testenv.Call(draw.Runs(e.Context(), 100)).Must(e)
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
	b.shows("jobs", "draw", "running", "attempt 1", "holder worker-1")
	if open := status().Open; len(open) != 1 || open[0].Request == nil || open[0].Request.By != "ann" || open[0].Request.Reason != "late night" {
		e.Errorf("open runs %+v", open)
	}
	choose("jobs", "draw", "Cancel")
	confirm("Cancel")
	e.Until("the run has ended", func() bool { return len(runs()) == 2 })
	if r := runs()[0]; r.Outcome != singleton.OutcomeFailed || !strings.Contains(r.Error, "ann") {
		e.Errorf("after a cancelation: %+v", r)
	}

	b.shows("elections", "board", "web-1\nsince", "web-2\nsince", "web-3\nsince")
	choose("elections", "board", "Resign")
	eval[bool](b, `(() => { document.querySelector('#dialog select').value = 'web-3'; return true; })()`)
	confirm("Resign")
	e.Until("web-3 leads", third.IsLeader)
	if first.IsLeader() {
		e.Error("two replicas lead")
	}
	b.shows("elections", "board", "web-3\nsince", "web-2\nsince")
	choose("elections", "board", "Terms")
	b.until("the terms are shown", `/^web-3\s*token .*from .*web-1\s*token .*for /s.test([...document.querySelectorAll('#dialog li')].map((e) => e.innerText).join())`)
	confirm("Close")

	choose("locks", "invoices", "Release")
	if !eval[bool](b, `(`+answer+`).disabled`, "Release") {
		e.Error("a release needs no name")
	}
	b.click(`[...document.querySelectorAll('#dialog input')].at(-1)`) // after that of the reason
	b.press("invoice", "s")
	b.until("the button can be clicked", `!(`+answer+`).disabled`, "Release")
	confirm("Release")
	if seen := testenv.Call(client.Inspect(e.Context(), "invoices")).Must(e); seen.Kind != lockcore.LockFree {
		e.Errorf("after a release: %+v", seen)
	}
}

// All jobs that match the filter are paused after one question, which has their number. The sum of the results
// names the jobs that failed. On the page of a job, each run can run again, and a plot shows all.
func TestActOnAll(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	work := newScript()
	bill, _ := actors.Runner(e, e.Client("worker-1"), "bill-1", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/bill-2}:job", "v", 1, "last", 1).Err())
	work.trigger(e, bill, errWorse)
	work.trigger(e, bill, errWorse)
	b := newTab(e)
	s := serve(e, e.Client("page"), statusz.Config{AllowActions: true})
	b.visit(s.URL + "/?q=bill")
	b.until("they are counted", `document.querySelector('#jobs .head .quiet').textContent.startsWith('2 of 3, 1 failing')`)
	ask := func(label, question string) {
		e.Helper()
		b.click(`[...document.querySelectorAll('#jobs .head button')].find((b) => b.textContent === %s)`, label+" all…")
		b.until("it asks "+question, `document.getElementById('dialog-title')?.textContent === %s`, question)
	}
	sum := func(text string) {
		e.Helper()
		b.until("the sum is "+text, `document.querySelector('#dialog [role=alert]').textContent.startsWith(%s)`, text)
		b.click(answer, "Close")
		b.until("the dialog is closed", dialogClosed)
	}
	ask("Pause", "Pause 2 jobs matching “bill”?")
	testenv.Must(e, e.Raw.Del(e.Context(), "noonlock:{job/bill-2}:job").Err())
	b.click(answer, "Pause")
	sum("1 of 2 done. bill-2: Not done: singleton: ")
	for job, want := range map[*singleton.Job]bool{bill: true, draw: false} {
		if st, err := job.Status(e.Context()); err != nil || st.Paused != want {
			e.Errorf("%+v, %v", st, err)
		}
	}
	testenv.Must(e, bill.Resume(e.Context()))
	ask("Run again", "Run again 1 job matching “bill”?")
	work.results <- nil
	b.click(answer, "Run again")
	sum("1 of 1 done.")

	b.visit(s.URL + "/?job=bill-1")
	b.until("the plots show the runs", `[...document.querySelectorAll('.plot svg')].map((e) => e.querySelectorAll('rect').length).join() === '3,2'`)
	b.until("only a run that has failed can run again", `[...document.querySelectorAll('.run')].filter((e) => e.innerText.includes('Run again…')).every((e) => e.innerText.includes('failed'))`)
	work.results <- nil
	b.click(`[...document.querySelectorAll('.run button')].at(-1)`)
	b.until("a confirmation is asked for", dialogOpen)
	b.click(answer, "Run again")
	b.until("the plot shows the run", `document.querySelector('.plot svg').querySelectorAll('rect').length === 4`)
}

// A page that is read-only has no buttons, and refuses actions. Pages of other origins in the same
// browser cannot act.
func TestActionsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{}, newScript().work)
	client := e.Client("page")
	readOnly := serve(e, client, statusz.Config{})
	acting := serve(e, client, statusz.Config{AllowActions: true})
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
	testenv.Equal(e, "buttons of the read-only page",
		eval[int](b, `document.querySelectorAll('.acts button').length`), 0)
	testenv.Equal(e, "the answer of the read-only page",
		eval[int](b, post, "act", "same-origin", full), http.StatusForbidden)

	for _, site := range []string{other.URL, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)} {
		b.visit(site)
		for mode, headers := range map[string]map[string]string{"cors": full, "no-cors": {"Content-Type": "text/plain"}} { // with a preflight, and without
			testenv.Equal(e, mode+", from "+site, eval[int](b, post, acting.URL+"/act", mode, headers), 0)
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
	}
	if st, err := draw.Status(e.Context()); err != nil || st.Paused {
		e.Errorf("the job is paused by another site: %+v, %v", st, err)
	}

	b.visit(acting.URL)
	testenv.Equal(e, "the answer to the same request from the page itself",
		eval[int](b, post, "act", "same-origin", full), http.StatusOK)
	if st, err := draw.Status(e.Context()); err != nil || !st.Paused {
		e.Errorf("after the request of the page itself: %+v, %v", st, err)
	}
}
