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

// A site is the servers of one Client in a bubble, and its network. The tests of bounds break the network.
type site struct {
	*Env
	fault  netFault
	healed chan struct{} // closed when hanging dials may return
	nodes  []*node

	via       Via   // optional, makes all connections
	unmetOK   bool  // no dial needs to meet the fault, as all names may be on spared servers
	alwaysCut *node // optional node that loses its connections even if it is spared

	mu     sync.Mutex
	broken bool // the fault has begun
	met    bool // a dial has met the fault
}

// A node is a server, and the network between it and the Client.
type node struct {
	*lockcoretest.Redis
	link      *lockcoretest.Faults // network between the node and the Client
	options   *redis.Options       // of a client that the site's fault does not affect
	addr      string
	spared    bool // the fault does not affect the node
	dials     int  // dials that have not returned
	peakDials int  // greatest number of concurrent dials
}

// A topology adds the nodes of a site and returns options for a Client of them.
type topology struct {
	name string
	add  func(s *site) opener
}

// An opener opens Clients of a site.
type opener struct {
	open  func(cfg lockcore.Config) (*lockcore.Client, error)
	close func() // closes the clients of go-redis
}

// topologies returns the topologies on which every function works. A quorum has mutexes and elections only.
func topologies() []topology {
	return []topology{
		{"one server", func(s *site) opener { return openerOf(redis.NewClient(s.options(s.addNode(s.Bubble)))) }},
		{"Sentinel and primary", func(s *site) opener { return s.sentinel(true, true) }},
		{"Sentinel", func(s *site) opener { return s.sentinel(true, false) }},
		{"primary behind a Sentinel", func(s *site) opener { return s.sentinel(false, true) }},
		{"cluster", func(s *site) opener { return s.cluster(0, 1) }},
		{"first primary of a cluster", func(s *site) opener { return s.cluster(0) }},
		{"second primary of a cluster", func(s *site) opener { return s.cluster(1) }},
	}
}

// quorums returns quorums of three servers. The number in the name is how many have the fault; by default, all.
func quorums() []topology {
	return []topology{
		{"quorum", func(s *site) opener { return s.quorum(3) }},
		{"two servers of a quorum", func(s *site) opener { return s.quorum(2) }},
		{"one server of a quorum", func(s *site) opener { return s.quorum(1) }},
	}
}

// A Via makes a connection with the help of dial.
type Via = func(ctx context.Context, dial func() (net.Conn, error)) (net.Conn, error)

// Topology makes the servers of a topology: "one server", "Sentinel and primary", "cluster" or "quorum".
// open returns a Client of them, and end closes the clients of go-redis.
func (e *Env) Topology(name string, via Via) (open func(cfg lockcore.Config) (*lockcore.Client, error), end func()) {
	s := &site{Env: e, healed: make(chan struct{}), via: via}
	for _, t := range append(topologies(), quorums()...) {
		if t.name == name {
			c := t.add(s)
			return c.open, c.close
		}
	}
	panic("there is no topology " + name)
}

func openerOf(rdb redis.UniversalClient) opener {
	return opener{
		func(cfg lockcore.Config) (*lockcore.Client, error) { return lockcore.New(rdb, quiet(cfg)) },
		func() { _ = rdb.Close() },
	}
}

// addNode adds a node for a server. The first one is Env.Bubble, whose keys Env.Raw sees.
func (s *site) addNode(r *lockcoretest.Redis) *node {
	n := &node{Redis: r, link: lockcoretest.NewFaults(), addr: fmt.Sprintf("127.0.0.1:%d", len(s.nodes)+1)}
	n.options = r.OptionsVia(n.link)
	s.nodes = append(s.nodes, n)
	return n
}

// options returns options for a client of one node. A client of all nodes may use their Dialer, too: it finds the
// node of an address.
func (s *site) options(n *node) *redis.Options {
	opt := n.OptionsVia(n.link)
	opt.Addr = n.addr
	opt.DialTimeout = 30 * time.Second // no call may depend on it
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n := s.nodes[slices.IndexFunc(s.nodes, func(n *node) bool { return n.addr == addr })]
		s.mu.Lock()
		n.dials++
		n.peakDials = max(n.peakDials, n.dials)
		fails := s.broken && !n.spared && s.fault.dial != nil
		s.met = s.met || fails
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			n.dials--
		}()
		dial := func() (net.Conn, error) { return n.options.Dialer(ctx, network, addr) }
		switch {
		case fails:
			return s.fault.dial(ctx, s.healed)
		case s.via != nil:
			return s.via(ctx, dial)
		}
		return dial()
	}
	return opt
}

