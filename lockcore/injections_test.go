package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A deployment is where TestInjections runs.
type deployment struct {
	*env
	primary *servers.RedisServer   // of the names
	all     []*servers.RedisServer // the primary and its replicas
	client  func(identity string) *lockcore.Client
	move    func(primary *servers.RedisServer) // a slot of the names; nil: no cluster

	// promote makes a replica the primary. The old primary may be dead.
	promote func(old *servers.RedisServer, dead bool)

	log     testenv.Log
	secrets []string // which must not be in the log
}

// The user of the clients. Sentinels, replicas and the test are other users.
const (
	injectedUser     = "app"
	injectedPassword = "not-to-be-logged"
)

// injectedConf are the lines of redis.conf for TestInjections. All data survives a SIGKILL.
var injectedConf = []string{
	"user " + injectedUser + " on >" + injectedPassword + " ~* &* +@all", "appendonly yes", "appendfsync always",
}

// An injection is a fault of a server, which ends by itself or is ended.
type injection struct {
	name   string
	losing bool // class D: writes may be lost
	inject func(d *deployment, p *servers.RedisServer)
}

func (d *deployment) injections() []injection {
	const lasts = 300 * time.Millisecond
	during := func(begin, end string) func(*deployment, *servers.RedisServer) {
		return func(d *deployment, p *servers.RedisServer) {
			rdb := redis.NewClient(testenv.Options(p.Addr())) // one connection, as no other may be allowed
			defer rdb.Close()
			d.send(rdb, strings.Split(begin, ";")...)
			time.Sleep(lasts)
			d.send(rdb, strings.Split(end, ";")...)
		}
	}
	once := func(command string) func(*deployment, *servers.RedisServer) {
		return func(d *deployment, p *servers.RedisServer) { d.admin(p, command) }
	}
	return []injection{
		{"11 connections are reset", false, func(d *deployment, p *servers.RedisServer) {
			d.admin(p, "client kill type normal", "client kill type pubsub")
		}},
		{"14 the primary restarts with its data", false, func(d *deployment, p *servers.RedisServer) {
			p.Kill()
			d.restart(p)
		}},
		{"15 the primary restarts empty", true, func(d *deployment, p *servers.RedisServer) {
			p.Kill()
			for _, data := range []string{"appendonlydir", "appendonly.aof"} { // since Redis 7, and before
				must(d, os.RemoveAll(filepath.Join(p.Dir(), data)))
			}
			d.restart(p)
		}},
		{"17 the primary is killed", true, func(d *deployment, p *servers.RedisServer) {
			p.Kill()
			d.promote(p, true)
		}},
		{"18 a failover on request", true, func(d *deployment, p *servers.RedisServer) { d.promote(p, false) }},
		{"20 too few replicas", false, during("config set min-replicas-to-write 9", "config set min-replicas-to-write 0")},
		{"21 a slot moves", false, func(d *deployment, p *servers.RedisServer) {
			if d.move != nil {
				d.move(p)
			}
		}},
		{"22 keys are evicted", true, during("config set maxmemory-policy allkeys-random;config set maxmemory 1", "config set maxmemory 0;config set maxmemory-policy noeviction")},
		{"23 FLUSHALL", true, once("flushall")},
		{"30 SCRIPT FLUSH", false, once("script flush")},
		{"31 the server is out of memory", false, during("config set maxmemory 1", "config set maxmemory 0")},
		{"33 a script blocks the server", false, func(d *deployment, p *servers.RedisServer) {
			rdb := redis.NewClient(testenv.Options(p.Addr()))
			defer rdb.Close()
			must(d, rdb.Eval(d.Context(), "local n = 0 for i = 1, 2e7 do n = n + i end return 1", nil).Err())
		}},
		{"44 no connection can be opened", false, during("config set maxclients 1;client kill type normal", "config set maxclients 10000")},
		{"60 a right is missing", false, during("acl setuser "+injectedUser+" -eval -evalsha", "acl setuser "+injectedUser+" +@all")},
		{"7 the server is frozen", false, func(_ *deployment, p *servers.RedisServer) {
			p.Pause()
			time.Sleep(lasts)
			p.Resume()
		}},
	}
}

// restart starts a primary again, and waits until its replicas are linked: the next fault must not meet a server
// that is already alone.
func (d *deployment) restart(p *servers.RedisServer) {
	d.Helper()
	p.Restart(d)
	d.linked()
}

// linked waits until all other servers are linked to a primary, which is then the primary.
func (d *deployment) linked() {
	d.Helper()
	info := func(s *servers.RedisServer) string {
		rdb := redis.NewClient(testenv.Options(s.Addr()))
		defer rdb.Close()
		return rdb.Info(d.Context(), "replication").Val()
	}
	d.Until("all replicas are linked", func() bool {
		primary, linked := (*servers.RedisServer)(nil), 0
		for _, s := range d.all {
			text := info(s)
			switch {
			case strings.Contains(text, "role:master") && strings.Count(text, "state=online") == len(d.all)-1:
				primary = s
			case strings.Contains(text, "master_link_status:up"):
				linked++
			}
		}
		d.primary = primary
		return primary != nil && linked == len(d.all)-1
	})
}

