package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/cluster"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A pair is a cluster of two nodes in a bubble, and the Wire under test. "orders" is in slot 105 of the first node. The
// address of that node moves to another machine, which has the data. Earlier connections lead to the old machine.
type pair struct {
	wire.Wire
	one   wire.Request // a script
	nodes map[string]*lockcoretest.Redis

	mu      sync.Mutex
	says    map[string]string // refusals of requests after the move, by address
	begin   int               // first slot of the first node
	always  bool              // the new machine refuses requests, too
	moved   bool
	old     map[*server.Peer]bool
	ears    map[string]*server.Peer // the last subscriber of each channel
	refused int                     // requests
	dials   int                     // since the move
}

const first, second = "10.0.0.1:1", "10.0.0.2:2"

// former has the refusals of the old machine, and of the other node if it has the slot neither.
var former = map[string]map[string]string{
	"MOVED to its own address": {first: "MOVED 105 " + first},
	"MOVED to its own port":    {first: "MOVED 105 :1"},
	"MOVED to an unknown host": {first: "MOVED 105 ?:1"},
	"ASK to its own address":   {first: "ASK 105 " + first},
	"each names the other":     {first: "MOVED 105 " + second, second: "MOVED 105 " + first},
	"MOVED to nobody":          {first: "MOVED 105 10.0.0.9:9"},
	"cut off":                  {first: "CLUSTERDOWN The cluster is down"},
}

// inPair runs a test in a bubble. Each connection of the Wire is used before.
func inPair(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		loader := wire.NewLoader(fstest.MapFS{"lua/one.lua": {Data: []byte("return 1\n")}})
		p := &pair{
			one:   loader.Script("one").Call(wire.Keys("{orders}:key")),
			nodes: map[string]*lockcoretest.Redis{first: lockcoretest.NewRedis(t), second: lockcoretest.NewRedis(t)},
			old:   map[*server.Peer]bool{}, ears: map[string]*server.Peer{},
		}
		for addr, r := range p.nodes {
			r.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool { return p.answer(addr, c, cmd, args) })
		}
		p.Wire = connectCluster(t, &redis.Options{Dialer: p.dial}, func(wire.Request, error) {}, first, second)
		defer p.Messages("orders").Start(t.Context())()
		for what, use := range uses {
			if err := use(t.Context(), p); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		time.Sleep(5 * time.Second)
		test(t, p)
	})
}

func (p *pair) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	p.mu.Unlock()
	if r := p.nodes[addr]; r != nil {
		return r.Options().Dialer(ctx, network, addr)
	}
	return nil, errors.New("nobody is there")
}

func (p *pair) move(says map[string]string, always bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.says, p.always, p.moved, p.dials = says, always, true, 0
}

// counts returns the numbers of refusals and dials since the move.
func (p *pair) counts() (refused, dials int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused, p.dials
}

// answer is the hook of a node.
func (p *pair) answer(addr string, c *server.Peer, cmd string, args []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.moved {
		p.old[c] = true
	}
	push := func(c *server.Peer, kind string, values ...any) {
		c.Block(func(w *server.Writer) {
			w.WriteLen(1 + len(values))
			w.WriteBulk(kind)
			for _, v := range values {
				w.WriteBulk(fmt.Sprint(v))
			}
			w.Flush()
		})
	}
	switch {
	case cmd == "HELLO":
		return false
	case cmd == "CLUSTER" && strings.EqualFold(args[0], "info"):
		c.WriteBulk(fmt.Sprintf("cluster_state:ok\r\ncluster_current_epoch:%d\r\n", 2+p.begin))
	case cmd == "CLUSTER":
		const middle = 8192
		ranges := [][3]int{{0, p.begin - 1, 2}, {p.begin, middle - 1, 1}, {middle, 16383, 2}} // first and last slot, node
		ranges = slices.DeleteFunc(ranges, func(r [3]int) bool { return r[0] > r[1] })
		c.WriteLen(len(ranges))
		for _, r := range ranges {
			c.WriteLen(3)
			c.WriteInt(r[0])
			c.WriteInt(r[1])
			c.WriteLen(2)
			c.WriteBulk(fmt.Sprint("10.0.0.", r[2]))
			c.WriteInt(r[2])
		}
	case p.says[addr] != "" && (p.always || p.old[c] || addr == second):
		p.refused++
		c.WriteError(p.says[addr])
	case cmd == "SSUBSCRIBE":
		p.ears[args[0]] = c
		push(c, "ssubscribe", args[0], 1)
	case cmd == "SUNSUBSCRIBE":
		p.mu.Unlock()
		time.Sleep(endsWithin)
		p.mu.Lock()
		delete(p.ears, args[0])
		push(c, "sunsubscribe", args[0], 0)
	case cmd == "SPUBLISH":
		if ear := p.ears[args[0]]; ear != nil && p.old[ear] == p.old[c] {
			push(ear, "smessage", args[0], args[1])
		}
		c.WriteInt(1)
	default:
		return false
	}
	return true
}

