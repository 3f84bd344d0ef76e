// Package browser_test tests the page of package statusz in Chromium, and makes the screenshots of
// docs/OPERATIONS.md. It also tests that the schemas of the charts are valid for JavaScript.
//
// All tests share one Chromium process. Each tab has its own cookies and cache, and reaches only
// servers of its test at loopback addresses.
package browser_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/statusz"
)

// chromium is the browser of all tests.
var chromium struct {
	sync.Once
	ctx  context.Context
	stop func()
	err  error
}

func TestMain(m *testing.M) {
	logging.Disable()
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // they share one browser, which computes more than it waits
		panic(err)
	}
	code := m.Run()
	if chromium.stop != nil {
		chromium.stop()
	}
	os.Exit(code)
}

// theChromium returns the context of the browser, which the first call starts.
func theChromium(tb testing.TB) context.Context {
	tb.Helper()
	path := servers.Program(tb, "chromium", "chromium", "google-chrome")
	chromium.Do(func() { startChromium(path) })
	testenv.Must(tb, chromium.err)
	return chromium.ctx
}

func startChromium(path string) {
	// Host names are not looked up, and nothing is sent to another machine. A tab of another test may
	// cover this one.
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.DisableGPU,
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("disable-features", "CalculateNativeWinOcclusion,Translate,OptimizationHints,MediaRouter"),
		chromedp.Flag("lang", "en-US"))
	all, stopAll := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(all)
	chromium.ctx, chromium.stop = ctx, func() { stop(); stopAll() } //nolint:fatcontext // it starts once
	_, chromium.err = chromedp.Run(ctx, chromedp.Evaluate[int]("1"))
}

// A tab is a tab of the browser, with an own profile.
type tab struct {
	*testenv.Env
	ctx context.Context

	mu       sync.Mutex
	requests []string          // URLs
	dialogs  []string          // texts of alert and similar functions
	console  []string          // what scripts print, and what the browser complains about
	kind     map[string]string // of a request
	received map[string]int64  // bytes of the answer to a request
}

// newTab opens an empty tab until the end of the test.
func newTab(e *testenv.Env) *tab {
	e.Helper()
	ctx, stop := chromedp.NewContext(theChromium(e), chromedp.WithNewBrowserContext())
	e.Cleanup(stop)
	ctx, cancel := context.WithTimeout(ctx, 5*testenv.Patience)
	e.Cleanup(cancel)
	b := &tab{Env: e, ctx: ctx, kind: map[string]string{}, received: map[string]int64{}}
	testenv.Must(e, chromedp.Listen(ctx, b.take))
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1200, 900)
	return b
}

// take notes an event of the browser.
func (b *tab) take(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch event := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, event.Request.URL)
		b.kind[string(event.RequestID)] = event.Request.URL
	case *network.EventDataReceived:
		b.received[b.kind[string(event.RequestID)]] += event.DataLength
	case *page.EventJavascriptDialogOpening:
		b.dialogs = append(b.dialogs, event.Message)
	case *runtime.EventExceptionThrown:
		b.console = append(b.console, event.ExceptionDetails.Text)
	}
}

// sent returns the URLs of requests that contain a text.
func (b *tab) sent(part string) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.requests {
		if strings.Contains(u, part) {
			all = append(all, u)
		}
	}
	return all
}

// call calls a function of the browser's protocol.
func call[P, R any](b *tab, command cdp.Command[P, R], params P) R {
	b.Helper()
	return testenv.Call(chromedp.Call(b.ctx, command, params)).Must(b)
}

