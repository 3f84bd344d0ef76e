package statusz_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/internal/console/overview"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/statusz"
)

func TestMain(m *testing.M) {
	logging.Disable()
	os.Exit(m.Run())
}

// A row is what a browser received about a thing, of any kind.
type row struct {
	Name  string
	Gone  bool
	Error string
	Token uint64 `json:",string"`
	Lines []overview.Cell
	Lists []overview.List
	Runs  []struct {
		Class string `json:"c"`
	}
}

// text returns the text of a cell; empty: the cell is not shown.
func (r row) text(label string) string {
	for _, c := range r.Lines {
		if c.Label == label {
			return c.Text
		}
	}
	return ""
}

// listed returns how many rows the first list has.
func (r row) listed() int {
	if len(r.Lists) == 0 {
		return 0
	}
	return len(r.Lists[0].Rows)
}

type section struct {
	State, Error          string
	All, Fit, Page, Pages int
	Names                 []string
	Counts                map[string]int
}

// A browser has the page open. It keeps what it received as page.js does.
type browser struct {
	tb   testing.TB
	stop func()
	done chan struct{} // closed when the stream has ended

	mu       sync.Mutex
	header   http.Header
	rest     []byte
	title    string
	live     bool
	lives    int // events that say so
	stale    string
	since    int64
	sections map[string]section
	rows     map[string]map[string]row
}

// open opens the stream of a page until the end of the test.
func open(e *testenv.Env, page *statusz.Page, query string) *browser {
	e.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &browser{tb: e, done: make(chan struct{}), header: http.Header{}, sections: map[string]section{}, rows: map[string]map[string]row{}}
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/statusz/events?"+query, http.NoBody)
	go func() {
		defer close(b.done)
		page.ServeHTTP(b, request)
	}()
	b.stop = func() {
		cancel()
		<-b.done
	}
	e.Cleanup(b.stop)
	return b
}

func (b *browser) Header() http.Header { return b.header }

func (b *browser) WriteHeader(int) {}

func (b *browser) Flush() {}

func (b *browser) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = append(b.rest, p...)
	for {
		event, rest, found := bytes.Cut(b.rest, []byte("\n\n"))
		if !found {
			return len(p), nil
		}
		b.rest = rest
		data, ok := bytes.CutPrefix(event, []byte("data: "))
		if !ok {
			b.tb.Errorf("the event %q has no data", event)
			continue
		}
		b.take(data)
	}
}

func (b *browser) take(data []byte) {
	var f struct {
		Title, Stale string
		Live         bool
		Since        int64
		Sections     map[string]section
		Items        map[string][]row
	}
	if err := json.Unmarshal(data, &f); err != nil {
		b.tb.Errorf("%v: %s", err, data)
		return
	}
	if f.Live {
		b.lives++
	}
	if f.Live || f.Stale != "" {
		b.live, b.stale, b.since = f.Live, f.Stale, f.Since
	}
	if f.Title != "" {
		b.title = f.Title
	}
	for kind, s := range f.Sections {
		b.sections[kind] = s
		for name := range b.rows[kind] {
			if !slices.Contains(s.Names, name) {
				delete(b.rows[kind], name)
			}
		}
	}
	for kind, items := range f.Items {
		for _, r := range items {
			if !slices.Contains(b.sections[kind].Names, r.Name) {
				b.tb.Errorf("%s %q is not one of the names %q", kind, r.Name, b.sections[kind].Names)
			}
			if b.rows[kind] == nil {
				b.rows[kind] = map[string]row{}
			}
			b.rows[kind][r.Name] = r
		}
	}
}

// row returns a thing as the browser shows it now.
func (b *browser) row(kind, name string) row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rows[kind][name]
}

// section returns a list as the browser shows it now, and how many of its rows have been read.
func (b *browser) section(kind string) (s section, read int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sections[kind], len(b.rows[kind])
}

// state returns what the page says of itself; not live and not stale: it has not said anything.
func (b *browser) state() (live bool, stale string, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.live, b.stale, time.UnixMilli(b.since)
}

func (b *browser) isLive() bool { live, _, _ := b.state(); return live }

// ended reports whether the stream has ended.
func (b *browser) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

func newPage(e *testenv.Env, client *lockcore.Client, cfg statusz.Config) *statusz.Page {
	e.Helper()
	page, err := statusz.Handler(client, cfg)
	testenv.Must(e, err)
	return page
}
