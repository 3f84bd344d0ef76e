package wire

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/retry"
)

// A cluster is the Wire of a Redis Cluster. Each primary is a server with its own connections,
// renewals and subscription. So a primary that does not answer delays only its own names.
//
// The slot table contains the server of each name:
//
//	no table ──► refreshing ──► a table
//	    a request is answered MOVED: its slot changes at once, and the table is refreshed
//	    a request, a dial or a subscription fails, or a node cannot serve: the table is refreshed
//
// A refresh asks several nodes and takes the view with the greatest epoch. A node that is
// cut off has an old view. A refresh without an answer leaves the table as it is, and the
// next failure causes another one.
//
// While a slot moves, the nodes refuse its requests, see Request.inCluster. They execute
// renewals, which neither create nor delete a key. A renewal follows its key (ASK), so
// leases outlive a slow move.
//
// If the name has moved to another server before the answer arrives, the answer is ignored.
// After a failover, it may come from the former primary.
type cluster struct {
	cfg   Config
	opt   redis.Options // of each node, without an address
	seeds []string

	ctx  context.Context // of the goroutines
	stop context.CancelFunc
	wg   sync.WaitGroup

	namesMu    sync.Mutex // guards the uses of names; no holder blocks
	uses       map[*nameUse]struct{}
	subscribed map[string]*nameSubscription

	surveyors map[string]*line // by address; only a refresh uses them

	mu         sync.Mutex
	closed     bool
	nodes      map[string]*server // the primaries with slots, by address
	replicas   map[string]string  // see view
	owners     [slots]*server
	dirty      bool         // a slot has moved since the last refresh
	relocated  map[int]bool // slots that have moved since the last call of Config.Relocated; true: their keys were copied
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

// ErrCopied says that a renewal failed, and that its key was copied to another server, whose
// replicas may lack it.
var ErrCopied = errors.New("lockcore: the name is moving to another server")

func newCluster(opt redis.Options, seeds []string, cfg Config) *cluster {
	c := &cluster{
		cfg: cfg, opt: opt, seeds: seeds,
		nodes: map[string]*server{}, uses: map[*nameUse]struct{}{}, subscribed: map[string]*nameSubscription{},
		surveyors: map[string]*line{},
		pause:     retry.Pauses(100*time.Millisecond, time.Second), refreshed: make(chan struct{}),
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Send sends a request to the server of the name. The answer MOVED names another server,
// which gets the request if it arrives within the timeout.
func (c *cluster) Send(ctx context.Context, name string, r Request, timeout time.Duration) (any, error) {
	until := time.Now().Add(timeout)
	slot := slotOf(name)
	r = r.inCluster()
	for tries := 1; ; tries++ {
		s, err := c.serverOf(ctx, slot, until)
		if err != nil {
			return nil, err
		}
		answer, err := s.Send(ctx, name, r, time.Until(until))
		switch {
		case (err == nil || errors.Is(err, ErrNotReplicated)) && c.owner(slot) != s:
			return nil, errors.Join(ErrUnknown, ErrFormerServer)
		case errors.Is(err, ErrClosed) && c.owner(slot) != s: // it has no slots any more, and was closed
		case !HasCode(err, "MOVED") || tries == maxRedirects || !time.Now().Before(until):
			return answer, redirected(err)
		}
	}
}

// redirected marks an error that is a redirection. In a cluster, a redirection ends without
// an operator. Elsewhere, it is a wrong configuration.
func redirected(err error) error {
	if HasCode(err, "MOVED", "ASK") {
		return &movedError{err}
	}
	return err
}

// serverOf returns the server of a slot. It waits for a table if there is none.
func (c *cluster) serverOf(ctx context.Context, slot int, until time.Time) (*server, error) {
	for tries := 0; ; tries++ {
		c.mu.Lock()
		s, closed, refreshed, failure := c.owners[slot], c.closed, c.refreshed, c.failure
		c.mu.Unlock()
		switch {
		case closed:
			return nil, ErrClosed
		case s != nil:
			return s, nil
		case tries > 0 && failure != nil:
			return nil, failure
		case tries > 0:
			return nil, &unsentError{fmt.Errorf("lockcore: no node of the cluster serves slot %d", slot)}
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
			return nil, &unsentError{errors.New("lockcore: no node of the cluster has answered in time")}
		}
	}
}

// owner returns the server of a slot, nil if it is not known.
func (c *cluster) owner(slot int) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owners[slot]
}

func (c *cluster) Renewals(name string) Renewals {
	if s := c.owner(slotOf(name)); s != nil {
		return s.Renewals(name)
	}
	return nowhere{}
}

func (c *cluster) Messages(name string) Messages { return named{c, name} }

func (c *cluster) Close() {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = map[string]*server{}
	c.mu.Unlock()
	c.stop()
	for _, s := range nodes {
		c.wg.Go(s.Close)
	}
	c.wg.Wait()
	for _, s := range c.surveyors {
		s.close()
	}
}

// node returns the server at an address. The caller holds mu, and closed is false.
func (c *cluster) node(addr string) *server {
	if s := c.nodes[addr]; s != nil {
		return s
	}
	opt := c.opt
	opt.Addr = addr
	cfg := c.cfg
	var s *server
	cfg.Failed = func(r Request, err error) {
		c.assess(s, err)
		c.report()
		if !HasCode(err, "MOVED") {
			c.cfg.Failed(r, err)
		}
	}
	s = newServer(opt, cfg)
	s.followSlots = func(ctx context.Context, requests []Request, answers []Answer) {
		c.followSlots(ctx, s, requests, answers)
	}
	s.messages.failed = c.refresh
	if s.history != nil {
		s.history.tag = func() (string, bool) { return c.tag(s) }
	}
	c.nodes[addr] = s
	return s
}

// tag returns a name of the lowest slot of a server.
func (c *cluster) tag(s *server) (string, bool) {
	c.mu.Lock()
	slot := slices.Index(c.owners[:], s)
	c.mu.Unlock()
	if slot < 0 {
		return "", false
	}
	return tagOf(slot), true
}

// assess changes or refreshes the table after a failure.
func (c *cluster) assess(s *server, err error) {
	switch {
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case HasCode(err, "MOVED"):
		c.moved(s, err)
	case OutcomeOf(err) == Unsent, OutcomeOf(err) == Unknown, HasCode(err, "CLUSTERDOWN", "READONLY", "NOREPLICAS"):
		c.refresh()
	}
}

// moved changes the table as a MOVED answer says.
func (c *cluster) moved(from *server, err error) {
	fields := strings.Fields(plainRefusal(err).Error()) // MOVED slot host:port
	if len(fields) == 3 {
		slot, odd := strconv.Atoi(fields[1])
		addr, odd2 := redirection(from.addr, fields[2])
		c.mu.Lock()
		if odd == nil && odd2 == nil && slot >= 0 && slot < slots && !c.closed {
			c.change(slot, c.node(addr))
		}
		c.mu.Unlock()
	}
	c.refresh()
}

// followSlots handles the failed renewals of a batch. If a key has already moved to another
// node (ASK), it sends the renewal there. For the others it updates the table.
func (c *cluster) followSlots(ctx context.Context, from *server, requests []Request, answers []Answer) {
	targets := map[string][]int{}
	for i, a := range answers {
		if !HasCode(a.Err, "ASK") {
			c.assess(from, a.Err)
			answers[i].Err = redirected(a.Err)
			continue
		}
		fields := strings.Fields(plainRefusal(a.Err).Error()) // ASK slot host:port
		if addr, err := redirection(from.addr, fields[len(fields)-1]); err == nil {
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
		var asking []Request
		for _, i := range which {
			r := requests[i].WithSource()
			r.asking = true
			asking = append(asking, r)
		}
		for n, a := range s.renewals.Send(ctx, asking) {
			if a.Err != nil {
				a.Err = fmt.Errorf("%w: %w", ErrCopied, redirected(a.Err))
			}
			answers[which[n]] = a
		}
	}
}

// refresh starts a refresh of the slot table. During a refresh and the pause after it, the
// next one starts after that pause.
func (c *cluster) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
	case c.refreshing:
		c.again = true
	default:
		c.refreshing = true
		c.wg.Go(c.run)
	}
}

func (c *cluster) run() {
	for {
		found, err := c.survey()
		pause := c.install(found, err)
		retry.Sleep(c.ctx, pause, nil)
		c.mu.Lock()
		again := c.again && !c.closed
		c.again, c.refreshing = false, again
		c.mu.Unlock()
		if !again {
			return
		}
	}
}

// survey asks several nodes and returns the newest view.
func (c *cluster) survey() (*view, error) {
	type result struct {
		view *view
		err  error
	}
	ctx, cancel := context.WithCancel(c.ctx)
	asked := c.someNodes()
	c.prepareSurvey(asked)
	results := make(chan result, len(asked))
	var all sync.WaitGroup
	for _, addr := range asked {
		all.Go(func() {
			v, err := c.view(ctx, addr)
			results <- result{v, err}
		})
	}
	defer all.Wait()
	defer cancel()
	var newest *view
	var failure error // a permanent one, if there is one
	var late <-chan time.Time
	for range asked {
		select {
		case r := <-results:
			switch {
			case r.err != nil && (failure == nil || IsPermanent(r.err)):
				failure = r.err
			case r.err != nil:
			case r.view.newerThan(newest):
				newest = r.view
			}
			if newest != nil && late == nil {
				late = time.After(viewsWithin)
			}
		case <-late:
			return newest, nil
		}
	}
	if newest == nil {
		return nil, failure
	}
	return newest, nil
}

// prepareSurvey makes a connection for each node to ask. Those of former surveys are used again,
// as their dials may not have returned: a node that cannot be reached costs a few dials, however
// long that lasts.
func (c *cluster) prepareSurvey(asked []string) {
	for addr, s := range c.surveyors {
		if !slices.Contains(asked, addr) && !c.knows(addr) {
			s.close()
			delete(c.surveyors, addr)
		}
	}
	for _, addr := range asked {
		if c.surveyors[addr] == nil {
			opt := c.opt
			opt.Addr = addr
			c.surveyors[addr] = newLine(opt, clusterNode, nil, c.cfg, time.Now())
		}
	}
}

// view asks one node, on a connection of its own, which does not stay open. A replica answers,
// too.
func (c *cluster) view(ctx context.Context, addr string) (*view, error) {
	own := c.surveyors[addr]
	answers := own.all(ctx, []Request{askSlots, askInfo}, viewWithin)
	own.abandon(own.now())
	return readView(addr, answers[0], answers[1])
}

// someNodes returns addresses of nodes to ask, in random order: those that the user gave, which are
// right even if all addresses have changed, and then of primaries and their replicas.
func (c *cluster) someNodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.addresses()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rank := func(addr string) int {
		if slices.Contains(c.seeds, addr) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all[:min(len(all), maxAsked)]
}

// addresses returns those of all known nodes, sorted. The caller holds mu.
func (c *cluster) addresses() []string {
	all := slices.Concat(c.seeds, slices.Collect(maps.Keys(c.replicas)), slices.Collect(maps.Keys(c.nodes)))
	slices.Sort(all)
	return slices.Compact(all)
}

func (c *cluster) knows(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.addresses(), addr)
}

