package lock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// twoServers is a Wire with two servers. Names that begin with "b" are at the second one
// until they are moved to the first.
type twoServers struct {
	wire.Wire
	second wire.Wire

	mu    sync.Mutex
	moved bool
}

func (w *twoServers) at(name string) wire.Wire {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasPrefix(name, "b") && !w.moved {
		return w.second
	}
	return w.Wire
}

func (w *twoServers) Send(ctx context.Context, name string, r wire.Request, timeout time.Duration) (any, error) {
	return w.at(name).Send(ctx, name, r, timeout)
}

func (w *twoServers) Renewals(name string) wire.Renewals {
	return w.at(name).Renewals(name)
}

func (w *twoServers) Messages(name string) wire.Messages { return w.at(name).Messages(name) }

func (w *twoServers) Close() {
	w.Wire.Close()
	w.second.Close()
}

// Each lease is renewed at the server of its name. A hung server delays no lease of another
// server. If a name moves, its lease is renewed at the new server, and later answers of the
// former server change nothing.
func TestLeasesOfTwoServers(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			first, second := lockcoretest.NewRedis(t), lockcoretest.NewRedis(t)
			faults := lockcoretest.NewFaults()
			rdb := redis.NewClient(first.Options())
			defer rdb.Close()
			other := redis.NewClient(second.OptionsVia(faults))
			defer other.Close()
			scripts, err := OwnScripts()
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(rdb, Config{}, scripts, nil)
			if err != nil {
				t.Fatal(err)
			}
			target, err := targetOf("other", other)
			if err != nil {
				t.Fatal(err)
			}
			w := &twoServers{Wire: c.wire, second: target.connect(c.wireConfig())}
			c.wire = w
			hold := func(name string) *Lease {
				n, err := c.UserName(name, c.Mutex(), LeaseConfig{TTL: 3 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				l, err := n.TryLock(t.Context(), c.Mutex())
				if err != nil {
					t.Fatal(err)
				}
				return l
			}
			a, b := hold("a"), hold("b")
			for _, server := range []struct {
				raw *redis.Client
				key string
			}{{first.Client(), a.a.keys.lock}, {second.Client(), b.a.keys.lock}} {
				if n := server.raw.Exists(t.Context(), server.key).Val(); n != 1 {
					t.Fatalf("%s is not at its server", server.key)
				}
			}
			time.Sleep(20 * time.Second) // both are renewed
			if a.Context().Err() != nil || b.Context().Err() != nil {
				t.Fatalf("a: %v, b: %v", context.Cause(a.Context()), context.Cause(b.Context()))
			}
			late := faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest})
			time.Sleep(1100 * time.Millisecond) // a renewal of b is in flight
			if moves {
				// The second server loses the lock, and the renewal arrives after that.
				value := second.Client().GetDel(t.Context(), b.a.keys.lock).Val()
				if err := first.Client().Set(t.Context(), b.a.keys.lock, value, 3*time.Second).Err(); err != nil {
					t.Fatal(err)
				}
				w.mu.Lock()
				w.moved = true
				w.mu.Unlock()
				late.Lift()
			}
			for range 200 {
				time.Sleep(100 * time.Millisecond)
				if left := a.Remaining(); left < 1900*time.Millisecond {
					t.Fatalf("the lease of the live server has only %v left", left)
				}
			}
			if moves && b.Context().Err() != nil {
				t.Errorf("the lease ended after its name moved: %v", context.Cause(b.Context()))
			}
			if !moves && !errors.Is(context.Cause(b.Context()), ErrLeaseExpired) {
				t.Errorf("the lease of the dead server: %v", context.Cause(b.Context()))
			}
			if !moves {
				late.Lift()
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
