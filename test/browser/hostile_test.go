package browser_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// hostile returns a text for a field that runs a script if it becomes HTML, an attribute or a part
// of a script. It is valid as a name.
func hostile(field string) string {
	return field + `"'></span><img/src=x/onerror=hacked("` + field + `")><script>hacked("` + field + `")</script>&lt;b&gt;\u003cb\u003e`
}

// watchForScripts makes the page count scripts that run, and violations of its policy.
func (b *tab) watchForScripts() {
	b.Helper()
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.hacks = [];
		window.violations = [];
		window.hacked = (field) => { hacks.push(field); };
		document.addEventListener('securitypolicyviolation', (v) => { violations.push(v.effectiveDirective); });`})
}

// A text of every field that users or other programs can fill is shown as it is, and runs no script.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	fields := map[string]bool{}
	text := func(field string) string {
		fields[field] = true
		return hostile(field)
	}
	client := func(field string) *lockcore.Client { return e.Client(text(field)) }

	// Locks.
	lock := text("lock")
	e.Hold(client("holder"), lock)
	actors.Wait(e, client("waiter"), lock)
	shared := text("shared")
	for _, reads := range []bool{true, false} {
		rw, err := client("rw-identity-"+strconv.FormatBool(reads)).RWMutex(shared, text("rw-owner-"+strconv.FormatBool(reads)), lockcore.LeaseConfig{})
		testenv.Must(e, err)
		if reads {
			_, err = rw.TryRLock(e.Context())
			testenv.Must(e, err)
		} else {
			e.Background(func(ctx context.Context) error { _, err := rw.Lock(ctx); return err })
		}
	}
	testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{"+text("foreign")+"}:lock", text("value"), 0).Err())
	delete(fields, "value")                            // is not shown
	e.Hold(e.Client("holder\u2066"), "reversed\u202e") // characters that reorder a line

	// Elections. The leader is asked to resign, and does not return until the test ends.
	board := text("election")
	returns := make(chan struct{})
	le, err := election.NewLeaderElector(client("leader"), board, election.Callbacks{
		OnStartedLeading: func(context.Context) { <-returns }, OnStoppedLeading: func() {},
	}, election.Config{Metadata: map[string]string{text("metadata-key"): text("metadata-value")}})
	testenv.Must(e, err)
	e.Background(le.Run)
	e.Cleanup(func() { close(returns) })
	e.Until("the leader leads", le.IsLeader)
	actors.Elector(e, client("candidate"), board, election.Config{})
	operator := e.Client("operator")
	asking := testenv.Call(election.NewElection(operator, board)).Must(e)
	asker := lockcore.WithOperator(e.Context(), lockcore.Operator{Who: text("asked-by"), Reason: text("asked-reason")})
	e.Until("the leader is in the record", func() bool { return testenv.Call(asking.Record(e.Context())).Must(e).Left > 0 })
	_, err = asking.TransferTo(asker, 0, hostile("candidate"))
	testenv.Must(e, err)

	// Jobs.
	draw := text("job")
	work := newScript()
	worker := client("worker")
	actors.Runner(e, worker, draw, "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	by := actors.Job(e, operator, draw)
	work.by = lockcore.Operator{Who: text("by"), Reason: text("reason")}
	work.trigger(e, by, errors.New(text("error")))
	work.trigger(e, by, errHang)
	st := testenv.Call(by.Status(e.Context())).Must(e)
	retried := text("retried-job")
	tries := make(chan struct{}, 1)
	actors.Runner(e, worker, retried, "@every 24h", singleton.JobConfig{Retry: time.Minute}, func(context.Context, singleton.Run) error {
		select {
		case tries <- struct{}{}:
		default:
		}
		return errors.New(hostile("attempt-error"))
	})
	fields["attempt-error"] = true
	_, err = actors.Job(e, operator, retried).Trigger(e.Context())
	testenv.Must(e, err)
	<-tries

	testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/"+text("idle-job")+"}:job", "v", "1", "last", st.Last.UnixMilli(), "spec", text("idle-schedule")).Err())

	s := serve(e, e.Client("page"), statusz.Config{Title: text("title"), AllowActions: true})
	b := newTab(e)
	b.watchForScripts()
	b.visit(s.URL)
	b.until("all rows are shown", `document.querySelectorAll('.row').length === 8 && [...document.querySelectorAll('.row .body')].every((e) => e.textContent)`)
	b.shows("elections", board, hostile("leader"), hostile("candidate"), hostile("asked-by"))
	b.shows("jobs", draw, "running", hostile("worker"))
	b.shows("jobs", retried, "attempt 1")
	b.shows("locks", lock, hostile("waiter"))
	b.shows("locks", shared, hostile("rw-owner-false"))
	b.shows("locks", `reversed\u{202e}`, `holder\u{2066}`)

	// Everything that can be opened is opened: the details of each square by pointing and by a click,
	// and the dialog of each action.
	var seen strings.Builder
	seen.WriteString(b.everything())
	for _, found := range eval[[][]any](b, `[...document.querySelectorAll('.row')].map((r) => [r.closest('section').id, r.querySelector('.name').textContent, r.querySelectorAll('.strip li').length])`) {
		for i := range int(found[2].(float64)) {
			const square = `(` + row + `).querySelectorAll('.strip li')[%s]`
			b.hover(square, found[0], found[1], i)
			seen.WriteString(b.everything())
			b.click(square, found[0], found[1], i)
			b.until("the dialog is shown", `document.getElementById('dialog').open`)
			seen.WriteString(b.everything())
			b.click(`[...document.querySelectorAll('#dialog button')].find((b) => b.textContent === 'Close')`)
		}
	}
	for i := range eval[int](b, `document.querySelectorAll('.acts button').length`) {
		if !eval[bool](b, `document.querySelectorAll('.acts button')[%s].checkVisibility()`, i) {
			continue
		}
		b.click(`document.querySelectorAll('.acts button')[%s]`, i)
		b.until("the dialog is shown", `document.getElementById('dialog').open`)
		seen.WriteString(b.everything())
		b.click(`[...document.querySelectorAll('#dialog button')].find((b) => b.textContent === 'Close')`)
	}
	if strings.Contains(seen.String(), hostile("value")) {
		e.Error("the value of a foreign key is shown")
	}
	if strings.ContainsAny(seen.String(), "\u202e\u2066") {
		e.Error("a character that reorders a line is shown")
	}
	for field := range fields {
		// Quoted texts, as in errors, are shown with more backslashes.
		if !strings.Contains(seen.String(), hostile(field)) && !strings.Contains(seen.String(), strings.Trim(quote(hostile(field)), `"`)) {
			e.Errorf("the text of the field %q is not shown as it is", field)
		}
	}
	// The page of a job.
	b.visit(s.URL + "/?job=" + url.QueryEscape(draw))
	b.until("all about the job is shown", `document.querySelectorAll('.run').length > 2`)
	page := b.everything()
	for _, field := range []string{"job", "worker", "by", "reason", "error", "title"} {
		if !strings.Contains(page, hostile(field)) {
			e.Errorf("the text of the field %q is not on the page of the job as it is", field)
		}
	}
	b.visit(s.URL + "/?job=" + url.QueryEscape(hostile("idle-job")))
	b.until("the schedule is shown", `document.getElementById('main').innerText.includes(%s)`, hostile("idle-schedule"))
	b.ranNoScript(s.URL)
	b.visit(s.URL + "/?job=" + url.QueryEscape(hostile("unknown")))
	b.until("the job is unknown", `document.getElementById('main').innerText.includes('there is no job ')`)
	b.ranNoScript(s.URL)
	b.visit(s.URL)
	// The filter and the query of the URL.
	for _, query := range []string{"javascript:hacked(1)", hostile("lock")} {
		eval[bool](b, `(() => {
			const filter = document.getElementById('filter');
			filter.value = %s;
			filter.dispatchEvent(new Event('input'));
			return true;
		})()`, query)
		b.until("the URL has the filter", `new URLSearchParams(location.search).get('q') === %s`, query)
	}
	b.until("the filter is applied", `document.querySelectorAll('.row').length === 1`)
	b.visit(eval[string](b, `location.href + '#' + encodeURIComponent(%s)`, hostile("hash")))
	b.until("the filter is applied", `document.getElementById('filter').value === %s && document.querySelectorAll('.row').length === 1`, hostile("lock"))
	b.ranNoScript(s.URL)
}

