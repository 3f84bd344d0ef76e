package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/lockcore"
)

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
	UseMutex      = "mutex"      // Mutex
	UseOwned      = "rwmutex"    // ReentrantMutex, RWMutex and Semaphore
	UseElection   = "election"   // LeaderElector
	UsePartitions = "partitions" // package partition
	UseJob        = "job"        // singleton.Runner
)

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

	// Timeout is how long the answer to one question may take, and about how long keys are searched.
	// From 10 ms to 1 min. Default 3 s.
	Timeout time.Duration
}

// withDefaults returns the complete configuration for so many servers.
func (c Config) withDefaults(servers int) (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, "noonlock")
	if servers == 0 {
		return c, &noonlock.ConfigError{Package: "doctor", Field: "servers", Value: "empty", Rule: "the options of one server at least"}
	}
	for _, of := range []struct {
		field                 string
		value                 *time.Duration
		fallback, least, most time.Duration
	}{
		{"Config.TTL", &c.TTL, 10 * time.Second, 100 * time.Millisecond, 24 * time.Hour},
		{"Config.Observe", &c.Observe, 3 * time.Second, 100 * time.Millisecond, time.Hour},
		{"Config.Timeout", &c.Timeout, 3 * time.Second, 10 * time.Millisecond, time.Minute},
	} {
		if *of.value = cmp.Or(*of.value, of.fallback); *of.value < of.least || *of.value > of.most {
			return c, &noonlock.ConfigError{Package: "doctor", Field: of.field, Value: of.value.String(), Rule: fmt.Sprintf("0 (%s) or from %s to %s", of.fallback, of.least, of.most)}
		}
	}
	uses, all := Uses(), "of "+strings.Join(Uses(), ", ")
	if servers > 1 {
		uses, all = []string{UseMutex, UseElection}, "mutex or election for several servers, which serve nothing else"
	}
	if len(c.Uses) == 0 {
		c.Uses = uses
	}
	for _, use := range c.Uses {
		if !slices.Contains(uses, use) {
			return c, &noonlock.ConfigError{Package: "doctor", Field: "Config.Uses", Value: input.Quote(use), Rule: all}
		}
	}
	return c, nil
}

// Examine asks the servers, and returns what it has found. Problems of the servers are part of the
// Report. The error is a *noonlock.ConfigError, or one of lockcore.NewFromOptions or lockcore.NewQuorum; nothing was
// sent then. No element may be nil.
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
			rdb := redis.NewUniversalClient(o) // it makes no connection
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
	defer func() { _ = client.Close(ctx) }() // it holds nothing
	e := &examination{cfg: cfg, client: client, quorum: len(servers) > 1}
	e.run(ctx)
	return e.report(), nil
}

// An examination is one call of Examine.
type examination struct {
	cfg    Config
	client *lockcore.Client
	quorum bool
	nodes  []*node
	checks []Check // of other servers, or of all together
}

// add records a check of all servers together.
func (e *examination) add(check string, verdict Verdict, format string, args ...any) {
	e.checks = append(e.checks, checkOf("", check, verdict, format, args...))
}

func checkOf(server, check string, verdict Verdict, format string, args ...any) Check {
	return Check{Name: check, Server: server, Verdict: verdict, Found: fmt.Sprintf(format, args...)}
}

// run asks the servers.
func (e *examination) run(ctx context.Context) {
	if err := e.findNodes(ctx); err != nil {
		e.checks = append(e.checks, unconnected("", err))
		return
	}
	var all sync.WaitGroup
	for _, n := range e.nodes {
		all.Go(func() { n.examine(ctx) })
	}
	all.Wait()
	e.compareClocks()
	if e.quorum {
		connected := 0
		for _, n := range e.nodes {
			if n.pipe != nil {
				connected++
			}
		}
		if 2*connected > len(e.nodes) {
			e.tryRights(ctx, "doctor", e.add)
		}
		e.compareMembers()
	}
}

func (e *examination) describe() string {
	if len(e.nodes) == 0 {
		return "unknown"
	}
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
		return fmt.Sprintf("a cluster of %s and %s", count(len(e.nodes)-replicas, "primary node"), count(replicas, "replica"))
	case first.sentinel:
		return "Sentinel with " + count(first.replicas, "replica")
	case first.replicas > 0:
		return "a primary with " + count(first.replicas, "replica")
	}
	return "one server"
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

// report returns the checks of each node, its connection first, and then the others.
func (e *examination) report() *Report {
	r := &Report{Verdict: OK, Topology: e.describe()}
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

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
