package chaos

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// A proxy forwards the connections of one worker to one server. What it holds back is delivered later, even if the
// client has closed its connection meanwhile, as a network may do.
type proxy struct {
	target   string
	listener net.Listener
	mu       sync.Mutex
	changed  *sync.Cond
	state    weather
	links    []*link
}

// A weather is what happens to all connections of a proxy.
type weather struct {
	holdRequests, holdReplies bool
	delay                     time.Duration // half of it, up to all of it
	split                     bool          // one byte at a time
	refuse                    bool          // new connections
}

// A link is a connection.
type link struct {
	client, server *net.TCPConn
	stuck          bool // nothing passes
	swallow        bool // the next reply is lost, and the connection with it
	repeat         bool // the next reply is sent twice, as if it answered the next request, too
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	l := testenv.Call(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	p := &proxy{target: target, listener: l}
	p.changed = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		l.Close()
		p.set(weather{refuse: true})
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c.(*net.TCPConn))
		}
	}()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) serve(client *net.TCPConn) {
	defer client.Close()
	p.mu.Lock()
	refuse, target := p.state.refuse, p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil || refuse {
		_ = client.SetLinger(0)
		return
	}
	defer server.Close()
	x := &link{client: client, server: server.(*net.TCPConn)}
	p.mu.Lock()
	p.links = append(p.links, x)
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(x, x.client, x.server, false) })
	both.Go(func() { p.pump(x, x.server, x.client, true) })
	both.Wait()
	p.mu.Lock()
	p.links = slices.DeleteFunc(p.links, func(l *link) bool { return l == x })
	p.mu.Unlock()
}

// pump forwards one direction.
func (p *proxy) pump(x *link, from, to *net.TCPConn, replies bool) {
	defer func() { _ = to.CloseWrite() }() // it may be closed
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for x.stuck || replies && p.state.holdReplies || !replies && p.state.holdRequests {
			p.changed.Wait()
		}
		now, swallow := p.state, replies && x.swallow
		if replies && x.repeat {
			x.repeat, n = false, copy(buffer[n:], buffer[:n])+n
		}
		p.mu.Unlock()
		if swallow {
			p.mu.Lock()
			x.reset()
			p.mu.Unlock()
			return
		}
		if now.delay > 0 {
			time.Sleep(now.delay/2 + rand.N(now.delay/2+1))
		}
		size := max(n, 1)
		if now.split {
			size = 1
		}
		for bytes := range slices.Chunk(buffer[:n], size) {
			if _, failed := to.Write(bytes); failed != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) set(w weather) {
	p.mu.Lock()
	p.state = w
	p.mu.Unlock()
	p.each(func(x *link) {
		if w.refuse {
			x.reset()
		}
	})
}

// move ends all connections. The next ones go to another server.
func (p *proxy) move(target string) {
	p.mu.Lock()
	p.target = target
	p.mu.Unlock()
	p.each((*link).reset)
}

// each changes all present connections.
func (p *proxy) each(change func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.links {
		change(x)
	}
	p.changed.Broadcast()
}

func (x *link) reset() {
	x.stuck = false
	_ = x.client.SetLinger(0)
	_ = x.server.SetLinger(0)
	x.client.Close()
	x.server.Close()
}
