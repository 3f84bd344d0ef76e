// Package cluster makes one Wire of the servers of a Redis Cluster. It knows which server has a name, and follows names
// that move. Failures of one server are those of package wire.
//
// It guarantees that a request is applied at most once, whatever moves, and that an answer of a server that has lost the
// name meanwhile does not count. It does not guarantee that a request succeeds while its slot moves: scripts are then
// refused, and renewals follow their keys.
//
//	a slot moves                  its names are at another server, and Config.Relocated is called
//	a request, a dial or a        the table of slots is refreshed
//	subscription fails
//	a server refuses a slot       its address may lead to another machine, so its connections are replaced, after
//	that it has for others        pauses that grow
package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/internal/wire/conn"
)

// A Cluster is the Wire of a Redis Cluster. Each primary is a server with its own connections,
// renewals and subscription. So a primary that does not answer delays only its own names.
//
// The slot table contains the server of each name. docs/ARCHITECTURE.md, "In a cluster", says when it changes. A
// refresh without an answer leaves it as it is, and the next failure causes another one.
type Cluster struct {
	cfg   wire.Config
	opt   redis.Options // of each node, without an address
	seeds []string

	ctx  context.Context // of the goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	namesMu sync.Mutex // guards the uses of names; no holder blocks
	uses    map[*nameUse]struct{}

	surveyors map[string]*conn.Line // of the last survey, by address; only a refresh uses them

	mu         sync.Mutex
	closed     bool
	nodes      map[string]*wire.Server // the primaries with slots, by address
	replicas   map[string]string       // see view
	owners     [slots]*wire.Server
	denials    map[denial]time.Duration
	dirty      bool         // a slot has moved since the last refresh
	relocated  map[int]bool // slots that have moved since the last call of Config.Relocated
	refreshing bool
	again      bool // a refresh was wanted during the last one
	pause      retry.Backoff
	refreshed  chan struct{} // closed when the present or next refresh ends
	failure    error         // of the last refresh, nil if it succeeded
}

const (
	// maxRedirects limits the servers that one request is sent to.
	maxRedirects = 5

	// maxAsked limits the nodes that a refresh asks.
	maxAsked = 8

	// viewWithin is how long a refresh may wait for a connection to a node and its answer. viewsWithin is how long the others may take after the first.
	viewWithin  = 6 * time.Second
	viewsWithin = 100 * time.Millisecond
)

// ErrFormerServer says that an answer was ignored, because the name has moved.
var ErrFormerServer = errors.New("lockcore: the name has moved to another server")

var errNoServer = errors.New("lockcore: the server of the name is not known")

