package browser_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// On a phone, nothing is wider than the window, however long the texts are. In both color schemes,
// all texts have a contrast of 4.5 or more, and the squares one of 3.
func TestNarrowAndLegible(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	long := strings.Repeat("long-", 36)
	work := newScript()
	draw, _ := actors.Runner(e, e.Client("worker-"+long), "draw-"+long[:150], "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	for _, result := range []error{nil, errWorse, fmt.Errorf("%w: no answer", singleton.ErrUnknownOutcome), errHang} {
		work.trigger(e, draw, result)
	}
	testenv.Must(e, draw.Pause(e.Context()))
	le, _ := actors.Elector(e, e.Client("web-"+long), "board-"+long, election.Config{Metadata: map[string]string{"note": long}})
	actors.Elector(e, e.Client("web-2"), "board-"+long, election.Config{})
	e.Hold(e.Client("billing-1"), "invoices")
	actors.Wait(e, e.Client("billing-2"), "invoices")
	testenv.Must(e, e.Raw.Set(e.Context(), "noonlock:{foreign}:lock", "x", 0).Err())
	for i := range 30 {
		testenv.Must(e, e.Raw.Set(e.Context(), fmt.Sprintf("noonlock:{x%02d}:lock", i), "x", 0).Err())
	}
	e.Until("it leads", le.IsLeader)
	b := newTab(e)
	b.size(360, 740)
	s := serve(e, e.Client("page"), statusz.Config{Title: "noonlock at " + long[:100], AllowActions: true})
	b.visit(s.URL)
	b.shows("elections", "board-"+long, "web-2", long)
	b.shows("jobs", "draw-"+long[:150], "running", "paused", "Cancel")
	b.shows("locks", "invoices", "billing-2")
	wide := func(where string) {
		e.Helper()
		if got := eval[[]string](b, `[...document.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > 360.5).map((e) => e.tagName + '.' + e.className)
			.concat(document.scrollingElement.scrollWidth > 360 ? ['the page'] : [])`); len(got) > 0 {
			e.Errorf("%s: too wide: %q", where, got)
		}
	}
	legible := func(where string) {
		e.Helper()
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			if got := eval[[]string](b, illegible); len(got) > 0 {
				e.Errorf("%s, %s: the contrast is too small: %q", where, scheme, got)
			}
		}
	}
	wide("page")
	legible("page")
	b.hover(`document.querySelector('.strip .failed')`)
	wide("details")
	legible("details")
	b.click(act, "jobs", "draw-"+long[:150], "Trigger")
	b.until("the dialog is open", dialogOpen)
	wide("dialog")
	legible("dialog")
	b.click(answer, "Close")
	b.visit(s.URL + "/?job=" + "draw-" + long[:150])
	b.until("all about the job is shown", `document.querySelectorAll('.run').length > 5`)
	wide("job")
	legible("job")
	b.visit(s.URL)
	b.shows("locks", "invoices", "billing-2")
	s.Listener.Close()
	s.CloseClientConnections()
	b.until("the page is stale", `document.body.classList.contains('stale')`)
	wide("stale")
	legible("stale")
}

