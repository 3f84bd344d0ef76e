package statusz_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/healthz"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/statusz"
)

// A program runs 1,000 jobs, and serves the page and its readiness. Its Redis is a process.
type program struct {
	*testenv.Env
	url           string // of the page
	readyz        http.Handler
	lines, probes testenv.Log
	failed        int            // requests to readyz
	job           *singleton.Job // one of those with a tick every 5 s
	begun         chan time.Time // the tick of its run that begins, if the test waits for one
	took          sync.Map       // how long its work took, by tick
	browsers      []*browser
}

func startProgram(t *testing.T) *program {
	t.Helper()
	p := &program{Env: testenv.OnServer(t, "user app on >secret ~* &* +@all", "appendonly yes", "appendfsync always"), begun: make(chan time.Time)}
	client := p.ClientWith(p.As("app", "~*", "&*", "+@all"), lockcore.Config{Logger: p.lines.Info("")})
	r, err := singleton.NewRunner(client, singleton.Config{Drain: -1})
	testenv.Must(t, err)
	for i := range 999 {
		testenv.Must(t, r.Add(fmt.Sprintf("job-%03d", i), fmt.Sprintf("@every %ds", 7+i/20*1000), func(context.Context, singleton.Run) error { return nil }, singleton.JobConfig{}))
	}
	testenv.Must(t, r.Add("work", "@every 5s", p.work, singleton.JobConfig{}))
	p.job, err = singleton.NewJob(client, "work")
	testenv.Must(t, err)
	p.readyz, err = healthz.New("readyz", healthz.Config{Logger: p.probes.Info("")}, healthz.Ready("jobs", r.Ready))
	testenv.Must(t, err)
	page := newPage(p.Env, client, statusz.Config{})
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	t.Cleanup(page.Close)
	p.url = server.URL
	background(p.Env, func(ctx context.Context) { _ = r.Run(ctx) })
	p.Until("all jobs are ready", p.ready)
	p.browse()
	p.Until("the page is live", p.shows(true, ""))
	return p
}

func (p *program) work(_ context.Context, run singleton.Run) error {
	began := time.Now()
	select {
	case p.begun <- run.Tick:
	default:
	}
	<-time.After(300 * time.Millisecond)
	if _, again := p.took.Swap(run.Tick, time.Since(began)); again {
		p.Errorf("the tick %v has run twice", run.Tick)
	}
	return nil
}

func (p *program) ready() bool {
	code := get(p.readyz, http.MethodGet, "/readyz").Code
	if code != http.StatusOK {
		p.failed++
	}
	return code == http.StatusOK
}

// browse opens the page over HTTP.
func (p *program) browse() {
	b := &browser{tb: p, sections: map[string]section{}, rows: map[string]map[string]row{}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, p.url+"/events", http.NoBody)
	testenv.Must(p, err)
	answer, err := http.DefaultClient.Do(request)
	testenv.Must(p, err)
	go func() {
		defer answer.Body.Close()
		_, _ = io.Copy(b, answer.Body) // until the page is closed
	}()
	p.browsers = append(p.browsers, b)
}

// shows returns a function that reports whether all browsers show a live page, or that it is out of date and why.
func (p *program) shows(live bool, why string) func() bool {
	return func() bool {
		return !slices.ContainsFunc(p.browsers, func(b *browser) bool {
			is, stale, _ := b.state()
			return is != live || is == (stale != "") || !strings.Contains(stale, why)
		})
	}
}

// lives returns how often a browser was sent a live page.
func (p *program) lives() (n int) {
	for _, b := range p.browsers {
		b.mu.Lock()
		n += b.lives
		b.mu.Unlock()
	}
	return n
}

// liveWithin2s returns a function that asserts that the page is live in all browsers 200 beats after the first connection that
// the server accepts from now on. A beat is a pause of 10 ms and a PING, which take longer if the machine is busy.
func (p *program) liveWithin2s() (check func()) {
	done := make(chan struct{})
	var took time.Duration
	beats, live := 0, p.shows(true, "")
	go func() {
		defer close(done)
		conn, err := net.Dial("tcp", p.Real.Addr())
		for ; err != nil; conn, err = net.Dial("tcp", p.Real.Addr()) {
			<-time.After(time.Millisecond)
		}
		defer conn.Close()
		began, answers := time.Now(), bufio.NewReader(conn)
		for ; !live() && time.Since(began) < testenv.Patience; beats++ {
			<-time.After(10 * time.Millisecond)
			_, _ = io.WriteString(conn, "PING\r\n")
			_, _ = answers.ReadString('\n')
		}
		took = time.Since(began)
	}()
	return func() {
		p.Helper()
		if <-done; beats > 200 {
			p.Errorf("the page is live after %d beats", beats)
		}
		servers.Count(p, "the page of 1,000 jobs is live %s, %d beats, after the server accepts", took.Round(time.Millisecond), beats)
	}
}

