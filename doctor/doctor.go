package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/lockcore"
)

// ErrConfig matches every *ConfigError.
var ErrConfig = errors.New("doctor: refused")

// ConfigError reports an invalid argument or configuration field. Nothing was sent. Its fields are
// strings: Field names the argument or field, Value is its value (text is quoted), and Rule says
// which values are valid. It matches ErrConfig.
type ConfigError = input.ConfigError[refused]

type refused struct{}

func (refused) Refusal() error { return ErrConfig }

// A Verdict is the result of a check.
type Verdict string

// The verdicts, from the best to the worst.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // a guarantee is weaker, or the question was refused
	Fail Verdict = "fail" // locks, elections or jobs do not work, or lose their guarantees
)

func (v Verdict) rank() int { return slices.Index([]Verdict{OK, Warn, Fail}, v) }

// A Check is one question and its answer.
type Check struct {
	Name    string  `json:"check"`
	Server  string  `json:"server,omitempty"` // empty: all servers together
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Rule    string  `json:"rule"` // what docs/OPERATIONS.md says about it

	// Unanswered is true if the check failed because a server did not answer. Whether
	// anything is wrong with its settings or its state is not known then.
	Unanswered bool `json:"unanswered,omitempty"`
}

// A Report has the answers of all servers.
type Report struct {
	Verdict  Verdict `json:"verdict"` // the worst one
	Topology string  `json:"topology"`
	Checks   []Check `json:"checks"`
}

// The values of Config.Uses.
const (
	UseMutex    = "mutex"    // Mutex, and singleton.Daemon
	UseOwned    = "rwmutex"  // ReentrantMutex and RWMutex
	UseElection = "election" // package election
	UseJob      = "job"      // singleton.Runner and singleton.Once
)

// Uses returns the values of Config.Uses.
func Uses() []string { return []string{UseMutex, UseOwned, UseElection, UseJob} }

// Config configures Examine. Its zero value has working defaults.
type Config struct {
	// Prefix is lockcore.Config.Prefix of the programs. Default "noonlock".
	Prefix string

	// TTL is the shortest TTL of the leases on the server. Latencies and differences between
	// clocks are compared with it. From 100 ms to 24 h. Default 10 s.
	TTL time.Duration

	// Uses is what the user of the servers must have the rights for, of the values of Uses.
	// Default: all of them. On a quorum, mutexes and elections.
	Uses []string

	// Observe is how long clocks and round trips are measured. From 100 ms to 1 h. Default 3 s.
	Observe time.Duration

	// Timeout is how long the answer to one question may take. From 10 ms to 1 min. Default 3 s.
	Timeout time.Duration

	// MaxKeys is about how many keys of each server are searched, a thousand per request. The
	// search also ends after Timeout. From 1. Default 1,000,000.
	MaxKeys int
}

// withDefaults returns the complete configuration for so many servers.
func (c Config) withDefaults(servers int) (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, "noonlock")
	c.TTL = cmp.Or(c.TTL, 10*time.Second)
	c.Observe = cmp.Or(c.Observe, 3*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 3*time.Second)
	c.MaxKeys = cmp.Or(c.MaxKeys, 1_000_000)
	refuse := func(field, rule string, value any) (Config, error) {
		return c, &ConfigError{Field: field, Value: fmt.Sprint(value), Rule: rule}
	}
	switch {
	case servers == 0:
		return refuse("servers", "at least one client", "empty")
	case c.TTL < 100*time.Millisecond || c.TTL > 24*time.Hour:
		return refuse("Config.TTL", "0 (10s) or from 100ms to 24h", c.TTL)
	case c.Observe < 100*time.Millisecond || c.Observe > time.Hour:
		return refuse("Config.Observe", "0 (3s) or from 100ms to 1h", c.Observe)
	case c.Timeout < 10*time.Millisecond || c.Timeout > time.Minute:
		return refuse("Config.Timeout", "0 (3s) or from 10ms to 1m", c.Timeout)
	case c.MaxKeys < 1:
		return refuse("Config.MaxKeys", "0 (1000000) or positive", c.MaxKeys)
	}
	if len(c.Uses) == 0 {
		c.Uses = Uses()
		if servers > 1 {
			c.Uses = []string{UseMutex, UseElection}
		}
	}
	for _, use := range c.Uses {
		if !slices.Contains(Uses(), use) {
			return refuse("Config.Uses", "of "+strings.Join(Uses(), ", "), input.Quote(use))
		}
		if servers > 1 && use != UseMutex && use != UseElection {
			return refuse("Config.Uses", "mutex or election for several servers, which serve nothing else", input.Quote(use))
		}
	}
	return c, nil
}

