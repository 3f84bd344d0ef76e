package lockcore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Inspect, the metrics and the log show what each server of a quorum answers.
func TestQuorumServersAreShown(t *testing.T) {
	inQuorumBubble(t, 5, func(e *quorumEnv) {
		reg, log := prometheus.NewRegistry(), &testenv.Log{}
		options := e.options()
		for i, opt := range options {
			opt.Addr = fmt.Sprintf("127.0.0.1:%d", i+1) // its Dialer ignores it
		}
		c := e.clientOf(options, lockcore.QuorumConfig{MaxTTL: e.maxTTL, Config: lockcore.Config{Identity: "a", Registerer: reg, Logger: log.Logger()}})
		lease := e.lock(e.mutex(c, "orders"))
		seen, err := c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockMutex || len(seen.Holders) != 1 || seen.Holders[0].Identity != "a" || seen.Holders[0].TTL <= 0 || seen.Holders[0].TTL > e.maxTTL || len(seen.Servers) != 5 {
			e.Errorf("all servers: %+v", seen)
		}
		for i, s := range seen.Servers {
			if s.Err != nil || s.Address != options[i].Addr || !s.Member || s.List != 1 || s.Waits != 0 || s.Kind != lockcore.LockMutex || len(s.Holders) != 1 {
				e.Errorf("server %d: %+v", i, s)
			}
		}

		e.crash(0)
		must(e, e.bubbles[1].Restart(true))
		// Renewals notice it, and the server is let in. Each of its old connections may
		// cost one of them an EOF first.
		for range 100 {
			time.Sleep(e.maxTTL / 10)
			seen, err = c.Inspect(e.Context(), "orders")
			must(e, err)
			if seen.Servers[1].Member {
				break
			}
		}
		time.Sleep(e.maxTTL / 2) // at least one renewal finds it waiting
		seen, err = c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockMutex || len(seen.Holders) != 1 {
			e.Errorf("three servers have the lock: %+v", seen)
		}
		if s := seen.Servers; s[0].Err == nil || s[0].Member || !s[1].Member || s[1].Waits <= 0 || s[1].Waits > e.maxTTL || s[1].Kind != lockcore.LockFree || len(s[2].Holders) != 1 {
			e.Errorf("the servers: %+v", s)
		}
		of := func(server int, outcome string) float64 {
			return metric(e, reg, "noonlock_quorum_requests_total", "server", options[server].Addr, "outcome", outcome)
		}
		up := func(server int) float64 {
			return metric(e, reg, "noonlock_quorum_server_up", "server", options[server].Addr)
		}
		if of(0, "answered") == 0 || of(0, "failed") == 0 || of(0, "skipped") == 0 || up(0) != 0 {
			e.Errorf("server 0: %v answers, %v failures, %v skipped, up %v", of(0, "answered"), of(0, "failed"), of(0, "skipped"), up(0))
		}
		if of(1, "lost_data") == 0 || of(1, "waiting") == 0 || up(1) != 1 {
			e.Errorf("server 1: %v answers that it lost data, %v that it waits, up %v", of(1, "lost_data"), of(1, "waiting"), up(1))
		}
		if of(2, "answered") == 0 || of(2, "failed")+of(2, "skipped")+of(2, "lost_data") != 0 || up(2) != 1 {
			e.Errorf("server 2: %v answers, %v failures", of(2, "answered"), of(2, "failed"))
		}
		if n := log.Count("does not answer", options[0].Addr); n != 1 {
			e.Errorf("%d lines say that server 0 does not answer:\n%s", n, log)
		}
		if n := log.Count("is a member of the quorum", options[1].Addr); n != 1 {
			e.Errorf("%d lines say that server 1 was let in:\n%s", n, log)
		}
		e.crash(2)
		seen, err = c.Inspect(e.Context(), "orders")
		must(e, err)
		if seen.Kind != lockcore.LockFree || len(seen.Holders) != 0 {
			e.Errorf("two servers have the lock: %+v", seen)
		}
		e.crash(3)
		seen, err = c.Inspect(e.Context(), "orders")
		mustIs(e, err, lockcore.ErrNoQuorum)
		if len(seen.Servers) != 5 || seen.Servers[2].Err == nil || seen.Servers[1].Err != nil {
			e.Errorf("two servers are up: %+v", seen.Servers)
		}
		_ = lease.Unlock(e.Context())
	})
}
