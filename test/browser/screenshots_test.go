package browser_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/testing/testenv/actors"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
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
	b.visit(serve(e, statusz.Config{}).URL)
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

// sampleJobs are the jobs of the screenshots. work returns the result of an attempt at the n-th tick.
var sampleJobs = []struct {
	name, when string
	work       func(n, attempt int) error
}{
	{"billing", "*/15 * * * *", func(n, attempt int) error {
		switch {
		case n == 25 || n == 26 || n == 48 || n == 70 && attempt == 1:
			return errors.New("the payment service answered 503")
		case n == 37:
			return fmt.Errorf("%w: the connection ended during the commit", singleton.ErrUnknownOutcome)
		}
		return nil
	}},
	{"lottery", "0 12 * * *", func(int, int) error { return nil }},
	{"report", "30 * * * *", func(n, _ int) error {
		if n == 8 {
			return errors.New("the disk is full")
		}
		return nil
	}},
}

// sampleConfig is the same in both times, so that it is one definition.
var sampleConfig = singleton.JobConfig{MaxAttempts: 2}

// sample fills the server with what the screenshots show, until the end of the test.
func sample(e *testenv.Env) {
	past(e, time.Now().Truncate(time.Second))
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
			}, sampleConfig))
		}
		e.Background(r.Run)
	}
	report := actors.Job(e, clients[0], "report")
	_, err := report.Trigger(e.Context())
	testenv.Must(e, err)
	e.Hold(clients[0], "invoices")
	actors.Wait(e, clients[2], "invoices")
	actors.Wait(e, clients[1], "invoices")
	rw := testenv.Call(clients[1].RWMutex("prices", "import", lockcore.LeaseConfig{})).Must(e)
	_, err = rw.TryRLock(e.Context())
	testenv.Must(e, err)
}

// past runs the jobs in virtual time until an instant, and copies what the server then has. For 40
// minutes, no replica was there.
func past(e *testenv.Env, until time.Time) {
	e.Helper()
	type copied struct {
		key   string
		ttl   time.Duration
		write []any
	}
	var all []copied
	synctest.Test(e.T, func(t *testing.T) {
		server := lockcoretest.NewRedis(t)
		counts := map[string]int{}
		time.Sleep(time.Until(until.Add(-20 * time.Hour)))
		for i, length := range []time.Duration{9 * time.Hour, 10*time.Hour + 20*time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), length)
			client, err := lockcore.New(server.Client(), lockcore.Config{Identity: fmt.Sprintf("web-%d", i+1)})
			testenv.Must(t, err)
			r := testenv.Call(singleton.NewRunner(client, singleton.Config{Drain: -1})).Must(t)
			for _, j := range sampleJobs {
				testenv.Must(t, r.Add(j.name, j.when, func(_ context.Context, run singleton.Run) error {
					if run.Attempt == 1 {
						counts[j.name]++
					}
					time.Sleep(time.Duration(800+counts[j.name]*37%400) * time.Millisecond)
					return j.work(counts[j.name], run.Attempt)
				}, sampleConfig))
			}
			testenv.Must(t, r.Run(ctx))
			cancel()
			testenv.Must(t, client.Close(t.Context()))
			time.Sleep(40 * time.Minute * time.Duration(1-i))
		}
		raw, ctx := server.Client(), t.Context()
		keys := testenv.Call(raw.Keys(ctx, "*").Result()).Must(t)
		for _, key := range keys {
			c := copied{key: key, ttl: raw.PTTL(ctx, key).Val()}
			switch kind := raw.Type(ctx, key).Val(); kind {
			case "string":
				c.write = []any{"SET", key, raw.Get(ctx, key).Val()}
			case "hash":
				c.write = []any{"HSET", key}
				for field, value := range raw.HGetAll(ctx, key).Val() {
					c.write = append(c.write, field, value)
				}
			case "list":
				c.write = []any{"RPUSH", key}
				for _, value := range raw.LRange(ctx, key, 0, -1).Val() {
					c.write = append(c.write, value)
				}
			default:
				t.Fatalf("%s is a %s", key, kind)
			}
			all = append(all, c)
		}
	})
	for _, c := range all {
		testenv.Must(e, e.Raw.Do(e.Context(), c.write...).Err())
		if c.ttl > 0 {
			testenv.Must(e, e.Raw.PExpire(e.Context(), c.key, c.ttl).Err())
		}
	}
}