// Examine asks the servers, and returns what it has found. Problems of the servers are part of the
// Report. The error is a *ConfigError, or one of lockcore.New or lockcore.NewQuorum; nothing was
// sent then.
func Examine(ctx context.Context, servers []redis.UniversalClient, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults(len(servers))
	if err != nil {
		return nil, err
	}
	var client *lockcore.Client
	if len(servers) == 1 {
		client, err = lockcore.New(servers[0], lockcore.Config{Prefix: cfg.Prefix})
	} else {
		client, err = lockcore.NewQuorum(servers, lockcore.QuorumConfig{Config: lockcore.Config{Prefix: cfg.Prefix}})
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Observe+4*cfg.Timeout)
	defer cancel()
	defer func() { _ = client.Close(ctx) }() // it holds nothing
	e := &examination{cfg: cfg, client: client, quorum: len(servers) > 1}
	done := make(chan struct{})
	go func() { // A Dialer of the caller may hang.
		defer close(done)
		e.run(ctx, servers)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	return e.report(), nil
}

// An examination is one call of Examine.
type examination struct {
	cfg    Config
	client *lockcore.Client
	quorum bool

	mu       sync.Mutex
	topology string
	nodes    []*node
	common   []Check
	complete bool
}

// add records a check of all servers together.
func (e *examination) add(check string, verdict Verdict, found string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.common = append(e.common, Check{Name: check, Verdict: verdict, Found: found, Rule: rules[check]})
}

func (e *examination) run(ctx context.Context, servers []redis.UniversalClient) {
	nodes, err := findNodes(ctx, e, servers)
	if err != nil {
		e.mu.Lock()
		e.common = append(e.common, unconnected("", "no node of the cluster has answered: "+oneLine(err), err))
		e.mu.Unlock()
		e.end("a cluster")
		return
	}
	defer func() {
		for _, n := range nodes {
			n.rdb.Close()
		}
	}()
	e.mu.Lock()
	e.nodes = nodes
	e.mu.Unlock()
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() { n.examine(ctx) })
	}
	all.Wait()
	e.tryRights(ctx)
	e.compareClocks()
	if e.quorum {
		e.compareMembers()
	}
	e.end(e.describe())
}

func (e *examination) end(topology string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.topology, e.complete = topology, true
}

// describe returns the topology.
func (e *examination) describe() string {
	replicas := 0
	for _, n := range e.nodes {
		if n.isReplica {
			replicas++
		}
	}
	first := e.nodes[0]
	switch {
	case e.quorum:
		return fmt.Sprintf("%d independent servers", len(e.nodes))
	case first.sharded:
		return fmt.Sprintf("a cluster of %s and %s", count(len(e.nodes)-replicas, "primary"), count(replicas, "replica"))
	case first.sentinel:
		return "Sentinel with " + count(first.replicas, "replica")
	case first.replicas > 0:
		return "a primary with " + count(first.replicas, "replica")
	}
	return "one server"
}

// count returns a number with a noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "ry"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// report returns what is known. The work may be unfinished.
func (e *examination) report() *Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &Report{Verdict: OK, Topology: cmp.Or(e.topology, "unknown")}
	for _, n := range e.nodes {
		r.Checks = append(r.Checks, n.checks...)
	}
	r.Checks = append(r.Checks, e.common...)
	if !e.complete {
		r.Checks = append(r.Checks, unconnected("", "the examination has not ended in time", nil))
	}
	for _, c := range r.Checks {
		if c.Verdict.rank() > r.Verdict.rank() {
			r.Verdict = c.Verdict
		}
	}
	return r
}

// oneLine returns the text of an error in one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