// ranNoScript asserts that no script of a text ran or was stopped only by the policy, that no text
// became an element, and that nothing was requested except the parts of the page.
func (b *tab) ranNoScript(base string) {
	b.Helper()
	if hacks := eval[[]string](b, "hacks"); len(hacks) > 0 {
		b.Errorf("scripts ran in the fields %q", hacks)
	}
	if violations := eval[[]string](b, "violations"); len(violations) > 0 {
		b.Errorf("the policy was violated: %q", violations)
	}
	if found := eval[[]string](b, `[...document.querySelectorAll('img, b, iframe, object, embed, style, base, script:not([src="page.js"]), [onerror], [src="x/onerror"], [style]:not(.bar i):not(#tip)')].map((e) => e.outerHTML)`); len(found) > 0 {
		b.Errorf("texts have become elements: %q", found)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.requests {
		part, ok := strings.CutPrefix(u, base)
		path, _, _ := strings.Cut(part, "?")
		path, _, _ = strings.Cut(path, "#")
		switch {
		case ok && (path == "" || path == "/" || path == "/page.css" || path == "/page.js" || path == "/icon.svg" || path == "/events" || path == "/job" || path == "/terms"):
		default:
			b.Errorf("the page requested %s", u)
		}
	}
	if len(b.dialogs) > 0 || len(b.console) > 0 {
		b.Errorf("dialogs %q, exceptions %q", b.dialogs, b.console)
	}
}

// everything returns all texts that the page shows now.
func (b *tab) everything() string {
	b.Helper()
	return eval[string](b, `document.title + '\n' + document.body.innerText + '\n' + [...document.querySelectorAll('#tip, #dialog')].map((e) => e.textContent).join('\n') + '\n'`)
}

// quote returns a text as JSON without escapes for HTML.
func quote(text string) string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	_ = out.Encode(text) // a string has no errors
	return strings.TrimSpace(b.String())
}
