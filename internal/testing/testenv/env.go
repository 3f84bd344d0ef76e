// Package testenv provides the servers, clients and waits that the tests of this module
// share. The same test runs with miniredis in a bubble of virtual time and with a
// redis-server.
package testenv

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Patience limits every wait for an event on a real server. It is no bound that a test checks.
const Patience = 60 * time.Second

// Size returns how often a test repeats its work: day in `make test`, and night in `make nightly`.
func Size(day, night int) int {
	if Nightly() {
		return night
	}
	return day
}

// Nightly reports whether `make nightly` runs the tests. It sets NOONLOCK_NIGHTLY.
func Nightly() bool { return os.Getenv("NOONLOCK_NIGHTLY") != "" }

// An Env is a test together with the server that it runs on.
type Env struct {
	*testing.T
	Bubble *lockcoretest.Redis   // nil on real servers
	Real   *servers.RedisServer  // nil in a bubble, in a cluster and behind a Sentinel
	Raw    redis.UniversalClient // bypasses lockcore, to inspect and to interfere
	Start  time.Time
	Days   bool         // Until waits for up to a day of a bubble's time, and checks less and less often
	probes atomic.Int64 // keys that Pass has made

	cluster  *servers.RedisCluster // nil in another topology
	sentinel *servers.Watched      // nil in another topology
}

// onTopologies reports whether OnBoth runs tests in a cluster and behind a Sentinel instead of on one server.
func onTopologies() bool { return os.Getenv("NOONLOCK_TOPOLOGIES") != "" }

// skipOnTopologies skips a test on one server if onTopologies is true.
// scripts/test-summary.awk matches the text of the skip.
func skipOnTopologies(t *testing.T) {
	t.Helper()
	if onTopologies() {
		t.Skip("make test runs it")
	}
}

// OnOneServer runs a test in a bubble and on a real server, in parallel. It is for tests that
// send scripts without a Client.
func OnOneServer(t *testing.T, test func(e *Env)) {
	t.Helper()
	skipOnTopologies(t)
	inParallel(t, map[string]func(t *testing.T){
		"bubble": func(t *testing.T) { InBubble(t, test) },
		"redis":  func(t *testing.T) { test(OnServer(t)) },
	})
}

func inParallel(t *testing.T, tests map[string]func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// OnBoth runs a test in a bubble and on a real server, in parallel. With NOONLOCK_TOPOLOGIES
// set, it runs the test on a Redis Cluster and behind a Sentinel instead.
func OnBoth(t *testing.T, test func(e *Env)) {
	t.Helper()
	if !onTopologies() {
		OnOneServer(t, test)
		return
	}
	inParallel(t, map[string]func(t *testing.T){
		"cluster":  func(t *testing.T) { test((&Env{T: t, cluster: servers.LendCluster(t)}).start()) },
		"sentinel": func(t *testing.T) { test((&Env{T: t, sentinel: servers.LendWatched(t)}).start()) },
	})
}

func (e *Env) start() *Env {
	e.Start = time.Now()
	e.Raw = e.Connect(e.Direct())
	if c, ok := e.Raw.(*redis.ClusterClient); ok {
		e.Raw = everyPrimary{c}
	}
	e.Cleanup(func() { e.Raw.Close() })
	return e
}

// InBubble runs a test in a bubble.
func InBubble(t *testing.T, test func(e *Env)) {
	t.Helper()
	skipOnTopologies(t)
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		test(&Env{T: t, Bubble: r, Raw: r.Client(), Start: time.Now()})
	})
}

// OnServer starts a real server for the test. conf are lines of redis.conf.
func OnServer(t *testing.T, conf ...string) *Env {
	t.Helper()
	skipOnTopologies(t)
	return (&Env{T: t, Real: servers.Redis(t, conf...)}).start()
}

// Errorf is T.Errorf. If a test runs against a mutant of a script, the first error ends the process: one failed test is
// enough to detect the mutant.
func (e *Env) Errorf(format string, args ...any) {
	e.Helper()
	e.T.Errorf(format, args...)
	e.endMutant()
}

// Error is T.Error. It ends the process like Errorf.
func (e *Env) Error(args ...any) {
	e.Helper()
	e.T.Error(args...)
	e.endMutant()
}

