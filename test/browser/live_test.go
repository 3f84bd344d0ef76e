package browser_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/statusz"
)

// When the server of the page stops, the page says so. When the server returns, the page recovers
// without a reload, also if a proxy answers first.
func TestSaysWhenItIsStale(t *testing.T) {
	t.Parallel()
	e := testenv.OnServer(t)
	client := e.Client("page")
	e.Hold(e.Client("billing-1"), "invoices")
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(servers.Port(e)))
	listen := func() net.Listener {
		e.Helper()
		return testenv.Call(new(net.ListenConfig).Listen(e.Context(), "tcp", addr)).Must(e)
	}
	s := serveAt(e, listen(), client, statusz.Config{})
	b := newTab(e)
	b.visit(s.URL)
	b.shows("locks", "invoices", "billing-1")
	s.close()
	b.until("the page is stale", `document.body.classList.contains('stale') && /^Out of date. There is no connection .* since [0-9-]+T[0-9:]+Z\.$/.test(document.getElementById('state').textContent)`)
	b.shows("locks", "invoices", "billing-1")
	e.Hold(e.Client("billing-2"), "prices")

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
	e.Hold(e.Client("billing-1"), "invoices")
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
		b.until("the page says since when", `/^Out of date since [0-9-]+T[0-9:]+Z\. /.test(document.getElementById('state').textContent) && document.getElementById('state').textContent.includes(%s)`, c.said)
		c.end()
	}
	b.until("the page is live", `document.getElementById('state').textContent === 'live'`)
}