// few returns a function that asserts that few lines have said since that the ledger is away and back, and for how many jobs.
func (p *program) few() (check func()) {
	counted := func() [3]int {
		return [3]int{p.lines.Count(`"msg"="ledger `), p.lines.Count("ledger unavailable", `"jobs"=`), p.lines.Count("ledger available again", `"jobs"=`)}
	}
	before := counted()
	return func() {
		p.Helper()
		var after [3]int
		p.Until("the log says that the ledger was away and is back", func() bool {
			after = counted()
			return after[1] > before[1] && after[2] > before[2]
		})
		servers.Count(p, "%d lines say that the ledger of 1,000 jobs is away and back", after[0]-before[0])
		if after[0]-before[0] > 10 {
			p.Errorf("before %d, after %d:\n%s", before, after, p.lines.String())
		}
	}
}

// recorded asserts that the ledger has each run once, with the time of its work, and all other ticks as missed.
func (p *program) recorded(lasts time.Duration) {
	p.Helper()
	runs, err := p.job.Runs(p.Context(), 100)
	testenv.Must(p, err)
	const every = 5 * time.Second
	succeeded, missed, least := 0, 0, int(lasts/every)-2
	var next time.Time // tick of the entry before
	for _, e := range runs {
		last := cmp.Or(e.Last, e.Tick)
		if !next.IsZero() && next.Sub(last) != every {
			p.Errorf("no entry between %v and %v", last, next)
		}
		next = e.Tick
		if e.Outcome != singleton.OutcomeSucceeded {
			if missed += e.Count; e.Outcome != singleton.OutcomeSkipped || e.Error != "missed" {
				p.Errorf("%+v", e)
			}
			continue
		}
		succeeded++
		took, ok := p.took.Load(e.Tick)
		if !ok || e.Attempt != 1 || e.End.Sub(e.Start) > took.(time.Duration)+500*time.Millisecond {
			p.Errorf("the work took %v: %+v", took, e)
		}
	}
	servers.Count(p, "%d ticks missed in an outage of %s, %d runs recorded", missed, lasts, succeeded)
	if missed < least || succeeded < 2 {
		p.Errorf("%d ticks were missed, want %d: %+v", missed, least, runs)
	}
}

// The Redis of 1,000 jobs is killed during a run. It comes back with its data, and later with another password and without
// rights. The page and the readiness follow at once, few lines tell of it, and the ledger has each run once, as long as it took, and the ticks that
// were due meanwhile as missed.
func TestRealOutages(t *testing.T) {
	for _, lasts := range []time.Duration{15 * time.Second, 30 * time.Second, time.Minute}[:testenv.Size(1, 3)] {
		t.Run(lasts.String(), func(t *testing.T) {
			t.Parallel()
			p := startProgram(t)
			told := p.few()
			<-p.begun
			p.Real.Kill()
			end := time.After(lasts)
			p.Until("the page is out of date", p.shows(false, ""))
			lives := p.lives()
			p.Until("jobs are not ready", func() bool { return !p.ready() })
			<-end
			if n := p.lives() - lives; n > 0 {
				t.Errorf("%d times, the page was live without a server", n)
			}
			live := p.liveWithin2s()
			p.Real.Restart(p)
			live()
			p.Until("all jobs are ready", p.ready)
			told()
			tick := <-p.begun
			p.Until("that run is recorded", func() bool {
				s, err := p.job.Status(p.Context())
				return err == nil && s.LastSuccess.Equal(tick)
			})
			told = p.few()
			testenv.Must(t, p.Raw.ACLSetUser(t.Context(), "app", "resetpass", ">other").Err())
			testenv.Must(t, p.Raw.ConfigRewrite(t.Context()).Err())
			p.Real.Restart(p)
			p.Until("the page says that the password is wrong", p.shows(false, "WRONGPASS"))
			lives = p.lives()
			p.browse()
			p.Until("another browser shows it, too", p.shows(false, "WRONGPASS"))
			<-time.After(4 * time.Second)
			testenv.Must(t, p.Raw.ACLSetUser(t.Context(), "app", ">secret", "-@all").Err())
			p.Until("the page says that rights are missing", p.shows(false, "NOPERM"))
			<-time.After(4 * time.Second)
			if n := p.lives() - lives; n > 0 {
				t.Errorf("%d times, the page was live while Redis refused everything", n)
			}
			testenv.Must(t, p.Raw.ACLSetUser(t.Context(), "app", "+@all").Err())
			p.liveWithin2s()()
			p.Until("all jobs are ready", p.ready)
			told()
			p.recorded(lasts)
			p.Until("all failures are logged", func() bool { return p.probes.Count("health check failed") == p.failed })
			for line := range strings.SplitSeq(p.probes.String(), "\n") {
				if len(line) > 1024 || !strings.Contains(line, "health check failed") {
					t.Errorf("%d bytes: %s", len(line), line)
				}
			}
		})
	}
}
