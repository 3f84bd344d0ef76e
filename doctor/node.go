package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/noonlock/noonlock/internal/lock"
)

// A node is one server.
type node struct {
	e    *examination
	name string // its address
	rdb  *redis.Client

	sentinel  bool   // the address comes from Sentinels
	sharded   bool   // it is a node of a cluster
	isReplica bool   // of a cluster
	isWrong   bool   // it is a replica, and should be a primary
	scratch   string // a name whose keys this server has, for trials

	info          map[string]string // nil: INFO was refused
	infoMissing   string            // why
	config        map[string]string // by parameter, without those that were refused
	configMissing string            // why

	replicas int
	clock    *estimate
	member   facts // see readMember; nil: unknown
	silence  error // why it has not answered a question
}

// add records a check, unless the server has not answered a question.
func (n *node) add(check string, verdict Verdict, format string, args ...any) {
	if n.silence == nil {
		n.e.add(n.name, check, verdict, format, args...)
	}
}

// findNodes returns all servers. It connects only to a cluster and to Sentinels. The caller closes their clients.
func findNodes(ctx context.Context, e *examination, servers []*redis.UniversalOptions) ([]*node, error) {
	first := servers[0]
	switch {
	case e.quorum: // lockcore.NewQuorum refuses others than servers
	case first.MasterName != "":
		return e.watchedNode(ctx, first)
	case first.IsClusterMode || len(first.Addrs) > 1:
		return e.clusterNodes(ctx, first.Cluster())
	}
	var nodes []*node
	for _, s := range servers {
		nodes = append(nodes, e.node(s.Simple()))
	}
	return nodes, nil
}

