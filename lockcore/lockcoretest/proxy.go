package lockcoretest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy puts [Faults] in front of a real server. Processes connect to it over TCP on the
// loopback interface. It does not work in a bubble and does not support TLS.
//
// A listening socket cannot refuse or ignore a connection. So a connection that
// [RefuseDial] applies to is accepted and then reset, and one during a partition is
// accepted and gets no answer.
type Proxy struct {
	faults   *Faults
	target   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// NewProxy starts a proxy for the server at target ("host:port"). It is closed at the end
// of the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	p, err := startProxy(target)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

// startProxy starts a proxy, which dials target when a client connects.
func startProxy(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("lockcoretest: target is %q; it must be host:port: %w", target, err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lockcoretest: proxy: %w", err)
	}
	p := &Proxy{faults: NewFaults(), target: target, listener: l}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the address for clients ("127.0.0.1:port").
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Faults returns the network between the clients and the server.
func (p *Proxy) Faults() *Faults { return p.faults }

// Close stops listening, resets every connection and waits until all
// goroutines have ended.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close()
	p.faults.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			// Probably out of file descriptors, which is temporary.
			select {
			case <-time.After(10 * time.Millisecond):
			case <-p.ctx.Done():
			}
			continue
		}
		p.wg.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	if p.faults.admit(p.ctx) != nil {
		reset(client)
		return
	}
	var d net.Dialer
	server, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	// It fails only after Close, and then has closed both connections.
	_ = p.faults.start(client, server)
}
