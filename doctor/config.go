package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/election/partition"
	"github.com/noonlock/noonlock/internal/input"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

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

	// Uses are the uses for which the user of the servers must have the rights.
	// Default: all uses; on a quorum, mutexes and elections.
	Uses []string

	// Observe is how long clocks and round trips are measured. From 100 ms to 1 h. Default 3 s.
	Observe time.Duration

	// Timeout is how long the answer to one question may take, and about how long keys are searched.
	// From 10 ms to 1 min. Default 3 s.
	Timeout time.Duration
}

// withDefaults returns the complete configuration for a number of servers.
func (c Config) withDefaults(servers int) (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, "noonlock")
	if servers == 0 {
		return c, &noonlock.ConfigError{Package: "doctor", Field: "servers", Value: "empty", Rule: "the options of one server at least"}
	}
	for _, limit := range []struct {
		field                 string
		value                 *time.Duration
		fallback, least, most time.Duration
	}{
		{"Config.TTL", &c.TTL, 10 * time.Second, 100 * time.Millisecond, 24 * time.Hour},
		{"Config.Observe", &c.Observe, 3 * time.Second, 100 * time.Millisecond, time.Hour},
		{"Config.Timeout", &c.Timeout, 3 * time.Second, 10 * time.Millisecond, time.Minute},
	} {
		if *limit.value = cmp.Or(*limit.value, limit.fallback); *limit.value < limit.least || *limit.value > limit.most {
			return c, &noonlock.ConfigError{Package: "doctor", Field: limit.field, Value: limit.value.String(), Rule: fmt.Sprintf("0 (%s) or from %s to %s", limit.fallback, limit.least, limit.most)}
		}
	}
	possible, rule := Uses(), "of "+strings.Join(Uses(), ", ")
	if servers > 1 {
		possible, rule = []string{UseMutex, UseElection}, "mutex or election for several servers, which serve nothing else"
	}
	if len(c.Uses) == 0 {
		c.Uses = possible
	}
	for _, use := range c.Uses {
		if !slices.Contains(possible, use) {
			return c, &noonlock.ConfigError{Package: "doctor", Field: "Config.Uses", Value: input.Quote(use), Rule: rule}
		}
	}
	return c, nil
}

var useNeeds = []struct {
	name  string
	needs lock.Needs
}{
	{UseMutex, lock.MutexNeeds()},
	{UseOwned, lock.OwnedNeeds()},
	{UseElection, lock.NeedsOf(election.Election{})},
	{UsePartitions, lock.NeedsOf(partition.Set{})},
	{UseJob, lock.NeedsOf(singleton.Job{})},
}

// Uses returns the values of Config.Uses.
func Uses() (names []string) {
	for _, u := range useNeeds {
		names = append(names, u.name)
	}
	return names
}

// CheckRights returns an error if the Redis user of the Client lacks a right for use, which is one of Uses. At the
// server of the name, CheckRights tries each command of the scripts on a key of the name that never exists. So it
// leaves nothing behind. It does not try PUBLISH, which scripts can do without. If the server does not answer, it
// retries for up to 7 s.
func CheckRights(ctx context.Context, client *lockcore.Client, name, use string) error {
	i := slices.Index(Uses(), use)
	if i < 0 {
		return &noonlock.ConfigError{Package: "doctor", Field: "use", Value: input.Quote(use), Rule: "one of " + strings.Join(Uses(), ", ")}
	}
	return lock.Of(client).CheckRights(ctx, name, useNeeds[i].needs)
}
