package lockcore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A use is the use of one name by several clients. It asserts that no two leases are valid at a time, and that tokens
// grow.
type use struct {
	e      *env
	name   string
	hold   func(ctx context.Context, lease *lockcore.Lease) // until the release; nil: up to 3 ms
	failed func(call string, err error)                     // nil: no call may fail

	mu      sync.Mutex
	present *lockcore.Lease
	token   uint64 // the greatest
	leases  int
}

func (u *use) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.leases
}

// goesOn waits until the name was acquired so many times more.
func (u *use) goesOn(times int) {
	u.e.Helper()
	before := u.count()
	u.e.Until(u.name+" is used again", func() bool { return u.e.Failed() || u.count() > before+times })
}

// repeat acquires and releases a lock until ctx ends.
func (u *use) repeat(ctx context.Context, m locker) {
	for ctx.Err() == nil {
		lease, err := m.Lock(ctx)
		if err != nil {
			u.fails(ctx, "Lock", err)
			continue
		}
		u.begin(lease)
		if u.hold != nil {
			u.hold(ctx, lease)
		} else {
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
		u.end(lease)
		if err := lease.Unlock(u.e.Context()); err != nil {
			u.fails(u.e.Context(), "Unlock", err)
		}
	}
}

func (u *use) fails(ctx context.Context, call string, err error) {
	switch {
	case ctx.Err() != nil:
	case u.failed != nil:
		u.failed(call, err)
	default:
		u.e.Errorf("%s: %s: %v", u.name, call, err)
	}
}

// begin records a grant.
func (u *use) begin(lease *lockcore.Lease) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if lease.Token() <= u.token {
		u.e.Errorf("%s: token %d after %d", u.name, lease.Token(), u.token)
	}
	if u.present != nil && u.present.Context().Err() == nil {
		u.e.Errorf("%s: two leases are valid, with tokens %d and %d", u.name, u.present.Token(), lease.Token())
	}
	u.token, u.present = lease.Token(), lease
	u.leases++
}

// end records that a lease is no longer used.
func (u *use) end(lease *lockcore.Lease) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.present == lease {
		u.present = nil
	}
}

const chaosTTL = 500 * time.Millisecond

// Eight Clients hand a lock on, while a random minority of five servers is killed, frozen or
// flushed at any time. No two hold it at the same time, and the tokens increase.
//
//nolint:paralleltest // it loads the machine so much that other tests would be late
func TestQuorumChaos(t *testing.T) {
	e := &quorumEnv{env: &env{Env: &testenv.Env{T: t}}, maxTTL: chaosTTL}
	for range 5 {
		e.real = append(e.real, servers.Redis(t))
	}
	u := &use{e: e.env, name: "chaos", hold: func(_ context.Context, lease *lockcore.Lease) {
		began := time.Now()
		for n := rand.IntN(50); n == 0 && lease.Context().Err() == nil && time.Since(began) < chaosTTL; {
			time.Sleep(time.Millisecond) // a lease that is renewed
		}
	}, failed: func(string, error) {}} // a release may be unknown, and a lease lost with it
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		cfg := lockcore.Config{Identity: fmt.Sprint("client-", i), Logger: lockcore.Discard}
		m := e.mutex(e.clientWith(lockcore.QuorumConfig{Config: cfg}), u.name)
		all.Go(func() { u.repeat(ctx, m) })
	}
	want, faults := testenv.Size(300, 3000), map[string]int{}
	for begin := time.Now(); u.count() < want && !t.Failed(); {
		if time.Since(begin) > patience+time.Duration(want)*50*time.Millisecond {
			t.Errorf("%d leases, want %d", u.count(), want)
		}
		for _, i := range rand.Perm(5)[:1+rand.IntN(2)] {
			s := e.real[i]
			switch rand.IntN(4) {
			case 0:
				faults["killed"]++
				s.Kill()
				time.Sleep(rand.N(chaosTTL))
				s.Restart(t)
			case 1:
				faults["restarted"]++
				s.Restart(t)
			case 2:
				faults["frozen"]++
				s.Pause()
				time.Sleep(rand.N(2 * chaosTTL))
				s.Resume()
			case 3:
				faults["flushed"]++
				e.admin(s, "flushall")
			}
		}
		for _, s := range e.real {
			rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
			// Another loss of data would otherwise concern more than a minority.
			e.Until("the server grants locks", func() bool {
				marker := rdb.HGetAll(t.Context(), quorumMarkerKey).Val()
				after, err := strconv.ParseInt(marker["after"], 10, 64)
				now := rdb.Time(t.Context()).Val()
				return err == nil && strings.Contains(rdb.Info(t.Context(), "server").Val(), "run_id:"+marker["run"]) && now.UnixMilli() >= after
			})
			rdb.Close()
		}
		time.Sleep(rand.N(chaosTTL / 2))
	}
	cancel()
	all.Wait()
	servers.Count(t, "%d leases of a quorum of 5 by 8 Clients, with %v servers", u.count(), faults)
}