// eval returns the value of an expression in the page, which may be a promise.
func eval[T any](b *tab, expression string, args ...any) T {
	b.Helper()
	value, err := tryEval[T](b, expression, args...)
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

func tryEval[T any](b *tab, expression string, args ...any) (T, error) {
	b.Helper()
	var quoted []any
	for _, arg := range args {
		text := testenv.Call(json.Marshal(arg)).Must(b)
		quoted = append(quoted, string(text))
	}
	return chromedp.Run(b.ctx, chromedp.Evaluate[T](fmt.Sprintf(expression, quoted...), chromedp.EvalAwaitPromise))
}

// size sets the size of the window in CSS pixels.
func (b *tab) size(width, height int64) {
	b.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
}

// scheme sets the colors that the user prefers, "light" or "dark".
func (b *tab) scheme(name string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// visit loads a page. A reload would remove the mark.
func (b *tab) visit(url string) {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Navigate(url))
	testenv.Must(b, err)
	eval[bool](b, "window.mark = true")
}

// until waits until an expression is true in the page. While a page loads, there may be none.
func (b *tab) until(what, expression string, args ...any) {
	b.Helper()
	b.Until(what, func() bool {
		ok, err := tryEval[bool](b, expression, args...)
		if err != nil && !strings.Contains(err.Error(), "navigated") {
			b.Fatalf("%s: %v", expression, err)
		}
		return ok && err == nil
	})
}

// press presses keys, one after the other.
func (b *tab) press(keys ...string) {
	b.Helper()
	for _, key := range keys {
		_, err := chromedp.Run(b.ctx, chromedp.KeyEvent(key, asKeyboard))
		testenv.Must(b, err)
	}
}

// asKeyboard makes events as a keyboard does: if a script handles the key, no text follows.
func asKeyboard(k *input.DispatchKeyEventParams) {
	if k.Type == kb.KeyDown {
		k.Type = kb.KeyRawDown
	}
}

// click clicks in the middle of an element, which is the value of an expression. If the page moves the
// element meanwhile, it clicks again.
func (b *tab) click(element string, args ...any) {
	b.Helper()
	b.Until("the click arrives", func() bool {
		eval[bool](b, `(() => {
			window.clicked = false;
			(`+element+`).addEventListener('click', () => { window.clicked = true; }, { capture: true, once: true });
			return true;
		})()`, args...)
		at := b.middle(element, args...)
		_, err := chromedp.Run(b.ctx, chromedp.MouseClickXY(at[0], at[1]))
		testenv.Must(b, err)
		return eval[bool](b, "window.clicked")
	})
}

// text returns the visible text of a row of a list.
func (b *tab) text(kind, name string) string {
	b.Helper()
	return eval[string](b, `(`+row+`)?.innerText ?? ''`, kind, name)
}

// row is the element of a row. Its arguments are the kind and the name.
const row = `[...document.querySelectorAll('#' + %s + ' .row')].find((e) => e.querySelector('.name').textContent === %s)`

// shows waits until a row shows texts.
func (b *tab) shows(kind, name string, texts ...string) {
	b.Helper()
	last := ""
	defer func() {
		if b.Failed() {
			b.Logf("the row of %s %q is %q", kind, name, last)
		}
	}()
	b.Until(fmt.Sprintf("%s %q shows %q", kind, name, texts), func() bool {
		last = b.text(kind, name)
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(last, text) })
	})
}

// serve serves the page until the end of the test.
func serve(e *testenv.Env, client *lockcore.Client, cfg statusz.Config) *httptest.Server {
	e.Helper()
	return behind(e, client, cfg, func(w http.ResponseWriter, r *http.Request, page http.Handler) { page.ServeHTTP(w, r) })
}

// point moves the pointer to the middle of an element.
func (b *tab) point(element string, args ...any) {
	b.Helper()
	at := b.middle(element, args...)
	_, err := chromedp.Run(b.ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
	testenv.Must(b, err)
}

// hover points at a square until its details are shown.
func (b *tab) hover(square string, args ...any) {
	b.Helper()
	b.Until("the details are shown", func() bool {
		b.point(square, args...)
		return eval[bool](b, `!document.getElementById('tip').hidden`)
	})
}

// middle scrolls to an element, and returns where its middle is.
func (b *tab) middle(element string, args ...any) []float64 {
	b.Helper()
	return eval[[]float64](b, `(() => {
		const e = `+element+`;
		e.scrollIntoView({ block: 'nearest' });
		const box = e.getBoundingClientRect();
		return [box.left + box.width / 2, box.top + box.height / 2];
	})()`, args...)
}