func (s *site) beginFault() {
	s.mu.Lock()
	s.broken = true
	s.mu.Unlock()
	for _, n := range s.nodes {
		switch {
		case n.spared && n != s.alwaysCut:
		case n.spared, s.fault.begin == nil:
			n.link.Cut()
		default:
			s.fault.begin(s.Env, n)
		}
	}
}

// endFault lets hanging dials and servers answer.
func (s *site) endFault() {
	close(s.healed)
	for _, n := range s.nodes {
		n.Unhang()
	}
}

// sentinel adds a primary and the Sentinel that watches it. The parameters tell which of the two have the fault. The
// connections to the primary break even without it, so that a Client asks the Sentinel for the address again.
func (s *site) sentinel(sentinelFails, primaryFails bool) opener {
	primary := s.addNode(s.Bubble)
	sentinel := s.addNode(lockcoretest.NewRedis(s.T))
	sentinel.spared, primary.spared = !sentinelFails, !primaryFails
	host, port, _ := strings.Cut(primary.addr, ":")
	Must(s.Env, sentinel.Server().Server().Register("SENTINEL", func(p *server.Peer, _ string, args []string) {
		if strings.EqualFold(args[0], "master") {
			p.WriteStrings([]string{"config-epoch", "1"})
			return
		}
		p.WriteStrings([]string{host, port})
	}))
	s.alwaysCut = primary
	opt := s.options(primary)
	return opener{
		func(cfg lockcore.Config) (*lockcore.Client, error) {
			return lockcore.NewFromOptions(&redis.UniversalOptions{
				Addrs: []string{sentinel.addr}, MasterName: "noon", Dialer: opt.Dialer, DialTimeout: opt.DialTimeout,
			}, quiet(cfg))
		},
		func() {},
	}
}

// cluster adds a cluster of two primaries. The primaries with these indexes have the fault.
func (s *site) cluster(failing ...int) opener {
	all := []*node{s.addNode(s.Bubble), s.addNode(lockcoretest.NewRedis(s.T))}
	s.unmetOK = len(failing) < len(all)
	for i, n := range all {
		n.spared = !slices.Contains(failing, i)
		answerAsNode(s.Env, n.Server().Server(), all)
	}
	opt := s.options(all[0])
	return openerOf(redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{all[0].addr, all[1].addr}, Dialer: opt.Dialer, DialTimeout: opt.DialTimeout,
	}))
}

// answerAsNode makes a miniredis answer the CLUSTER commands as a node of a cluster, where each node has an equal
// part of the slots. It refuses no slot of another node.
func answerAsNode(e *Env, srv *server.Server, all []*node) {
	srv.SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "CLUSTER" {
			return false
		}
		if strings.EqualFold(args[0], "info") {
			c.WriteBulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
			return true
		}
		c.WriteLen(len(all)) // the answer to CLUSTER SLOTS
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

// quorum adds a quorum of three servers. The first ones have the fault.
func (s *site) quorum(failing int) opener {
	members := []*node{s.addNode(s.Bubble), s.addNode(lockcoretest.NewRedis(s.T)), s.addNode(lockcoretest.NewRedis(s.T))}
	var all []redis.UniversalClient
	for i, n := range members {
		n.spared = i >= failing
		all = append(all, redis.NewClient(s.options(n)))
	}
	o := opener{
		func(cfg lockcore.Config) (*lockcore.Client, error) {
			return lockcore.NewQuorum(all, lockcore.QuorumConfig{Config: quiet(cfg)})
		},
		func() {
			for _, rdb := range all {
				_ = rdb.Close()
			}
		},
	}
	c, err := o.open(lockcore.Config{}) // new servers grant the first lease only when all are up, and after MaxTTL
	Must(s.Env, err)
	m, err := c.Mutex("first", TTL(time.Second))
	Must(s.Env, err)
	_, err = m.Lock(s.Context())
	Must(s.Env, err)
	Must(s.Env, c.Close(s.Context()))
	return o
}