// hears reports whether messages of the new machine arrive.
func (p *pair) hears() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ear := p.ears["{orders}:to this process"]
	return ear != nil && !p.old[ear]
}

// uses are repeated for half a second, as locks do.
var uses = map[string]func(ctx context.Context, p *pair) error{
	"a call":              func(ctx context.Context, p *pair) error { return p.send(ctx, p.one) },
	"a large answer":      func(ctx context.Context, p *pair) error { return p.send(ctx, p.one.Large()) },
	"a renewal":           func(ctx context.Context, p *pair) error { return p.renew(ctx, 1) },
	"a batch of renewals": func(ctx context.Context, p *pair) error { return p.renew(ctx, 64) },
	"a subscription": func(_ context.Context, p *pair) error {
		confirmed := make(chan struct{}, 10)
		defer p.Messages("orders").Watch(fmt.Sprint("{orders}:", time.Now().UnixNano()), func(string) { confirmed <- struct{}{} })()
		select {
		case <-confirmed:
			return nil
		case <-time.After(within):
			return errors.New("it is not confirmed")
		}
	},
}

const (
	within     = 500 * time.Millisecond
	endsWithin = 10 * time.Millisecond // the end of a subscription
)

func (p *pair) send(ctx context.Context, r wire.Request) error {
	retry := wire.NewRetry(within, within, nil)
	_, err := retry.Send(ctx, p, "orders", r, wire.MayRetry)
	return err
}

func (p *pair) renew(ctx context.Context, n int) error {
	retry := wire.NewRetry(within, within, nil)
	return retry.Do(ctx, wire.MayRetry, func() error {
		ctx, cancel := context.WithTimeout(ctx, retry.Timeout())
		defer cancel()
		for _, a := range p.Renewals("orders").Send(ctx, slices.Repeat([]wire.Request{p.one}, n)) {
			if a.Err != nil {
				return a.Err
			}
		}
		return nil
	})
}

// Whatever meets the old machine first makes new connections, which lead to the new one. Then everything works.
func TestFault138_AnAddressOfTheClusterMoves(t *testing.T) {
	for name, says := range former {
		for what, use := range uses {
			t.Run(name+"/"+what, func(t *testing.T) {
				inPair(t, func(t *testing.T, p *pair) {
					p.move(says, false)
					testenv.Must(t, use(t.Context(), p))
					for other, use := range uses {
						if err := use(t.Context(), p); err != nil {
							t.Errorf("then %s: %v", other, err)
						}
					}
					time.Sleep(2 * time.Second)
					if !p.hears() || !p.Messages("orders").Up() {
						t.Error("the subscription is at the old machine")
					}
					if refused, dials := p.counts(); refused > 500 || dials > 30 {
						t.Errorf("%d refusals and %d dials", refused, dials)
					}
				})
			})
		}
	}
}

