package browser_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// focused is what has the focus.
const focused = `(() => {
	const e = document.activeElement;
	return e === document.body ? '' : e.id === 'filter' ? 'filter' : e.getAttribute('aria-label') || e.textContent;
})()`

// The Tab key reaches all controls in order, the arrow keys each square, and Enter acts. What the page
// changes meanwhile does not move the focus.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	work := newScript()
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	for _, result := range []error{nil, errWorse, nil} {
		work.trigger(e, draw, result)
	}
	actors.Elector(e, e.Client("web-1"), "board", election.Config{})
	e.Hold(e.Client("billing-1"), "invoices")
	b := newTab(e)
	b.visit(serve(e, e.Client("page"), statusz.Config{AllowActions: true}).URL)
	b.shows("elections", "board", "Resign")
	b.shows("jobs", "draw", "Pause", "Trigger")
	b.shows("locks", "invoices", "Release")

	want := []string{"filter", "Resign board", "Terms board", "Pause all…", "State of jobs", "Order of jobs", "draw", "Pause draw", "Trigger draw", "Runs of draw, oldest first", "Release invoices"}
	var stops []string
	for range want {
		b.press(kb.Tab)
		stops = append(stops, eval[string](b, focused))
	}
	if !slices.Equal(stops, want) {
		e.Fatalf("the Tab key stops at %q, want %q", stops, want)
	}

	// Each square shows its details.
	eval[bool](b, `(() => { (`+row+`).querySelector('.strip').focus(); return true; })()`, "jobs", "draw")
	const chosen = `(() => {
		const strip = document.activeElement, on = strip.querySelectorAll('.on');
		return [document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent,
			on.length === 1 && on[0].id === strip.getAttribute('aria-activedescendant') ? String([...strip.children].indexOf(on[0])) : 'none'];
	})()`
	at := func(index int, texts ...string) {
		e.Helper()
		e.Until(fmt.Sprintf("square %d is chosen, and its details are %q", index, texts), func() bool {
			got := eval[[]string](b, chosen)
			return got[1] == strconv.Itoa(index) && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(got[0], text) })
		})
	}
	at(2, "succeeded", "attempt 1", "holder worker-1")
	b.press(kb.ArrowLeft)
	at(1, "failed", errWorse.Error())
	b.press(kb.ArrowLeft, kb.ArrowLeft)
	at(0, "succeeded")
	b.press(kb.End)
	at(2, "succeeded")
	b.press(kb.Home, kb.ArrowRight)
	at(1, "failed")
	b.press(kb.Enter)
	b.until("the details are shown", dialogOpen+` && document.getElementById('dialog').innerText.includes(%s)`, errWorse.Error())
	b.press(kb.Escape)
	b.until("the details are closed", dialogClosed)
	at(1, "failed") // as before the dialog

	// A run that begins and ends adds a square, and a lock of a smaller name adds a row.
	work.trigger(e, draw, nil)
	b.until("the fourth run is shown", `(`+row+`).querySelectorAll('.strip li').length === 4`, "jobs", "draw")
	at(1, "failed", errWorse.Error())
	b.press(kb.End)
	at(3, "succeeded")
	work.trigger(e, draw, errHang)
	b.until("the open run is shown", `(`+row+`).querySelectorAll('.strip li').length === 5`, "jobs", "draw")
	b.press(kb.ArrowRight)
	at(4, "running")
	_, err := draw.Cancel(e.Context(), singleton.RunID{})
	testenv.Must(e, err)
	b.until("the end is shown", `(`+row+`).querySelectorAll('.strip .failed').length === 2`, "jobs", "draw")
	at(4, "failed")
	b.press(kb.ArrowLeft)
	at(3, "succeeded")

	// An action by the keyboard alone. Its button disappears, and the focus stays in the row.
	eval[bool](b, `(() => { (`+act+`).focus(); return true; })()`, "jobs", "draw", "Pause")
	b.press(kb.Enter)
	b.until("a reason is asked for", `document.activeElement.matches('#dialog input')`)
	b.press("late", kb.Enter)
	b.until("the action is done", dialogClosed)
	b.shows("jobs", "draw", "paused", "Resume")
	b.until("the focus is at Resume", focused+` === 'Resume draw'`)
	// While the job cannot be read, the row has no control. The focus comes back.
	const ledger = "noonlock:{job/draw}:job"
	_, err = e.Raw.TxPipelined(e.Context(), func(tx redis.Pipeliner) error { // a search that found no ledger would end the row
		tx.Rename(e.Context(), ledger, "kept")
		tx.Set(e.Context(), ledger, "no hash", 0)
		return nil
	})
	testenv.Must(e, err)
	b.until("the row has no control", `!(`+row+`).querySelector('.strip')`, "jobs", "draw")
	testenv.Must(e, e.Raw.Rename(e.Context(), "kept", ledger).Err())
	b.until("the focus is at Resume again", focused+` === 'Resume draw'`)
	b.press(kb.Enter)
	b.until("a reason is asked for", `document.activeElement.matches('#dialog input')`)
	b.press(kb.Tab, kb.Enter) // at Close
	b.until("the dialog is closed", dialogClosed)
	b.press(kb.Enter)
	b.until("a reason is asked for", `document.activeElement.matches('#dialog input')`)
	b.press(kb.Tab, kb.Tab, kb.Enter)
	b.shows("jobs", "draw", "Pause", "next tick")
	b.until("the focus is at Pause", focused+` === 'Pause draw'`)

	// The reason of a rerun is asked for in the dialog that shows the details.
	eval[bool](b, `(() => { (`+row+`).querySelector('.strip').focus(); return true; })()`, "jobs", "draw")
	b.press(kb.Home, kb.ArrowRight)
	at(1, "failed")
	b.press(kb.Enter)
	b.until("the details are shown", dialogOpen)
	work.results <- nil
	b.shiftTab()
	b.until("the button has the focus", focused+` === 'Run again…'`)
	b.press(kb.Enter)
	b.until("a reason is asked for", `document.activeElement.matches('#dialog input')`)
	b.press("late", kb.Enter)
	b.until("the action is done", dialogClosed)
	b.until("the run is shown", `(`+row+`).querySelectorAll('.strip li').length === 6`, "jobs", "draw")

	eval[bool](b, `(() => { (`+act+`).focus(); return true; })()`, "locks", "invoices", "Release")
	e.Hold(e.Client("billing-2"), "a-new-lock")
	b.shows("locks", "a-new-lock", "billing-2")
	testenv.Equal(e, "the focus after a new row", eval[string](b, focused), "Release invoices")
}