// Each fault is injected while locks are acquired, renewed, handed over and released. Without a loss of data, no two
// leases of a name are valid at a time. With one, the older lease reports its loss. Tokens always grow, and each
// name is used again after each fault. No log line and no error contains a secret (fault 62). Fault 12 does not
// exist here, and fault 37 cannot be injected into a lock, which does not read the wall clock.
func TestInjections(t *testing.T) {
	testenv.OnlyNightly(t)
	t.Parallel()
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		w := sentinelEnv(t, injectedConf...)
		for _, s := range w.sentinels {
			w.admin(s, "sentinel set "+watchedName+" failover-timeout 1000")
		}
		d := &deployment{env: w.env, primary: w.primary, all: append([]*servers.RedisServer{w.primary}, w.replicas...)}
		d.client = func(identity string) *lockcore.Client {
			opt := w.options(identity)
			opt.Username, opt.Password = injectedUser, injectedPassword
			return w.client(opt, lockcore.Config{Identity: identity, Logger: d.log.Logger()})
		}
		d.promote = func(old *servers.RedisServer, dead bool) {
			next := w.promote(old.Addr())
			if dead {
				old.Restart(w)
				host, port, err := net.SplitHostPort(next)
				must(w, err)
				w.admin(old, "replicaof "+host+" "+port, "config rewrite") // a Sentinel does so after 8 s
			}
			d.linked()
		}
		d.injectAll()
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := clusterEnv(t, 3, append([]string{"cluster-node-timeout 60000"}, injectedConf...)...)
		slot := s.slot(firstName)
		home := s.Owner(slot, s.Primaries...)
		away := s.Primaries[(slices.Index(s.Primaries, home)+1)%3]
		replica := s.Replicas[slices.Index(s.Primaries, home)]
		d := &deployment{env: s.env, primary: home, all: []*servers.RedisServer{home, replica}}
		d.client = func(identity string) *lockcore.Client {
			return s.clientOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs(), Username: injectedUser, Password: injectedPassword}),
				lockcore.Config{Identity: identity, Logger: d.log.Logger()})
		}
		d.promote = func(old *servers.RedisServer, dead bool) {
			next := d.all[0]
			if next == old {
				next = d.all[1]
			}
			// Without a vote: the others vote only once in two timeouts.
			d.admin(next, "cluster failover takeover")
			d.Until("the replica serves the slot", func() bool { return s.Owner(slot, next) != nil })
			if dead {
				old.Restart(d)
			}
			d.linked()
		}
		d.move = func(p *servers.RedisServer) {
			slot := s.slot(secondName)
			s.Move(slot, p, away).Finish()
			s.Move(slot, away, p).Finish()
		}
		d.injectAll()
	})
}

// injectAll injects each fault three times.
func (d *deployment) injectAll() {
	d.Helper()
	ctx, cancel := context.WithCancel(d.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	var uses []*use
	for i, name := range []string{firstName, secondName} {
		u := &use{e: d.env, name: name, hold: func(context.Context, *lockcore.Lease) {
			hold := time.Duration(rand.IntN(20)) * time.Millisecond
			if rand.IntN(10) == 0 {
				hold = 1500 * time.Millisecond // longer than the time between two renewals
			}
			time.Sleep(hold)
		}, failed: func(call string, err error) { // the server refuses for now
			d.log.Logger().Info(call, "err", err)
			time.Sleep(20 * time.Millisecond)
		}}
		uses = append(uses, u)
		for n := range 3 {
			c := d.client(fmt.Sprint("c", 3*i+n))
			d.secrets = append(d.secrets, c.Process())
			m := d.mutex(c, name, ttl(3*time.Second))
			all.Go(func() { u.repeat(ctx, m) })
		}
	}
	used := func() {
		d.Helper()
		for _, u := range uses {
			u.goesOn(5)
		}
	}
	used()
	injected := 0
	for _, fault := range d.injections() {
		began := time.Now()
		for range 3 {
			injected++
			for _, u := range uses {
				u.expect(fault)
			}
			fault.inject(d, d.primary)
			used()
		}
		d.Logf("%s: three times in %v", fault.name, time.Since(began).Truncate(time.Second))
	}
	for _, u := range uses {
		d.Logf("%s: %d injections, %d leases, %d lost and reported", u.name, injected, u.count(), u.lost)
	}
	for _, secret := range append(d.secrets, injectedPassword) {
		if d.log.Count(secret) > 0 {
			d.Error("the log contains a secret")
		}
	}
}