// The new machine refuses as the old one did. However many callers there are, connections are made after pauses that
// grow to a second, and each caller pauses, too.
func TestFault138_ANodeAlwaysNamesItself(t *testing.T) {
	for name, says := range former {
		if name == "MOVED to nobody" { // the pauses between dials that are refused are those of the callers
			continue
		}
		t.Run(name, func(t *testing.T) {
			inPair(t, func(t *testing.T, p *pair) {
				const callers, during = 50, time.Minute
				p.move(says, true)
				ctx, cancel := context.WithTimeout(t.Context(), during)
				defer cancel()
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						retry := wire.NewRetry(time.Second, 0, nil)
						if _, err := retry.Send(ctx, p, "orders", p.one, wire.MayRetry); err == nil {
							t.Error("a request was answered")
						}
					})
				}
				all.Wait()
				refused, dials := p.counts()
				// A caller tries twice a second. The proof of a refusal is refused, too.
				if refused > callers*60*5 || dials > 60*20 {
					t.Errorf("%d refusals and %d dials", refused, dials)
				}
				p.move(nil, false)
				time.Sleep(5 * time.Second) // a subscription that fails is made again after up to 3 s
				for what, use := range uses {
					if err := use(t.Context(), p); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
		})
	}
}

// A process is subscribed to a name while it waits for messages about it. If it waits again before the end of the last
// wait is confirmed, that is no sign that the slot has moved.
func TestSubscriptionToAName(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		subscribed := func(when string, want bool) {
			t.Helper()
			p.mu.Lock()
			defer p.mu.Unlock()
			testenv.Equal(t, "whether it is subscribed "+when, p.ears["{a}:to this process"] != nil, want)
		}
		m := p.Messages("a")
		one, two := m.Start(t.Context()), m.Start(t.Context())
		one()
		time.Sleep(within)
		subscribed("for the second waiter", true)
		p.move(nil, false)
		two()
		time.Sleep(endsWithin / 2)
		three := m.Start(t.Context())
		time.Sleep(within)
		subscribed("for the third waiter", true)
		if _, dials := p.counts(); dials > 0 || !m.Up() {
			t.Errorf("%d dials, and messages arrive: %v", dials, m.Up())
		}
		three()
		time.Sleep(within)
		subscribed("without a waiter", false)
	})
}

// A primary is frozen with a request, and its slot gets another primary meanwhile. The former one
// resumes and answers. The answer does not count, as the new primary does not know of it. A node that has no
// slots any more has no connections.
func TestFault18_AnswerOfAFormerPrimaryOfTheSlot(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		set := func() (any, error) {
			return p.Send(t.Context(), "orders", wire.Command("set", "{orders}:key", 1), 3*time.Second)
		}
		// moveSlots moves the slots below one to the second node. A refusal makes the Wire ask for the slots again.
		moveSlots := func(below int) {
			t.Helper()
			p.move(map[string]string{second: "CLUSTERDOWN The cluster is down"}, false)
			p.mu.Lock()
			p.begin = below
			p.mu.Unlock()
			_, err := p.Send(t.Context(), "a", wire.Command("get", "{a}:key"), time.Second)
			if !wire.HasCode(err, "CLUSTERDOWN") {
				t.Errorf("GET: %v", err)
			}
			p.move(nil, false)
			time.Sleep(time.Second)
		}
		p.nodes[first].Hang()
		ended := make(chan error, 1)
		go func() {
			_, err := set()
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		moveSlots(200)
		p.nodes[first].Unhang()
		if err := <-ended; !errors.Is(err, wire.ErrUnknown) || !errors.Is(err, cluster.ErrFormerServer) {
			t.Errorf("the answer of the former primary: %v", err)
		}
		if answer, err := set(); err != nil || answer != "OK" || !p.nodes[second].Server().Exists("{orders}:key") {
			t.Errorf("at the new primary: %v, %v", answer, err)
		}
		moveSlots(8192)
		testenv.Equal(t, "connections to the node without slots", p.nodes[first].Server().CurrentConnectionCount(), 0)
	})
}
