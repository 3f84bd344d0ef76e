package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/wire/conn"
	"github.com/noonlock/noonlock/lockcore"
)

// Examine asks the servers, and returns a Report. Problems of the servers are part of the
// Report. The error is a *noonlock.ConfigError, or an error of lockcore.NewFromOptions or lockcore.NewQuorum; then
// nothing was sent. No element of servers may be nil.
func Examine(ctx context.Context, servers []*redis.UniversalOptions, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults(len(servers))
	if err != nil {
		return nil, err
	}
	var client *lockcore.Client
	if len(servers) == 1 {
		client, err = lockcore.NewFromOptions(servers[0], lockcore.Config{Prefix: cfg.Prefix})
	} else {
		var all []redis.UniversalClient
		for _, o := range servers {
			rdb := redis.NewUniversalClient(o) // without a connection
			defer rdb.Close()
			all = append(all, rdb)
		}
		client, err = lockcore.NewQuorum(all, lockcore.QuorumConfig{Config: lockcore.Config{Prefix: cfg.Prefix}})
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Observe+4*cfg.Timeout)
	defer cancel()
	defer func() { _ = client.Close(ctx) }() // the client holds nothing
	e := &examination{cfg: cfg, client: client, quorum: len(servers) > 1}
	e.run(ctx)
	return e.report(), nil
}

type examination struct {
	cfg    Config
	client *lockcore.Client
	quorum bool
	nodes  []*node
	checks []Check // checks of Sentinels, or of all servers together
}

// findNodes finds all servers. It asks only a cluster or Sentinels, and compares the answers of the Sentinels.
func (e *examination) findNodes(ctx context.Context) error {
	servers, views, err := lock.Of(e.client).Servers(ctx, e.cfg.Timeout)
	for _, v := range views {
		claim := fmt.Sprintf("names the primary %s since epoch %d", v.Primary, v.Epoch)
		if v.Epoch < 0 {
			claim = fmt.Sprintf("names the primary %s, and does not tell the epoch (SENTINEL MASTER)", v.Primary)
		}
		check := checkOf(v.Sentinel, "sentinel", OK, "%s", claim)
		switch {
		case v.Err != nil:
			check = checkOf(v.Sentinel, "sentinel", Warn, "names no primary: %s", oneLine(v.Err))
		case err != nil:
			check = checkOf(v.Sentinel, "sentinel", Warn, "%s; the newest is unknown", claim)
		case v.Primary != servers[0].Options.Addr:
			check = checkOf(v.Sentinel, "sentinel", Warn, "%s; the newest is %s", claim, servers[0].Options.Addr)
		}
		e.checks = append(e.checks, check)
	}
	if err != nil {
		return err
	}
	sharded := slices.ContainsFunc(servers, func(s lock.Server) bool { return s.Tag != "" })
	for _, s := range servers {
		s.Options.DialTimeout = e.cfg.Timeout
		e.nodes = append(e.nodes, &node{
			cfg: e.cfg, quorum: e.quorum, client: e.client, addr: s.Options.Addr, scratch: cmp.Or(s.Tag, "doctor"),
			sentinel: views != nil, sharded: sharded, clusterReplica: sharded && s.Tag == "",
			dialer: conn.NewDialer(conn.Options{Redis: s.Options}),
		})
	}
	return nil
}

// examine asks a server until it does not answer.
func examine(ctx context.Context, n *node) {
	defer n.dialer.Close()
	steps := []func(context.Context){n.open, n.readInfo, n.readConfig, n.judge}
	switch {
	case n.quorum:
		steps = append(steps, n.tryMessages, n.searchKeys, n.tryWrite, n.readMember, n.observe)
	case n.clusterReplica:
		steps = append(steps, n.observe)
	default:
		steps = append(steps, n.tryOptions, n.tryMessages, n.searchKeys, n.tryWrite, n.observe, n.tryRights)
	}
	n.connection = Check{Name: "connection", Server: n.addr, Verdict: OK, Found: "the server answers"}
	for _, step := range steps {
		if step(ctx); n.silence != nil {
			n.connection = unconnected(n.addr, n.silence)
			break
		}
	}
	if n.pipe != nil {
		n.pipe.Drop()
	}
}

func (e *examination) run(ctx context.Context) {
	if err := e.findNodes(ctx); err != nil {
		e.checks = append(e.checks, unconnected("", err))
		return
	}
	var all sync.WaitGroup
	for _, n := range e.nodes {
		all.Go(func() { examine(ctx, n) })
	}
	all.Wait()
	e.checks = append(e.checks, compareClocks(e.nodes, e.cfg.TTL)...)
	if e.quorum {
		connected := 0
		for _, n := range e.nodes {
			if n.pipe != nil {
				connected++
			}
		}
		if 2*connected > len(e.nodes) {
			for _, use := range e.cfg.Uses {
				verdict, found := tryRight(ctx, e.client, e.cfg.Timeout, "doctor", use)
				e.checks = append(e.checks, checkOf("", "rights", verdict, "%s: %s", use, found))
			}
		}
		e.checks = append(e.checks, compareMembers(e.nodes)...)
	}
}

func (e *examination) topology() string {
	if len(e.nodes) == 0 {
		return "unknown"
	}
	replicas := 0
	for _, n := range e.nodes {
		if n.clusterReplica {
			replicas++
		}
	}
	first := e.nodes[0]
	switch {
	case e.quorum:
		return fmt.Sprintf("%d independent servers", len(e.nodes))
	case first.sharded:
		return fmt.Sprintf("a cluster of %s and %s", count(len(e.nodes)-replicas, "primary node"), count(replicas, "replica"))
	case first.sentinel:
		return "Sentinel with " + count(first.replicas, "replica")
	case first.replicas > 0:
		return "a primary with " + count(first.replicas, "replica")
	}
	return "one server"
}

// report returns the checks of each node, its connection first, and then the checks of the examination.
func (e *examination) report() *Report {
	r := &Report{Verdict: OK, Topology: e.topology()}
	for _, n := range e.nodes {
		r.Checks = append(append(r.Checks, n.connection), n.checks...)
	}
	r.Checks = append(r.Checks, e.checks...)
	for i, c := range r.Checks {
		r.Checks[i].Rule = rules[c.Name]
		if c.Verdict.rank() > r.Verdict.rank() {
			r.Verdict = c.Verdict
		}
	}
	return r
}