// New returns the Wire of the cluster of these seeds, addresses of some nodes. The options are those of each node. Each
// channel of the Config has the hash tag of its name. Failed is not called for the answer MOVED.
func New(opt redis.Options, seeds []string, cfg wire.Config) *Cluster {
	c := &Cluster{
		cfg: cfg, opt: opt, seeds: seeds,
		nodes: map[string]*wire.Server{}, uses: map[*nameUse]struct{}{},
		denials: map[denial]time.Duration{}, relocated: map[int]bool{},
		pause: retry.Pauses(100*time.Millisecond, time.Second), refreshed: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Send sends a request to the server of the name. After the answer MOVED, it sends the request within the timeout to
// the server that has the name by now, unless nothing has changed.
func (c *Cluster) Send(ctx context.Context, name string, r wire.Request, timeout time.Duration) (any, error) {
	until := time.Now().Add(timeout)
	slot := slotOf(name)
	r = r.InCluster()
	for tries := 1; ; tries++ {
		s, err := c.serverOf(ctx, slot, until)
		if err != nil {
			return nil, err
		}
		replaced := s.Replaced()
		answer, err := s.Send(ctx, name, r, time.Until(until))
		moved := c.owner(slot) != s
		switch {
		case (err == nil || errors.Is(err, wire.ErrNotReplicated)) && moved:
			return nil, errors.Join(wire.ErrUnknown, ErrFormerServer)
		case errors.Is(err, wire.ErrClosed) && moved: // it has no slots any more, and was closed
		case !wire.HasCode(err, "MOVED") || !moved && s.Replaced() == replaced || tries == maxRedirects || !time.Now().Before(until):
			return answer, wire.Redirected(err)
		}
	}
}

// serverOf returns the server of a slot. It waits for a table if there is none.
func (c *Cluster) serverOf(ctx context.Context, slot int, until time.Time) (*wire.Server, error) {
	for tries := 0; ; tries++ {
		c.mu.Lock()
		s, closed, refreshed, failure := c.owners[slot], c.closed, c.refreshed, c.failure
		c.mu.Unlock()
		switch {
		case closed:
			return nil, wire.ErrClosed
		case s != nil:
			return s, nil
		case tries > 0 && failure != nil:
			return nil, failure
		case tries > 0:
			return nil, wire.NotSent(fmt.Errorf("lockcore: no node of the cluster serves slot %d", slot))
		}
		c.refresh()
		bounded, cancel := context.WithDeadline(ctx, until)
		select {
		case <-refreshed:
		case <-bounded.Done():
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, errors.Join(ctx.Err(), failure)
		case !time.Now().Before(until):
			return nil, wire.NotSent(errors.New("lockcore: no node of the cluster has answered in time"))
		}
	}
}

// owner returns the server of a slot, nil if it is not known.
func (c *Cluster) owner(slot int) *wire.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[slot]
}

// Renewals returns the stream of the server of a name.
func (c *Cluster) Renewals(name string) wire.Renewals {
	if s := c.owner(slotOf(name)); s != nil {
		return s.Renewals(name)
	}
	return nowhere{}
}

// Messages returns the messages about a name.
func (c *Cluster) Messages(name string) wire.Messages { return named{c, name} }

// Close ends all connections and goroutines.
func (c *Cluster) Close() {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = map[string]*wire.Server{}
	c.mu.Unlock()
	c.stop()
	for _, s := range nodes {
		c.wg.Go(s.Close)
	}
	c.wg.Wait()
	for _, s := range c.surveyors {
		s.Close()
	}
}

// node returns the server at an address. The caller holds mu, and closed is false.
func (c *Cluster) node(addr string) *wire.Server {
	if s := c.nodes[addr]; s != nil {
		return s
	}
	opt := c.opt
	opt.Addr = addr
	cfg := c.cfg
	var s *wire.Server
	cfg.Failed = func(r wire.Request, err error) {
		c.assess(err)
		c.report()
		if !wire.HasCode(err, "MOVED") {
			c.cfg.Failed(r, err)
		}
	}
	s = wire.NewServer(opt, wire.Node{
		Tag: func() (string, bool) { return c.tag(s) },
		Renewed: func(ctx context.Context, requests []wire.Request, answers []wire.Answer) {
			c.followSlots(ctx, s, requests, answers)
		},
		Refused: func(sent time.Duration, err error) { c.refused(s, sent, err) },
		Failed:  c.refresh,
	}, cfg)
	c.nodes[addr] = s
	return s
}

// tag returns a name of the lowest slot of a server.
func (c *Cluster) tag(s *wire.Server) (string, bool) {
	c.mu.Lock()
	slot := slices.Index(c.owners[:], s)
	c.mu.Unlock()
	if slot < 0 {
		return "", false
	}
	return tagOf(slot), true
}

// assess refreshes the table after a failure. See refused for redirections.
func (c *Cluster) assess(err error) {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case wire.OutcomeOf(err) == wire.Unsent, wire.OutcomeOf(err) == wire.Unknown, wire.HasCode(err, "CLUSTERDOWN", "READONLY", "NOREPLICAS"):
		c.refresh()
	}
}

// followSlots handles the failed renewals of a batch. If a key has already moved to another
// node (ASK), it sends the renewal there. For the others it updates the table.
func (c *Cluster) followSlots(ctx context.Context, from *wire.Server, requests []wire.Request, answers []wire.Answer) {
	targets := map[string][]int{}
	for i, a := range answers {
		c.assess(a.Err)
		answers[i].Err = wire.Redirected(a.Err)
		if !wire.HasCode(a.Err, "ASK") || requests[i].Asking {
			continue
		}
		if _, addr, err := redirection(from.Address(), a.Err); err == nil && addr != from.Address() {
			targets[addr] = append(targets[addr], i)
		}
	}
	c.report()
	for addr, which := range targets {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return
		}
		s := c.node(addr)
		c.mu.Unlock()
		var asking []wire.Request
		for _, i := range which {
			r := requests[i].WithSource()
			r.Asking = true
			asking = append(asking, r)
		}
		for n, a := range s.Renewals("").Send(ctx, asking) {
			a.Err = wire.Redirected(a.Err)
			answers[which[n]] = a
		}
	}
}

// nowhere is the stream of names whose server is not known.
type nowhere struct{}

func (nowhere) Send(_ context.Context, requests []wire.Request) []wire.Answer {
	answers := make([]wire.Answer, len(requests))
	for i := range answers {
		answers[i].Err = wire.NotSent(errNoServer)
	}
	return answers
}