// illegible lists the visible texts and squares whose contrast is too small, with the contrast. Colors
// are mixed as the browser does, with those behind them and with opacities.
const illegible = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
	const mix = (over, under, a) => under.map((u, i) => over[i] * a + u * (1 - a));
	const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
	const line = (e) => { const all = []; for (; e; e = e.parentElement) all.unshift(e); return all; };
	// colors returns the color behind an element, and a color in front of it.
	const colors = (e, front) => {
		let back = [255, 255, 255], groups = [];
		if (matchMedia('(prefers-color-scheme: dark)').matches) back = [18, 18, 18];
		for (const x of line(e)) {
			const style = getComputedStyle(x), opacity = Number(style.opacity);
			if (opacity < 1) groups.push([back, opacity]);
			const c = parse(style.backgroundColor);
			back = mix(c, back, c[3]);
		}
		let text = mix(front, back, front[3] ?? 1);
		for (const [under, opacity] of groups.reverse()) { text = mix(text, under, opacity); back = mix(back, under, opacity); }
		return [back, text];
	};
	const bad = [];
	for (const e of document.querySelectorAll('body *')) {
		if (!e.checkVisibility() || e.matches('[aria-disabled=true]') || document.getElementById('dialog').open && !e.closest('#dialog')) continue;
		const style = getComputedStyle(e), own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		const say = (what, value, least) => { if (value < least) bad.push(e.tagName + '.' + e.className + ' ' + what + ' ' + value.toFixed(2) + ': ' + e.textContent.slice(0, 40)); };
		if (own || e.matches('input')) say('text', contrast(...colors(e, parse(style.color))), 4.5);
		if (e.matches('.strip li')) {
			const border = parseFloat(style.borderTopWidth) > 0, color = border ? style.borderTopColor : style.backgroundColor;
			say('square', contrast(...colors(e.parentElement, parse(color))), 3);
			const mark = getComputedStyle(e, '::before');
			if (mark.content !== 'none') say('mark', contrast(parse(mark.color).slice(0, 3), parse(style.backgroundColor).slice(0, 3)), 4.5);
		}
	}
	return [...new Set(bad)];
})()`

// The page of 1,000 jobs has less than 500 KB, and its list can be turned and filtered. While nothing
// changes, nothing is built.
func TestThousandJobs(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	r := testenv.Call(singleton.NewRunner(e.Client("worker-1"), singleton.Config{})).Must(e)
	work := newScript()
	name := func(i int) string { return fmt.Sprintf("job-%04d-%s", i, strings.Repeat("x", 40)) }
	for i := range 1000 {
		if i < 25 {
			testenv.Must(e, r.Add(name(i), "@every 24h", work.work, singleton.JobConfig{MaxAttempts: 1}))
		} else {
			testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/"+name(i)+"}:job", "v", 1).Err())
		}
	}
	e.Background(r.Run)
	draw := actors.Job(e, e.Client("operator"), name(0))
	for i := range 20 {
		work.trigger(e, draw, []error{nil, errWorse}[i%2])
	}
	for i := range 25 {
		actors.Job(e, e.Client("operator"), name(i))
	}
	b := newTab(e)
	s := serve(e, e.Client("page"), statusz.Config{})
	b.visit(s.URL)
	b.until("the jobs are counted", `document.querySelector('#jobs .head .quiet').textContent === '1000, 1 failing, page 1 of 40'`)
	b.until("all rows are shown", `document.querySelectorAll('#jobs .row').length === 25 && [...document.querySelectorAll('#jobs .row .body')].every((e) => e.textContent)`)
	b.until("all squares are shown", `document.querySelectorAll('#jobs .strip li').length === 20`)
	b.mu.Lock()
	total := int64(0)
	for _, n := range b.received {
		total += n
	}
	b.mu.Unlock()
	servers.Count(e, "the page of 1,000 jobs received %d KB", total/1000)
	if total < 20_000 || total > 500_000 {
		e.Errorf("the page received %d bytes", total)
	}

	next := `[...document.querySelectorAll('#jobs .head button')].at(-1)`
	b.click(next)
	b.until("the second page is shown", `document.querySelector('#jobs .name').textContent === %s && location.search === '?jobs=2'`, name(25))
	eval[bool](b, `(() => {
		const e = document.querySelector('#jobs select');
		e.value = 'failing';
		return e.dispatchEvent(new Event('change'));
	})()`)
	b.until("the choice is applied", `location.search === '?state=failing' && document.querySelector('#jobs .name')?.textContent === %s`, name(0))
	b.visit(s.URL + "/?state=failing")
	b.until("the choice of the URL is applied", `document.querySelector('#jobs .head .quiet').textContent === '1 of 1000, 1 failing' && document.querySelector('#jobs select').value === 'failing'`)
	b.shows("jobs", name(0), "outcome failed", "schedule @every 24h")
	b.visit(s.URL + "/?jobs=40")
	b.until("the last page is shown", `[...document.querySelectorAll('#jobs .name')].at(-1)?.textContent === %s`, name(999))
	b.click(`document.getElementById('filter')`)
	b.press("0007-")
	b.until("the filter is applied", `document.querySelectorAll('#jobs .row').length === 1 && document.querySelector('#jobs .head .quiet').textContent === '1 of 1000, 1 failing'`)
	b.shows("jobs", name(7), "next tick")
	b.visit(s.URL)
	b.until("all squares are shown", `document.querySelectorAll('#jobs .strip li').length === 20`)
	b.until("all rows are shown", `document.querySelectorAll('#jobs .row').length === 25 && [...document.querySelectorAll('#jobs .row .body')].every((e) => e.textContent)`)
	// A row that has not changed is not built again.
	eval[bool](b, `(() => {
		window.built = 0;
		new MutationObserver((all) => all.forEach((m) => m.addedNodes.forEach((n) => {
			if (n.nodeType === Node.ELEMENT_NODE) window.built += 1 + n.querySelectorAll('*').length;
		}))).observe(document.body, {childList: true, subtree: true});
		return true;
	})()`)
	e.Pass(4 * time.Second)
	if built := eval[int](b, `window.built`); built > 0 {
		e.Errorf("the page built %d elements, although nothing changed", built)
	}
}