// install makes a view the table. It returns the pause before the next refresh.
func (c *cluster) install(found *view, err error) (pause time.Duration) {
	c.mu.Lock()
	c.failure = err
	var former []*server
	if err == nil && !c.closed {
		c.adopt(found)
		former = c.discard()
	}
	changed := c.dirty
	c.dirty = false
	present := slices.Collect(maps.Values(c.nodes))
	if changed {
		c.pause.Reset()
	}
	pause = c.pause.NextBackOff()
	close(c.refreshed)
	c.refreshed = make(chan struct{})
	c.mu.Unlock()
	c.report()
	if changed {
		c.reattach()
		c.cfg.Missed()
	}
	for _, s := range present {
		s.messages.subscribeAgain()
	}
	for _, s := range former {
		s.Close()
	}
	return pause
}

// adopt changes the table. A slot that no node serves keeps its server. The caller holds mu.
func (c *cluster) adopt(v *view) {
	for _, r := range v.primaries {
		s := c.node(r.addr)
		for slot := r.first; slot <= r.last; slot++ {
			c.change(slot, s)
		}
	}
	c.replicas = v.replicas
}

// change makes s the server of a slot. The caller holds mu.
func (c *cluster) change(slot int, s *server) {
	former := c.owners[slot]
	if former == s {
		return
	}
	c.owners[slot], c.dirty = s, true
	if former != nil {
		if c.relocated == nil {
			c.relocated = map[int]bool{}
		}
		c.relocated[slot] = c.relocated[slot] || c.replicas[s.addr] != former.addr
	}
}

