package browser_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

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
