package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A node is one server.
type node struct {
	e    *examination
	name string // its address
	rdb  *redis.Client

	sentinel     bool   // the address comes from a Sentinel
	slowSentinel bool   // the client waits long for a Sentinel
	sharded      bool   // it is a node of a cluster
	isReplica    bool   // of a cluster
	isWrong      bool   // it is a replica, and should be a primary
	scratch      string // a name whose keys this server has, for trials

	info    map[string]string // nil: INFO was refused
	infoErr error
	config  map[string]string // by parameter, without those that were refused

	replicas  int
	clock     *estimate
	member    *member
	reachable bool // it has answered all questions

	checks []Check // e.mu protects it
}

// add records a check.
func (n *node) add(check string, verdict Verdict, format string, args ...any) {
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	n.checks = append(n.checks, Check{Name: check, Server: n.name, Verdict: verdict, Found: fmt.Sprintf(format, args...), Rule: rules[check]})
}

// findNodes returns all servers. It connects only to a cluster. The caller closes their clients.
func findNodes(ctx context.Context, e *examination, servers []redis.UniversalClient) ([]*node, error) {
	if c, ok := servers[0].(*redis.ClusterClient); ok {
		return e.clusterNodes(ctx, c)
	}
	var nodes []*node
	for _, s := range servers {
		opt := *s.(*redis.Client).Options() // lockcore.New refuses other types
		n := e.node(&opt)
		if n.sentinel = opt.Addr == failoverAddr; n.sentinel {
			n.name, n.slowSentinel = "primary", opt.ReadTimeout > 500*time.Millisecond || opt.MaxRetries > 0
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// failoverAddr is the Addr of the clients of redis.NewFailoverClient.
const failoverAddr = "FailoverClient"

// node returns the server that the options name, with a connection of its own.
func (e *examination) node(opt *redis.Options) *node {
	n := &node{e: e, name: opt.Addr, scratch: scratchName(0)}
	own := *opt
	own.MaxRetries, own.DialerRetries = -1, 1
	own.ContextTimeoutEnabled = true
	own.DialTimeout, own.ReadTimeout, own.WriteTimeout = e.cfg.Timeout, e.cfg.Timeout, e.cfg.Timeout
	own.PoolSize, own.MinIdleConns, own.MaxActiveConns = 2, 0, 0
	own.PoolTimeout = e.cfg.Timeout
	own.Limiter, own.PushNotificationProcessor, own.ClientSideCacheConfig = nil, nil, nil
	own.DisableIdentity = true // it needs a right
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	n.rdb = redis.NewClient(&own)
	return n
}

// scratchName returns a name for which rights are tried.
func scratchName(i int) string { return "doctor/" + strconv.Itoa(i) }

// clusterNodes asks the cluster for its nodes. The client asks its addresses one after the other,
// and the first ones may not answer.
func (e *examination) clusterNodes(ctx context.Context, c *redis.ClusterClient) ([]*node, error) {
	opt := *c.Options()
	opt.Addrs = slices.Clone(opt.Addrs) // each client appends to its own
	opt.ContextTimeoutEnabled = true
	opt.MaxRetries, opt.DialerRetries = -1, 1
	each := e.cfg.Timeout / time.Duration(max(1, min(len(opt.Addrs), 3)))
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = each, each, each
	cluster := redis.NewClusterClient(&opt)
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	byAddr := map[string]*node{}
	collect := func(replica bool) func(context.Context, *redis.Client) error {
		return func(_ context.Context, r *redis.Client) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			n := e.node(r.Options())
			n.sharded, n.isReplica, n.scratch = true, replica, ""
			byAddr[n.name] = n
			return nil
		}
	}
	err := errors.Join(cluster.ForEachMaster(ctx, collect(false)), cluster.ForEachSlave(ctx, collect(true)))
	if len(byAddr) == 0 && err == nil {
		err = errors.New("doctor: the cluster has no nodes")
	}
	if err != nil {
		for _, n := range byAddr {
			n.rdb.Close()
		}
		return nil, err
	}
	// Each primary needs a name of its own.
	for i := range 10_000 {
		r, err := cluster.MasterForKey(ctx, "{"+scratchName(i)+"}")
		if err != nil {
			break
		}
		if n := byAddr[r.Options().Addr]; n != nil && n.scratch == "" {
			n.scratch = scratchName(i)
		}
		if !slices.ContainsFunc(values(byAddr), func(n *node) bool { return !n.isReplica && n.scratch == "" }) {
			break
		}
	}
	nodes := values(byAddr)
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return nodes, nil
}

func values(m map[string]*node) (all []*node) {
	for _, n := range m {
		all = append(all, n)
	}
	return all
}

// examine asks the server. A step returns an error only if the server did not answer: the others
// are then omitted.
func (n *node) examine(ctx context.Context) {
	steps := []func(context.Context) error{n.ping, n.readInfo, n.readConfig, n.judge}
	if !n.isReplica {
		steps = append(steps, n.tryOptions, n.tryMessages, n.searchKeys, n.tryWrite)
	}
	if n.e.quorum {
		steps = append(steps, n.readMember)
	}
	for _, step := range append(steps, n.observe) {
		if err := step(ctx); err != nil {
			n.e.mu.Lock()
			defer n.e.mu.Unlock()
			n.checks = append(n.checks, unconnected(n.name, n.silence(err), err))
			return
		}
	}
	n.e.mu.Lock()
	defer n.e.mu.Unlock()
	n.reachable = true
	n.checks = slices.Insert(n.checks, 0, Check{Name: checkConnection, Server: n.name, Verdict: OK, Found: "the server answers", Rule: rules[checkConnection]})
}

// unconnected returns the check of a server that did not answer, or refused the user.
func unconnected(server, found string, err error) Check {
	return Check{Name: checkConnection, Server: server, Verdict: Fail, Found: found, Rule: rules[checkConnection], Unanswered: !isRefusal(err)}
}

// silence says why the server did not answer.
func (n *node) silence(err error) string {
	if errors.Is(err, redis.Nil) { // an answer of a Sentinel, which go-redis calls unreachable
		return "the Sentinels know no primary of the name in MasterName"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Sprintf("no answer within %s: %s", n.e.cfg.Timeout, oneLine(err))
	}
	return oneLine(err)
}

// ask calls a function with a context for one question.
func (n *node) ask(ctx context.Context, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.e.cfg.Timeout)
	defer cancel()
	return question(ctx)
}

// isRefusal reports whether a server has answered with an error.
func isRefusal(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// refusal says why a server has refused a command. right is the right that it needs.
func refusal(right string, err error) string {
	switch {
	case redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "permissions to access"): // a key or a channel
		return oneLine(err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "the user lacks the right +" + right
	case strings.HasPrefix(strings.ToLower(err.Error()), "err unknown command"):
		command, _, _ := strings.Cut(right, "|")
		return fmt.Sprintf("the server has no %s, or has renamed it", strings.ToUpper(command))
	}
	return oneLine(err)
}

func (n *node) ping(ctx context.Context) error {
	err := n.ask(ctx, func(ctx context.Context) error { return n.rdb.Ping(ctx).Err() })
	if redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}

func (n *node) readInfo(ctx context.Context) error {
	return n.ask(ctx, func(ctx context.Context) error {
		text, err := n.rdb.Info(ctx).Result()
		switch {
		case isRefusal(err):
			n.infoErr = err
			return nil
		case err != nil:
			return err
		}
		n.info = parseInfo(text)
		return nil
	})
}

// parseInfo parses the answer of INFO.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

// number returns a field of INFO, 0 if it is absent.
func (n *node) number(field string) int64 {
	value, _ := strconv.ParseInt(n.info[field], 10, 64)
	return value
}

// parameters are the settings that are read.
var parameters = []string{
	"appendfsync", "save", "timeout", "min-replicas-to-write", "min-replicas-max-lag",
	"cluster-require-full-coverage", "cluster-allow-pubsubshard-when-down",
}

// setting returns a setting. If it is unknown, missing says why.
func (n *node) setting(parameter string) (value, missing string) {
	if value, ok := n.config[parameter]; ok {
		return value, ""
	}
	return "", n.config["!"]
}

func (n *node) readConfig(ctx context.Context) error {
	return n.ask(ctx, func(ctx context.Context) error {
		pipe := n.rdb.Pipeline()
		answers := make([]*redis.MapStringStringCmd, len(parameters))
		for i, p := range parameters { // several in one command need Redis 7.0
			answers[i] = pipe.ConfigGet(ctx, p)
		}
		_, err := pipe.Exec(ctx)
		if err != nil && !isRefusal(err) {
			return err
		}
		n.config = map[string]string{"!": "the server does not have it"}
		if err != nil {
			n.config["!"] = refusal("config|get", err)
		}
		for i, a := range answers {
			if value, ok := a.Val()[parameters[i]]; ok {
				n.config[parameters[i]] = value
			}
		}
		return nil
	})
}

// observe measures the clock and the round trips. A drift needs two readings at least.
func (n *node) observe(ctx context.Context) error {
	began := time.Now()
	var samples []sample
	for {
		asked := time.Since(began)
		var answer time.Time
		err := n.ask(ctx, func(ctx context.Context) (err error) {
			answer, err = n.rdb.Time(ctx).Result()
			return err
		})
		answered := time.Since(began)
		switch {
		case isRefusal(err):
			n.add(checkClock, Warn, "unknown: %s", refusal("time", err))
			return nil
		case err != nil:
			return err
		}
		middle := (asked + answered) / 2
		samples = append(samples, sample{at: middle, rtt: answered - asked, offset: answer.Sub(began.Add(middle))})
		if answered > n.e.cfg.Observe && len(samples) > 1 {
			break
		}
		select {
		case <-time.After(betweenSamples):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n.judgeClock(samples)
	n.judgeRoundTrips(samples)
	return nil
}

// betweenSamples is the pause between two readings of a clock.
const betweenSamples = 10 * time.Millisecond