// report calls Config.Relocated if slots have moved.
func (c *cluster) report() {
	c.mu.Lock()
	changed := c.relocated
	c.relocated = nil // changed is read without mu
	c.mu.Unlock()
	if len(changed) > 0 {
		c.cfg.Relocated(func(name string) (moved, copied bool) {
			copied, moved = changed[slotOf(name)]
			return moved, copied
		})
	}
}

// discard removes the servers without slots and returns them. The caller holds mu.
func (c *cluster) discard() (former []*server) {
	used := map[*server]bool{}
	for _, s := range c.owners {
		used[s] = true
	}
	for addr, s := range c.nodes {
		if !used[s] {
			delete(c.nodes, addr)
			former = append(former, s)
		}
	}
	return former
}

// inCluster returns the request for a cluster. Its script has one more key, which never
// exists. While a slot moves, some of its keys are at another node, and a node refuses a
// script of several keys if one of them is missing (TRYAGAIN, or ASK and then TRYAGAIN).
// So no script runs on a slot that moves. Otherwise it could see a part of its keys, or
// fail half-way when it writes a key that it has deleted before.
func (r Request) inCluster() Request {
	if r.script == nil {
		return r
	}
	r = r.withShardedMessages()
	n := r.args[2].(int)
	r.args[2] = n + 1
	r.args = slices.Insert(r.args, 3+n, any(textOf(r.args[3])+neverKey))
	return r
}

// withShardedMessages returns the request with the script for a cluster.
func (r Request) withShardedMessages() Request {
	if r.script == nil {
		return r
	}
	r.args = slices.Clone(r.args)
	r.args[1] = r.script.sharded.sha
	r.script = r.script.sharded
	return r
}

// neverKey is the end of the key that never exists.
const neverKey = ":never"
