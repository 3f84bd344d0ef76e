package browser_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// A shot is a screenshot.
type shot struct {
	name          string
	width, height int64 // CSS pixels
	scale         float64
	tip           bool // show the details of a square
}

var shots = []shot{
	{name: "page", width: 1000, height: 1050, scale: 1.1, tip: true},
	{name: "page-phone", width: 390, height: 780, scale: 1.5},
}

const largest = 160_000 // bytes of a file

var schemes = []string{"light", "dark"}

// file is the name of the file of a screenshot.
func (s shot) file(scheme string) string { return s.name + "-" + scheme + ".png" }

// check asserts that the content of a file is the screenshot.
func (s shot) check(t *testing.T, name string, content []byte) {
	t.Helper()
	picture := testenv.Call(png.DecodeConfig(bytes.NewReader(content))).Must(t)
	if float64(picture.Width) != float64(s.width)*s.scale || picture.Height != int(float64(s.height)*s.scale) {
		t.Errorf(`%s has %d x %d pixels; run "make screenshots"`, name, picture.Width, picture.Height)
	}
	if len(content) > largest {
		t.Errorf("%s has %d KB, want at most %d KB", name, len(content)/1000, largest/1000)
	}
}

// The screenshots of the documentation exist. "make screenshots" sets NOONLOCK_SCREENSHOTS to their
// folder, and the test then makes them.
func TestScreenshots(t *testing.T) {
	folder := os.Getenv("NOONLOCK_SCREENSHOTS")
	if folder == "" {
		for _, s := range shots {
			for _, scheme := range schemes {
				content := testenv.Call(os.ReadFile(filepath.Join("..", "..", "docs", s.file(scheme)))).Must(t)
				s.check(t, "docs/"+s.file(scheme), content)
			}
		}
		return
	}
	e := testenv.OnServer(t)
	sample(e)
	b := newTab(e)
	b.visit(serve(e, e.Client("page"), statusz.Config{}).URL)
	b.shows("elections", "controller", "since", "Candidates, the next leader first:")
	b.shows("jobs", "report", "running")
	b.shows("jobs", "billing", "replicas 3")
	b.shows("jobs", "lottery", "replicas 3")
	b.shows("locks", "invoices", "Waiters, the next one first:")
	b.shows("partitions", "tenants", "leads 22", "leads 21")
	b.until("all squares are shown, and jobs are in order", `document.querySelectorAll('.strip li').length > 60 && document.getElementById('state').textContent === 'live'`)
	for _, s := range shots {
		for _, scheme := range schemes {
			b.scheme(scheme)
			call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: s.width, Height: s.height, DeviceScaleFactor: s.scale})
			eval[bool](b, `new Promise((done) => { scrollTo(0, 0); requestAnimationFrame(() => requestAnimationFrame(() => done(true))); })`)
			e.Until("the details are shown beside their square", func() bool {
				b.point(`document.getElementById('title')`)
				if s.tip {
					b.point(`document.querySelectorAll('.strip .failed')[1]`)
				}
				return eval[bool](b, `!document.getElementById('tip').hidden`) == s.tip
			})
			taken := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{}).Data
			s.check(t, s.file(scheme), taken)
			testenv.Must(e, os.WriteFile(filepath.Join(folder, s.file(scheme)), taken, 0o644))
		}
	}
}

// sampleJobs are the jobs of the screenshots, with the numbers of the runs before now that did not succeed.
var sampleJobs = []struct {
	name, when   string
	every, after time.Duration // the schedule, from midnight
	ends         map[int]string
}{
	{"billing", "*/15 * * * *", 15 * time.Minute, 0, map[int]string{32: "failed", 42: "unknown", 43: "skipped", 54: "failed", 55: "failed"}},
	{"lottery", "0 12 * * *", 24 * time.Hour, 12 * time.Hour, nil},
	{"report", "30 * * * *", time.Hour, 30 * time.Minute, map[int]string{13: "failed"}},
}

// sample fills the server with what the screenshots show, until the end of the test.
func sample(e *testenv.Env) {
	var clients []*lockcore.Client
	for i := range 3 {
		clients = append(clients, e.Client(fmt.Sprintf("web-%d", i+1)))
		actors.Elector(e, clients[i], "controller", election.Config{Metadata: map[string]string{"zone": "north"}})
	}
	actors.Elector(e, clients[1], "uploads", election.Config{})
	for _, client := range clients {
		ps, err := partition.NewRunner(client, "tenants", 64, func(ctx context.Context, _ int) { <-ctx.Done() }, partition.Config{})
		testenv.Must(e, err)
		e.Background(ps.Run)
		r := testenv.Call(singleton.NewRunner(client, singleton.Config{Drain: -1})).Must(e)
		for _, j := range sampleJobs {
			testenv.Must(e, r.Add(j.name, j.when, func(ctx context.Context, run singleton.Run) error {
				if run.Triggered {
					<-ctx.Done() // until the end of the test
				}
				return nil
			}, singleton.JobConfig{}))
		}
		e.Background(r.Run)
	}
	for _, j := range sampleJobs {
		actors.Job(e, clients[0], j.name)
		last := time.Now().Add(-j.after).Truncate(j.every).Add(j.after)
		for n := range int(20*time.Hour/j.every) + 1 {
			tick, outcome := last.Add(-time.Duration(n)*j.every), cmp.Or(j.ends[n], "succeeded")
			ms := func(after time.Duration) string { return strconv.FormatInt(tick.Add(after).UnixMilli(), 10) }
			entry := testenv.Call(json.Marshal(map[string]string{
				"tick": ms(0), "start": ms(0), "end": ms(time.Second), "attempt": "1", "holder": "web-1", "token": "7", "outcome": outcome,
				"error": map[string]string{"failed": "the payment service answered 503", "unknown": "the connection ended during the commit"}[outcome],
			})).Must(e)
			testenv.Must(e, e.Raw.RPush(e.Context(), "noonlock:{job/"+j.name+"}:runs", entry).Err())
		}
		testenv.Must(e, e.Raw.HSet(e.Context(), "noonlock:{job/"+j.name+"}:job", "outcome", "succeeded", "ok", last.UnixMilli()).Err())
	}
	_, err := actors.Job(e, clients[0], "report").Trigger(e.Context())
	testenv.Must(e, err)
	e.Hold(clients[0], "invoices")
	actors.Wait(e, clients[2], "invoices")
	actors.Wait(e, clients[1], "invoices")
	rw := testenv.Call(clients[1].RWMutex("prices", "import", lockcore.LeaseConfig{})).Must(e)
	_, err = rw.TryRLock(e.Context())
	testenv.Must(e, err)
}
