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
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
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

// A denial is a server's answer that it does not serve a slot. Its value is when the request was sent, as in
// wire.Node.Refused. It is kept until the slot has another server, or the connections of that time are replaced.
type denial struct {
	by   *wire.Server
	slot int // everySlot: the server is cut off from the cluster
}

const everySlot = -1

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

// refused follows a redirection, and records denials. A server that denies a slot which another answer gives it may be
// a former one, that still has the connections to its address. That slot only moves there with new connections.
func (c *Cluster) refused(from *wire.Server, sent time.Duration, err error) {
	moved, asks := wire.HasCode(err, "MOVED"), wire.HasCode(err, "ASK")
	if wire.HasCode(err, "CLUSTERDOWN") {
		c.deny(denial{from, everySlot}, sent)
	}
	if !moved && !asks {
		return
	}
	slot, addr, odd := redirection(from.Address(), err)
	switch {
	case asks && odd == nil && addr == from.Address():
		from.Replace(sent)
	case asks:
	case odd != nil:
		c.refresh()
	default:
		c.deny(denial{from, slot}, sent)
		if c.mayServe(addr, slot) {
			c.mu.Lock()
			if !c.closed {
				c.change(slot, c.node(addr))
			}
			c.mu.Unlock()
		}
		c.refresh()
	}
}

func (c *Cluster) deny(d denial, sent time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denials[d] = sent
}

// mayServe reports whether the server at an address may have a slot: it has not denied it on its present connections.
func (c *Cluster) mayServe(addr string, slot int) bool {
	c.mu.Lock()
	s := c.nodes[addr]
	denied, ok := c.denials[denial{s, slot}]
	c.mu.Unlock()
	return !ok || c.replace(s, denied)
}

// replace replaces the connections of a denial, unless it is too early, see wire.Server.Replace.
func (c *Cluster) replace(s *wire.Server, denied time.Duration) bool {
	if !s.Replace(denied) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.denials, func(d denial, _ time.Duration) bool { return d.by == s })
	return true
}

// doubted returns the servers that deny what they have in the table, with the times, and forgets the denials that the
// table confirms. ok: the cluster serves requests. The caller holds mu.
func (c *Cluster) doubted(ok bool) map[*wire.Server]time.Duration {
	doubted := map[*wire.Server]time.Duration{}
	for d, sent := range c.denials {
		owner := d.by
		if d.slot != everySlot {
			owner = c.owners[d.slot]
		}
		_, disputed := c.denials[denial{owner, d.slot}]
		switch {
		case c.nodes[d.by.Address()] != d.by, d.slot == everySlot && !ok, !disputed:
			delete(c.denials, d)
		case owner == d.by:
			doubted[owner] = max(doubted[owner], sent)
		}
	}
	return doubted
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

// refresh starts a refresh of the slot table. During a refresh and the pause after it, the
// next one starts after that pause.
func (c *Cluster) refresh() {
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

func (c *Cluster) run() {
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
func (c *Cluster) survey() (*view, error) {
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
			case r.err != nil && (failure == nil || wire.VerdictOf(r.err).Operator):
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

// prepareSurvey makes a Dialer for each node to ask. A node that was asked last time keeps its own, whose
// dials may not have returned: as long as that lasts, the node costs a few dials.
func (c *Cluster) prepareSurvey(asked []string) {
	former := c.surveyors
	c.surveyors = map[string]*conn.Line{}
	for _, addr := range asked {
		d := former[addr]
		if delete(former, addr); d == nil {
			opt := c.opt
			opt.Addr = addr
			d = conn.NewLine(conn.Options{Redis: opt, Check: checkNode})
		}
		c.surveyors[addr] = d
	}
	for _, s := range former {
		s.Close()
	}
}

// view asks one node, on a connection of its own. A replica answers, too.
func (c *Cluster) view(ctx context.Context, addr string) (*view, error) {
	l := c.surveyors[addr]
	answers := l.All(ctx, []conn.Command{askSlots.Command, askInfo.Command}, viewWithin)
	l.Abandon(l.Now())
	return readView(addr, answers[0], answers[1])
}

// checkNode reads the answer to HELLO of a node, which may be a replica.
func checkNode(hello map[any]any) error {
	major, _, _ := strings.Cut(wire.Text(hello["version"]), ".")
	if n, err := strconv.Atoi(major); err == nil && n < 7 {
		return &conn.Refusal{Text: fmt.Sprintf("ERR the node has version %v; a cluster needs Redis 7.0 or later, for sharded messages", hello["version"])}
	}
	return nil
}

// someNodes returns addresses of nodes to ask, in random order: those that the user gave, which are
// right even if all addresses have changed, and then of primaries and their replicas.
func (c *Cluster) someNodes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Concat(c.seeds, slices.Collect(maps.Keys(c.replicas)), slices.Collect(maps.Keys(c.nodes)))
	slices.Sort(all)
	all = slices.Compact(all)
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

// install makes a view the table. It returns the pause before the next refresh.
func (c *Cluster) install(found *view, err error) (pause time.Duration) {
	c.mu.Lock()
	c.failure = err
	var former []*wire.Server
	var doubted map[*wire.Server]time.Duration
	if err == nil && !c.closed {
		c.adopt(found)
		former = c.discard()
		doubted = c.doubted(found.ok)
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
	for s, denied := range doubted {
		c.replace(s, denied)
	}
	c.report()
	if changed {
		c.reattach()
		c.cfg.Missed("")
	}
	for _, s := range present {
		s.Subscription().SubscribeAgain()
	}
	for _, s := range former {
		s.Close()
	}
	return pause
}

// adopt changes the table. A slot that no node serves keeps its server. The caller holds mu.
func (c *Cluster) adopt(v *view) {
	for _, r := range v.primaries {
		s := c.node(r.addr)
		for slot := r.first; slot <= r.last; slot++ {
			c.change(slot, s)
		}
	}
	c.replicas = v.replicas
}

// change makes s the server of a slot. The caller holds mu.
func (c *Cluster) change(slot int, s *wire.Server) {
	former := c.owners[slot]
	if former == s {
		return
	}
	c.owners[slot], c.dirty = s, true
	if former != nil {
		c.relocated[slot] = true
	}
}

// report calls Config.Relocated if slots have moved.
func (c *Cluster) report() {
	c.mu.Lock()
	changed := c.relocated
	c.relocated = map[int]bool{} // changed is read without mu
	c.mu.Unlock()
	if len(changed) > 0 {
		c.cfg.Relocated(func(name string) bool { return changed[slotOf(name)] })
	}
}

// discard removes the servers without slots and returns them. The caller holds mu.
func (c *Cluster) discard() (former []*wire.Server) {
	used := map[*wire.Server]bool{}
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

// nowhere is the stream of names whose server is not known.
type nowhere struct{}

func (nowhere) Send(_ context.Context, requests []wire.Request) []wire.Answer {
	answers := make([]wire.Answer, len(requests))
	for i := range answers {
		answers[i].Err = wire.NotSent(errNoServer)
	}
	return answers
}