// Every control has a name and a role, headings are in order, and changes of the state are announced.
func TestAccessibility(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	work := newScript()
	draw, _ := actors.Runner(e, e.Client("worker-1"), "draw", "@every 24h", singleton.JobConfig{MaxAttempts: 1}, work.work)
	work.trigger(e, draw, errWorse)
	actors.Elector(e, e.Client("web-1"), "board", election.Config{})
	for i := range 26 {
		testenv.Must(e, e.Raw.Set(e.Context(), fmt.Sprintf("noonlock:{lock-%02d}:lock", i), "x", 0).Err())
	}
	b := newTab(e)
	b.visit(serve(e, e.Client("page"), statusz.Config{Title: "the title", AllowActions: true}).URL)
	b.shows("elections", "board", "Resign")
	b.shows("jobs", "draw", "Trigger")
	b.shows("locks", "lock-24", "Release")
	check := func(where string) {
		e.Helper()
		// roles that need a name
		named := map[string]bool{"button": true, "searchbox": true, "textbox": true, "listbox": true, "option": true, "heading": true, "dialog": true, "combobox": true, "link": true, "RootWebArea": true}
		names := map[string][]string{}
		for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
			if n.Ignored || n.Role == nil {
				continue
			}
			role, name := string(n.Role.Value), ""
			role = strings.Trim(role, `"`)
			if n.Name != nil {
				name = strings.Trim(string(n.Name.Value), `"`)
			}
			if named[role] && name == "" {
				e.Errorf("%s: a %s has no name", where, role)
			}
			names[role] = append(names[role], name)
		}
		for role, all := range names {
			if role == "button" {
				sorted := slices.Sorted(slices.Values(all))
				if len(slices.Compact(sorted)) != len(all) {
					e.Errorf("%s: some buttons have the same name: %q", where, all)
				}
			}
		}
		if where == "page" && (len(names["status"]) != 1 || len(names["main"]) != 1 || len(names["banner"]) != 1 || len(names["combobox"]) != 2 || len(names["option"]) != 6+3+1 || len(names["button"]) != 2+2+2+2+25) {
			e.Errorf("roles and names: %q", names)
		}
		if where == "dialog" && !slices.Equal(names["dialog"], []string{"Release: lock-00"}) {
			e.Errorf("the dialogs are %q", names["dialog"])
		}
	}
	check("page")
	if got := eval[[]string](b, `[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((e) => e.tagName + ' ' + e.textContent)`); !slices.Equal(got, []string{"H1 the title", "H2 Elections", "H2 Jobs", "H2 Locks", "H2 Partitions"}) {
		e.Errorf("the headings are %q", got)
	}
	testenv.Equal(e, "the language", eval[string](b, `document.documentElement.lang`), "en")

	// The pages of a long list. At the end of the list, the focus stays.
	next := `[...document.querySelectorAll('#locks .head button')][1]`
	eval[bool](b, `(() => { (`+next+`).focus(); return true; })()`)
	b.press(kb.Enter)
	b.shows("locks", "lock-25", "another program")
	testenv.Equal(e, "the focus at the last page", eval[string](b, focused), "Next page of locks")
	b.press(kb.Enter)
	b.shiftTab()
	b.until("the other button has the focus", focused+` === 'Previous page of locks'`)
	b.press(kb.Enter)
	b.shows("locks", "lock-00", "another program", "Release")
	b.click(act, "locks", "lock-00", "Release")
	b.until("the dialog is open", dialogOpen)
	check("dialog")
}

// shiftTab moves the focus back.
func (b *tab) shiftTab() {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.KeyEvent(kb.Tab, asKeyboard, chromedp.KeyModifiers(chromedp.ModifierShift)))
	testenv.Must(b, err)
}
