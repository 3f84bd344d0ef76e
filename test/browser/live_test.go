package browser_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/statusz"
)

// A takeover is shown within a second by a message on the stream that the page has opened, after a
// resignation and after the death of the leader.
//
// A busy machine can delay one takeover by any time, so only the fastest is compared with a second.
func TestTakeoverIsShown(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	type candidate struct {
		*election.LeaderElector
		network *lockcoretest.Faults
	}
	var both []candidate
	for _, identity := range []string{"a", "b"} {
		client, network := e.Linked(identity)
		both = append(both, candidate{elector(e, client, "board", election.Config{LeaseDuration: 10 * time.Second}), network})
	}
	b := newTab(e)
	b.visit(serve(e, statusz.Config{}).URL)
	b.shows("elections", "board", "Candidates:", "token ")
	eval[bool](b, `(() => {
		window.shown = {};
		const look = () => {
			const text = (`+row+`).innerText;
			const token = /token (\d+)/.exec(text)?.[1];
			if (token && !(token in shown)) shown[token] = performance.timeOrigin + performance.now();
		};
		new MutationObserver(look).observe(document.getElementById('elections'), { childList: true, subtree: true, characterData: true });
		look();
		return true;
	})()`, "elections", "board")
	board, err := election.NewElection(e.Client("watcher"), "board")
	testenv.Must(e, err)
	// takeover ends a term, and returns the time from the beginning of the next one to its appearance.
	takeover := func(end func(leader candidate)) (took time.Duration) {
		e.Helper()
		var old election.LeaderRecord
		e.Until("one leads and the other one waits", func() bool {
			waiting, err := board.Candidates(e.Context())
			testenv.Must(e, err)
			old, err = board.Record(e.Context())
			testenv.Must(e, err)
			return old.Left > 0 && len(waiting) == 1
		})
		end(both[strings.Index("ab", old.Holder)])
		e.Until("the next term is shown", func() bool {
			next, err := board.Record(e.Context())
			testenv.Must(e, err)
			if next.Token == old.Token || next.Left <= 0 {
				return false
			}
			at := eval[float64](b, `shown[%s] ?? 0`, strconv.FormatUint(next.Token, 10))
			took = time.Duration((at - float64(next.Acquired.UnixMicro())/1000) * float64(time.Millisecond)).Round(time.Millisecond)
			return at > 0 && strings.Contains(b.text("elections", "board"), next.Holder+"\n")
		})
		return took
	}
	var all []time.Duration
	for range 4 {
		all = append(all, takeover(func(leader candidate) { testenv.Must(e, leader.Resign(e.Context())) }))
	}
	if slices.Min(all) > time.Second {
		e.Errorf("after resignations, the new leader was shown after %v, want less than a second", all)
	}
	died := takeover(func(leader candidate) { leader.network.Partition() }) // to the server, this is a death
	servers.Count(e, "takeovers shown in the browser after %v, and %s after a death", all, died)
	if !eval[bool](b, "window.mark === true") || len(b.sent("/events")) != 1 {
		e.Errorf("the page was loaded again, or its stream ended: %q", b.sent(""))
	}
}

// When the server of the page stops, the page says so. When the server returns, the page recovers
// without a reload, also if a proxy answers first.
func TestSaysWhenItIsStale(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	client := e.Client("page")
	hold(e, e.Client("billing-1"), "invoices")
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(e)))
	listen := func() net.Listener {
		e.Helper()
		l, err := new(net.ListenConfig).Listen(e.Context(), "tcp", addr)
		testenv.Must(e, err)
		return l
	}
	s := serveAt(e, listen(), client, statusz.Config{})
	b := newTab(e)
	b.visit(s.URL)
	b.shows("locks", "invoices", "billing-1")
	s.close()
	b.until("the page is stale", `document.body.classList.contains('stale') && /^Out of date. There is no connection .* since [0-9-]+ [0-9:]+ UTC\.$/.test(document.getElementById('state').textContent)`)
	b.shows("locks", "invoices", "billing-1")
	hold(e, e.Client("billing-2"), "prices")

	refused := make(chan struct{})
	refuse := sync.OnceFunc(func() { close(refused) })
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		refuse()
	}))
	proxy.Listener.Close()
	proxy.Listener = listen()
	proxy.Start()
	e.Cleanup(proxy.Close)
	<-refused
	proxy.Close()

	serveAt(e, listen(), client, statusz.Config{})
	b.until("the page is live", `document.getElementById('state').textContent === 'live' && !document.body.classList.contains('stale')`)
	b.shows("locks", "prices", "billing-2")
	if !eval[bool](b, "window.mark === true") {
		e.Error("the page was loaded again")
	}
}

// While Redis does not answer or refuses, the page says so and keeps what it shows.
func TestSaysWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	hold(e, e.Client("billing-1"), "invoices")
	opt, network := e.Link()
	as := e.As("page", "~*", "&*", "+@all")
	opt.Username, opt.Password = as.Username, as.Password
	b := newTab(e)
	b.visit(serveAs(e, e.ClientWith(opt, lockcore.Config{}), statusz.Config{}).URL)
	rule := func(rule string) func() {
		return func() { testenv.Must(e, e.Raw.ACLSetUser(e.Context(), "page", rule).Err()) }
	}
	for _, c := range []struct {
		begin, end func()
		said       string
	}{
		{func() { network.Partition() }, network.Heal, "Redis has not answered"},
		{rule("-@all"), rule("+@all"), "Redis refuses requests. Not read: the list of elections"},
	} {
		b.until("the page is live", `document.getElementById('state').textContent === 'live'`)
		b.shows("locks", "invoices", "billing-1")
		c.begin()
		b.until("the page says since when", `/^Out of date since [0-9-]+ [0-9:]+ UTC\. /.test(document.getElementById('state').textContent) && document.getElementById('state').textContent.includes(%s)`, c.said)
		c.end()
	}
	b.until("the page is live", `document.getElementById('state').textContent === 'live'`)
}
