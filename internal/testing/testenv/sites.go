package testenv

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// A site is the servers of one Client in a bubble, and the networks between them.
type site struct {
	*Env
	network network
	over    chan struct{} // closed when the dials of the network may end
	nodes   []*node

	via       Via   // optional, makes all connections
	avoidable bool  // all names may be on servers without the fault
	cut       *node // optional node whose connections break in any case

	mu     sync.Mutex
	broken bool
	met    bool // a dial has met the fault
}

// A node is a server, and the network between it and the Client.
type node struct {
	*lockcoretest.Redis
	faults  *lockcoretest.Faults
	options *redis.Options // of a client without the network's fault
	addr    string
	spared  bool // the fault does not affect it
	dialing int
	most    int // the greatest dialing
}

// A topology adds the nodes of a site and returns options for a Client of them.
type topology struct {
	name string
	add  func(s *site) client
}

// A client is a Client's connection to a site.
type client struct {
	open func(cfg lockcore.Config) (*lockcore.Client, error)
	end  func() // closes the clients of go-redis
}

// topologies are the topologies with all functions.
func topologies() []topology {
	return []topology{
		{"one server", func(s *site) client { return clientOf(redis.NewClient(s.options(s.node(s.Bubble)))) }},
		{"Sentinel and primary", func(s *site) client { return s.sentinel(true, true) }},
		{"Sentinel", func(s *site) client { return s.sentinel(true, false) }},
		{"primary behind a Sentinel", func(s *site) client { return s.sentinel(false, true) }},
		{"cluster", func(s *site) client { return s.cluster(0, 1) }},
		{"first primary of a cluster", func(s *site) client { return s.cluster(0) }},
		{"second primary of a cluster", func(s *site) client { return s.cluster(1) }},
	}
}

// quorums are quorums of three servers, of which some have the fault.
func quorums() []topology {
	return []topology{
		{"quorum", func(s *site) client { return s.quorum(3) }},
		{"two servers of a quorum", func(s *site) client { return s.quorum(2) }},
		{"one server of a quorum", func(s *site) client { return s.quorum(1) }},
	}
}

// A Via makes a connection with the help of dial.
type Via = func(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error)

// Topology makes the servers of a topology: "one server", "Sentinel and primary", "cluster" or "quorum".
// open returns a Client of them, and end closes the clients of go-redis.
func (e *Env) Topology(name string, via Via) (open func(cfg lockcore.Config) (*lockcore.Client, error), end func()) {
	s := &site{Env: e, over: make(chan struct{}), via: via}
	for _, where := range append(topologies(), quorums()...) {
		if where.name == name {
			c := where.add(s)
			return c.open, c.end
		}
	}
	panic("there is no topology " + name)
}

func clientOf(rdb redis.UniversalClient) client {
	return client{
		func(cfg lockcore.Config) (*lockcore.Client, error) { return lockcore.New(rdb, quiet(cfg)) },
		func() { _ = rdb.Close() },
	}
}

func (s *site) node(r *lockcoretest.Redis) *node {
	n := &node{Redis: r, faults: lockcoretest.NewFaults(), addr: fmt.Sprintf("127.0.0.1:%d", len(s.nodes)+1)}
	n.options = r.OptionsVia(n.faults)
	s.nodes = append(s.nodes, n)
	return n
}

// options returns options for a client of a node, or of all of them: the Dialer finds the
// node of an address.
func (s *site) options(n *node) *redis.Options {
	opt := n.OptionsVia(n.faults)
	opt.Addr = n.addr
	opt.DialTimeout = 30 * time.Second // no call may depend on it
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n := s.nodes[slices.IndexFunc(s.nodes, func(n *node) bool { return n.addr == addr })]
		s.mu.Lock()
		n.dialing++
		n.most = max(n.most, n.dialing)
		fails := s.broken && !n.spared && s.network.dial != nil
		s.met = s.met || fails
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			n.dialing--
		}()
		dial := func() (net.Conn, error) { return n.options.Dialer(ctx, network, addr) }
		switch {
		case fails:
			return s.network.dial(ctx, s.over)
		case s.via != nil:
			return s.via(ctx, dial)
		}
		return dial()
	}
	return opt
}

func (s *site) breaks() {
	s.mu.Lock()
	s.broken = true
	s.mu.Unlock()
	for _, n := range s.nodes {
		switch {
		case n.spared && n == s.cut:
			n.faults.Cut()
		case n.spared:
		case s.network.begin == nil:
			n.faults.Cut()
		default:
			s.network.begin(s.Env, n)
		}
	}
}

