package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// injectionsVariable is how often TestInjections injects each fault; the default is 1.
const injectionsVariable = "NOONLOCK_INJECTIONS"

// A deployment is where TestInjections runs.
type deployment struct {
	*env
	primary *servers.RedisServer // of the names
	client  func(identity string) *lockcore.Client
	move    func(primary *servers.RedisServer) // a slot of the names; nil: no cluster
}

// An injection is a fault of a server, which ends by itself or is ended.
type injection struct {
	name   string
	losing bool // class D: writes may be lost
	inject func(d *deployment, p *servers.RedisServer)
}

func injections() []injection {
	const lasts = 300 * time.Millisecond
	during := func(begin, end string) func(*deployment, *servers.RedisServer) {
		return func(d *deployment, p *servers.RedisServer) {
			rdb := redis.NewClient(testenv.Options(p.Addr())) // one connection, as no other may be allowed
			defer rdb.Close()
			d.send(rdb, strings.Split(begin, ";")...)
			time.Sleep(lasts)
			d.send(rdb, end)
		}
	}
	once := func(command string) func(*deployment, *servers.RedisServer) {
		return func(d *deployment, p *servers.RedisServer) { d.admin(p, command) }
	}
	return []injection{
		{"11 connections are reset", false, func(d *deployment, p *servers.RedisServer) {
			d.admin(p, "client kill type normal", "client kill type pubsub")
		}},
		{"20 too few replicas", false, during("config set min-replicas-to-write 9", "config set min-replicas-to-write 0")},
		{"21 a slot moves", false, func(d *deployment, p *servers.RedisServer) {
			if d.move != nil {
				d.move(p)
			}
		}},
		{"23 FLUSHALL", true, once("flushall")},
		{"30 SCRIPT FLUSH", false, once("script flush")},
		{"31 the server is out of memory", false, during("config set maxmemory 1", "config set maxmemory 0")},
		{"33 a script blocks the server", false, func(d *deployment, p *servers.RedisServer) {
			rdb := redis.NewClient(testenv.Options(p.Addr()))
			defer rdb.Close()
			must(d, rdb.Eval(d.Context(), "local n = 0 for i = 1, 2e7 do n = n + i end return 1", nil).Err())
		}},
		{"44 no connection can be opened", false, during("config set maxclients 1;client kill type normal", "config set maxclients 10000")},
		{"60 a right is missing", false, during("acl setuser default -eval -evalsha", "acl setuser default +@all")},
		{"7 the server is frozen", false, func(_ *deployment, p *servers.RedisServer) {
			p.Pause()
			time.Sleep(lasts)
			p.Resume()
		}},
	}
}

// Each fault is injected while locks are acquired, renewed, handed over and released. Without a
// loss of data, no two leases of a name are valid at a time. With one, the older lease reports
// its loss. Tokens always grow, and each name is used again after each fault.
func TestInjections(t *testing.T) {
	t.Parallel()
	count := 1
	if text := os.Getenv(injectionsVariable); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", injectionsVariable, err)
		}
	}
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		w := sentinelEnv(t)
		for _, s := range w.sentinels { // a slow server is no reason for a failover here
			w.admin(s, "sentinel set "+watchedName+" down-after-milliseconds 60000")
		}
		d := &deployment{env: w.env, primary: w.primary, client: func(identity string) *lockcore.Client { return w.failoverClient(identity, nil) }}
		d.injectAll(count)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		s := clusterEnv(t, 0, "cluster-node-timeout 60000")
		home := s.Owner(s.slot(firstName), s.Primaries...)
		away := s.Primaries[(slices.Index(s.Primaries, home)+1)%3]
		d := &deployment{env: s.env, primary: home, client: func(identity string) *lockcore.Client { return s.clusterClient(identity) }}
		d.move = func(p *servers.RedisServer) {
			slot := s.slot(secondName)
			s.Move(slot, p, away).Finish()
			s.Move(slot, away, p).Finish()
		}
		d.injectAll(count)
	})
}

func (d *deployment) injectAll(count int) {
	d.Helper()
	ctx, cancel := context.WithCancel(d.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	uses := []*use{{name: firstName}, {name: secondName}}
	for i := range 6 {
		u := uses[i%len(uses)]
		m := d.mutex(d.client(fmt.Sprint("c", i)), u.name, ttl(3*time.Second))
		all.Go(func() { u.repeat(ctx, d, m) })
	}
	used := func() {
		d.Helper()
		for _, u := range uses {
			before := u.count()
			d.Until(u.name+" is used again", func() bool { return d.Failed() || u.count() > before+5 })
		}
	}
	used()
	for _, fault := range injections() {
		for range count {
			for _, u := range uses {
				u.expect(fault)
			}
			fault.inject(d, d.primary)
			used()
		}
	}
	for _, u := range uses {
		d.Logf("%s: %d leases, %d lost and reported", u.name, u.count(), u.lost)
	}
}

// A use is the use of one name by several clients.
type use struct {
	name string

	mu      sync.Mutex
	fault   injection // the last one
	present *held
	token   uint64 // the greatest
	leases  int
	lost    int
}

// A held is a lease that is in use.
type held struct {
	*lockcore.Lease
	fragile bool // a fault that loses writes was injected during the lease, or just before it
	taken   bool // another lease was granted meanwhile
}

func (u *use) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.leases
}

func (u *use) expect(fault injection) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = fault
	if u.present != nil && fault.losing {
		u.present.fragile = true
	}
}

func (u *use) repeat(ctx context.Context, d *deployment, m locker) {
	for ctx.Err() == nil {
		lease, err := m.Lock(ctx)
		if err != nil { // the server refuses for now
			time.Sleep(20 * time.Millisecond)
			continue
		}
		h := u.begin(d, lease)
		hold := time.Duration(rand.IntN(20)) * time.Millisecond
		if rand.IntN(10) == 0 {
			hold = 1500 * time.Millisecond // longer than the time between two renewals
		}
		time.Sleep(hold)
		if u.end(h) {
			mustIs(d, d.ended(lease), lockcore.ErrLeaseLost)
		}
		_ = lease.Unlock(d.Context()) // the server may refuse
	}
}

// begin records a grant.
func (u *use) begin(d *deployment, lease *lockcore.Lease) *held {
	u.mu.Lock()
	defer u.mu.Unlock()
	if lease.Token() <= u.token {
		d.Errorf("%s, after %q: token %d after %d", u.name, u.fault.name, lease.Token(), u.token)
	}
	if u.present != nil && u.present.Context().Err() == nil {
		u.present.taken = true // its next renewal reports that
		u.lost++
		if !u.present.fragile {
			d.Errorf("%s, after %q: two leases are valid, with tokens %d and %d", u.name, u.fault.name, u.present.Token(), lease.Token())
		}
	}
	u.token = lease.Token()
	u.leases++
	u.present = &held{Lease: lease, fragile: u.fault.losing}
	return u.present
}

// end records that a lease is no longer used. It reports whether another one was granted.
func (u *use) end(h *held) (taken bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.present == h {
		u.present = nil
	}
	return h.taken
}