func (e *Env) endMutant() {
	if os.Getenv(mutantVariable) != "" {
		fmt.Printf("--- FAIL: %s: ended at the first error\n", e.Name())
		os.Exit(1)
	}
}

// Clock is the clock of the bubble or of the machine, for clients and histories.
func (e *Env) Clock() time.Duration { return time.Since(e.Start) }

// Channel returns the full name of a channel for messages about a name.
func (e *Env) Channel(name, channel string) string {
	if e.cluster != nil {
		return "noonlock:{" + name + "}:" + channel
	}
	return "noonlock:" + channel
}

// Subscribers returns how many clients receive the messages of a channel about a name, see
// lock.Name.Channel.
func (e *Env) Subscribers(name, channel string) int64 {
	e.Helper()
	full := e.Channel(name, channel)
	n, err := e.Raw.PubSubNumSub(e.Context(), full).Result()
	Must(e, err)
	return n[full]
}

// LoseData restarts the server without its data. In a cluster and behind a Sentinel, it deletes
// the data.
func (e *Env) LoseData() {
	e.Helper()
	switch {
	case e.Bubble != nil:
		e.Bubble.Stop()
		e.Bubble.Server().FlushAll()
		Must(e, e.Bubble.Start())
	case e.Real != nil:
		e.Real.Restart(e) // its configuration stores nothing on disk
	default:
		Must(e, e.Raw.FlushAll(e.Context()).Err())
		Must(e, e.Raw.ScriptFlush(e.Context()).Err())
	}
}

// Exists reports whether a key exists.
func (e *Env) Exists(key string) bool {
	e.Helper()
	n, err := e.Raw.Exists(e.Context(), key).Result()
	Must(e, err)
	return n == 1
}

// PTTL returns the remaining TTL of a key.
func (e *Env) PTTL(key string) time.Duration {
	e.Helper()
	d, err := e.Raw.PTTL(e.Context(), key).Result()
	Must(e, err)
	return d
}

// Knows reports whether the server supports a command.
func (e *Env) Knows(command string) bool {
	e.Helper()
	list, err := e.Raw.Do(e.Context(), "command", "info", command).Slice()
	Must(e, err)
	return len(list) == 1 && list[0] != nil
}

// Received returns the messages that a subscription has received since the last call, as
// "channel payload". channel must be one of its channels.
func (e *Env) Received(sub *redis.PubSub, channel string) (all []string) {
	e.Helper()
	const end = "end of messages"
	Must(e, e.Raw.Publish(e.Context(), channel, end).Err())
	for {
		m, err := sub.ReceiveMessage(e.Context())
		Must(e, err)
		if m.Payload == end {
			return all
		}
		all = append(all, m.Channel+" "+m.Payload)
	}
}

// WaitIdle waits until all goroutines in the bubble are blocked. On a real server it does
// nothing; use Until.
func (e *Env) WaitIdle() {
	if e.Bubble != nil {
		synctest.Wait()
	}
}

// Until waits for a condition.
func (e *Env) Until(what string, condition func() bool) {
	e.Helper()
	longest, step, growth, most := Patience, 2*time.Millisecond, 1.0, 10*time.Second
	switch {
	case e.Bubble != nil && e.Days:
		longest, growth = 24*time.Hour, 1.05
	case e.Bubble == nil: // each check takes real time
		growth, most = 1.1, 10*time.Millisecond
	}
	for waited := time.Duration(0); ; waited += step {
		e.WaitIdle()
		if condition() {
			return
		}
		if waited > longest {
			e.Fatalf("timed out waiting until %s", what)
		}
		step = min(time.Duration(float64(step)*growth), most)
		<-time.After(step)
	}
}

// Pass lets the duration d pass. In a bubble it sleeps. On a real server it waits until a
// key has expired, so that the time has also passed for the server.
func (e *Env) Pass(d time.Duration) {
	e.Helper()
	if e.Bubble != nil {
		time.Sleep(d)
		synctest.Wait()
		return
	}
	probe := fmt.Sprintf("probe:%d", e.probes.Add(1))
	Must(e, e.Raw.Set(e.Context(), probe, 1, d).Err())
	e.Until("time has passed", func() bool { return !e.Exists(probe) })
}