// heals lets dials that hang return.
func (s *site) heals() {
	close(s.over)
	for _, n := range s.nodes {
		n.Unhang()
	}
}

// sentinel is a primary that a Sentinel watches. The Sentinel, the primary or both have the fault.
// The connections to the primary break in any case; if it has no fault, the next ones could be made.
func (s *site) sentinel(ofSentinel, ofPrimary bool) client {
	primary := s.node(s.Bubble)
	sentinel := s.node(lockcoretest.NewRedis(s.T))
	sentinel.spared, primary.spared = !ofSentinel, !ofPrimary
	host, port, _ := strings.Cut(primary.addr, ":")
	Must(s.Env, sentinel.Server().Server().Register("SENTINEL", func(p *server.Peer, _ string, args []string) {
		if strings.EqualFold(args[0], "master") {
			p.WriteStrings([]string{"config-epoch", "1"})
			return
		}
		p.WriteStrings([]string{host, port})
	}))
	s.cut = primary
	opt := s.options(primary)
	return client{
		func(cfg lockcore.Config) (*lockcore.Client, error) {
			return lockcore.NewFromOptions(&redis.UniversalOptions{
				Addrs: []string{sentinel.addr}, MasterName: "noon", Dialer: opt.Dialer, DialTimeout: opt.DialTimeout,
			}, quiet(cfg))
		},
		func() {},
	}
}

// cluster is a cluster of two primaries. faulty has the indexes of the primaries with the fault.
func (s *site) cluster(faulty ...int) client {
	all := []*node{s.node(s.Bubble), s.node(lockcoretest.NewRedis(s.T))}
	s.avoidable = len(faulty) < len(all)
	for i, n := range all {
		n.spared = !slices.Contains(faulty, i)
		answersAsNode(s.Env, n.Server().Server(), all)
	}
	opt := s.options(all[0])
	return clientOf(redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{all[0].addr, all[1].addr}, Dialer: opt.Dialer, DialTimeout: opt.DialTimeout,
	}))
}

// answersAsNode makes a miniredis a node of a cluster, which has half of the slots. It accepts
// the names of the other half, too.
func answersAsNode(e *Env, srv *server.Server, all []*node) {
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "CLUSTER" {
			return false
		}
		if strings.EqualFold(args[0], "info") {
			c.WriteBulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
			return true
		}
		c.WriteLen(len(all)) // of CLUSTER SLOTS
		for i, n := range all {
			_, port, _ := net.SplitHostPort(n.addr)
			number, _ := strconv.Atoi(port)
			c.WriteLen(3)
			c.WriteInt(i * 16384 / len(all))
			c.WriteInt((i+1)*16384/len(all) - 1)
			c.WriteLen(2)
			c.WriteBulk("127.0.0.1")
			c.WriteInt(number)
		}
		return true
	})
	for sharded, plain := range map[string]string{"SPUBLISH": "PUBLISH", "SSUBSCRIBE": "SUBSCRIBE", "SUNSUBSCRIBE": "UNSUBSCRIBE"} {
		Must(e, srv.Register(sharded, func(c *server.Peer, _ string, args []string) {
			srv.Dispatch(c, append([]string{plain}, args...))
		}))
	}
}

// quorum is a quorum of three servers that grant locks. Some of them have the fault.
func (s *site) quorum(faulty int) client {
	members := []*node{s.node(s.Bubble), s.node(lockcoretest.NewRedis(s.T)), s.node(lockcoretest.NewRedis(s.T))}
	var all []redis.UniversalClient
	for i, n := range members {
		n.spared = i >= faulty
		all = append(all, redis.NewClient(s.options(n)))
	}
	c := client{
		func(cfg lockcore.Config) (*lockcore.Client, error) {
			return lockcore.NewQuorum(all, lockcore.QuorumConfig{Config: quiet(cfg)})
		},
		func() {
			for _, rdb := range all {
				_ = rdb.Close()
			}
		},
	}
	first, err := c.open(lockcore.Config{})
	Must(s.Env, err)
	m, err := first.Mutex("first", TTL(time.Second))
	Must(s.Env, err)
	_, err = m.Lock(s.Context())
	Must(s.Env, err)
	Must(s.Env, first.Close(s.Context()))
	return c
}