// watchedNode asks the Sentinels for the primary, and compares their answers.
func (e *examination) watchedNode(ctx context.Context, servers *redis.UniversalOptions) ([]*node, error) {
	views, primary, err := lock.Of(e.client).Sentinels(ctx)
	for _, v := range views {
		named := fmt.Sprintf("names the primary %s since epoch %d", v.Primary, v.Epoch)
		if v.Epoch < 0 {
			named = fmt.Sprintf("names the primary %s, and does not tell the epoch (SENTINEL MASTER)", v.Primary)
		}
		switch {
		case v.Err != nil:
			e.add(v.Sentinel, "sentinel", Warn, "names no primary: %s", oneLine(v.Err))
		case v.Primary != primary:
			e.add(v.Sentinel, "sentinel", Warn, "%s; the newest is %s", named, cmp.Or(primary, "unknown"))
		default:
			e.add(v.Sentinel, "sentinel", OK, "%s", named)
		}
	}
	if err != nil {
		return nil, err
	}
	opt := servers.Simple()
	opt.Addr = primary
	n := e.node(opt)
	n.sentinel = true
	return []*node{n}, nil
}

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
func (e *examination) clusterNodes(ctx context.Context, opt *redis.ClusterOptions) ([]*node, error) {
	opt.Addrs = slices.Clone(opt.Addrs) // each client appends to its own
	opt.DisableRoutingPolicies = true   // they need a right
	opt.ContextTimeoutEnabled = true
	opt.MaxRetries, opt.DialerRetries = -1, 1
	each := e.cfg.Timeout / time.Duration(max(1, min(len(opt.Addrs), 3)))
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = each, each, each
	cluster := redis.NewClusterClient(opt)
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Timeout)
	defer cancel()
	var nodes []*node
	collect := func(replica bool) func(context.Context, *redis.Client) error {
		return func(_ context.Context, r *redis.Client) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			n := e.node(r.Options())
			n.sharded, n.isReplica, n.scratch = true, replica, ""
			nodes = append(nodes, n)
			return nil
		}
	}
	err := errors.Join(cluster.ForEachMaster(ctx, collect(false)), cluster.ForEachSlave(ctx, collect(true)))
	if len(nodes) == 0 && err == nil {
		err = errors.New("doctor: the cluster has no nodes")
	}
	if err != nil {
		for _, n := range nodes {
			n.rdb.Close()
		}
		return nil, fmt.Errorf("doctor: no node of the cluster has answered: %w", err)
	}
	lacking := func(n *node) bool { return !n.isReplica && n.scratch == "" } // each primary needs a name of its own
	for i := 0; i < 10_000 && slices.ContainsFunc(nodes, lacking); i++ {
		r, err := cluster.MasterForKey(ctx, "{"+scratchName(i)+"}")
		if err != nil {
			break
		}
		for _, n := range nodes {
			if n.name == r.Options().Addr && lacking(n) {
				n.scratch = scratchName(i)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return nodes, nil
}

// examine asks the server, as long as it answers.
func (n *node) examine(ctx context.Context) {
	steps := []func(context.Context){n.ping, n.readInfo, n.readConfig, n.judge}
	if !n.isReplica {
		steps = append(steps, n.tryOptions, n.tryMessages, n.searchKeys, n.tryWrite)
	}
	if n.e.quorum {
		steps = append(steps, n.readMember)
	}
	for _, step := range append(steps, n.observe) {
		if step(ctx); n.silence != nil {
			n.e.record(unconnected(n.name, n.why(), n.silence))
			return
		}
	}
	n.add("connection", OK, "the server answers")
}

// unconnected returns the check of a server that did not answer, or refused the user.
func unconnected(server, found string, err error) Check {
	return Check{Name: "connection", Server: server, Verdict: Fail, Found: found, Unanswered: !isRefusal(err)}
}

func (n *node) why() string {
	if timeout, ok := errors.AsType[net.Error](n.silence); ok && timeout.Timeout() {
		return fmt.Sprintf("no answer within %s: %s", n.e.cfg.Timeout, oneLine(n.silence))
	}
	return oneLine(n.silence)
}

// ask calls a function that asks a question. missing is not empty if there is no answer, and says why the
// server has refused it. right is the right that it needs. After a question without an answer, no other one
// is asked.
func (n *node) ask(ctx context.Context, right string, question func(context.Context) error) (missing string) {
	if n.silence != nil {
		return "no answer"
	}
	ctx, cancel := context.WithTimeout(ctx, n.e.cfg.Timeout)
	defer cancel()
	switch err := question(ctx); {
	case err == nil:
		return ""
	case isRefusal(err):
		return refusal(right, err)
	default:
		n.silence = err
		return "no answer"
	}
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

func (n *node) readInfo(ctx context.Context) {
	n.infoMissing = n.ask(ctx, "info", func(ctx context.Context) error {
		text, err := n.rdb.Info(ctx).Result()
		if err == nil {
			n.info = parseInfo(text)
		}
		return err
	})
	if n.info["cluster_enabled"] == "1" && !n.sharded { // a node of a cluster as a single server
		n.info["cluster-info"] = n.ask(ctx, "cluster|info", func(ctx context.Context) error {
			text, err := n.rdb.ClusterInfo(ctx).Result()
			n.info["cluster_size"] = parseInfo(text)["cluster_size"]
			return err
		})
	}
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[key] = value
		}
	}
	return info
}

func (n *node) readConfig(ctx context.Context) {
	n.config = map[string]string{}
	missing := n.ask(ctx, "config|get", func(ctx context.Context) error {
		for _, p := range parameters { // several in one command need Redis 7.0
			values, err := n.rdb.ConfigGet(ctx, p).Result()
			if err != nil {
				return err
			}
			maps.Copy(n.config, values)
		}
		return nil
	})
	n.configMissing = cmp.Or(missing, "the server does not have it")
}

func (n *node) ping(ctx context.Context) {
	n.ask(ctx, "ping", func(ctx context.Context) error {
		err := n.rdb.Ping(ctx).Err()
		if isRefusal(err) && !redis.HasErrorPrefix(err, "NOPERM") {
			n.silence = err // the user or the password is refused
		}
		return err
	})
}

// observe measures the clock and the round trips. A drift needs two readings at least.
func (n *node) observe(ctx context.Context) {
	began := time.Now()
	var samples []sample
	for {
		asked := time.Since(began)
		var answer time.Time
		missing := n.ask(ctx, "time", func(ctx context.Context) (err error) {
			answer, err = n.rdb.Time(ctx).Result()
			return err
		})
		answered := time.Since(began)
		if missing != "" {
			n.add("clock", Warn, "unknown: %s", missing)
			return
		}
		middle := (asked + answered) / 2
		samples = append(samples, sample{at: middle, rtt: answered - asked, offset: answer.Sub(began.Add(middle))})
		if answered > n.e.cfg.Observe && len(samples) > 1 {
			break
		}
		select {
		case <-time.After(betweenSamples):
		case <-ctx.Done():
			n.silence = ctx.Err()
			return
		}
	}
	n.judgeClock(samples)
	n.judgeRoundTrips(samples)
}

// betweenSamples is the pause between two readings of a clock.
const betweenSamples = 10 * time.Millisecond
