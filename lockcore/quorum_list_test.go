package lockcore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// The list of servers changes as docs/OPERATIONS.md says: a server is replaced, and then two are
// added. Clients with the earlier list lose their leases before one with the new list acquires
// the lock, and acquire nothing more. Tokens grow.
func TestQuorumChangesItsList(t *testing.T) {
	onServers(t, 6, func(e *quorumEnv) {
		all := e.options()
		client := func(list int, of ...int) *lockcore.Client {
			var options []*redis.Options
			for _, i := range of {
				options = append(options, all[i])
			}
			return e.clientOf(options, lockcore.QuorumConfig{List: list, MaxTTL: e.maxTTL})
		}
		old := client(1, 0, 1, 2)
		last := e.lock(e.mutex(old, "orders"))
		for _, next := range []struct {
			name string
			list int
			of   []int
		}{
			{"server 2 is replaced", 2, []int{0, 1, 3}},
			{"two are added", 3, []int{0, 1, 3, 4, 5}},
		} {
			c := client(next.list, next.of...)
			got := make(chan *lockcore.Lease, 1)
			valid := make(chan bool, 1)
			go func() {
				ctx, cancel := context.WithTimeout(e.Context(), patience)
				defer cancel()
				l, err := e.mutex(c, "orders").Lock(ctx)
				valid <- last.Remaining() > 0
				if err != nil {
					e.Errorf("%s: %v", next.name, err)
				}
				got <- l
			}()
			<-last.Context().Done()
			lease := <-got
			if <-valid {
				e.Errorf("%s: both leases are valid", next.name)
			}
			if lease == nil {
				return
			}
			if lease.Token() <= last.Token() {
				e.Errorf("%s: token %d after %d", next.name, lease.Token(), last.Token())
			}
			_, err := e.mutex(old, "other").TryLock(e.Context())
			mustIs(e, err, lockcore.ErrNoQuorum)
			for _, i := range next.of {
				view := e.view(c, i, next.of)
				if !view.Member || view.List != next.list {
					e.Errorf("%s: server %d is %+v", next.name, i, view)
				}
			}
			old, last = c, lease
		}
		e.unlock(last)
	})
}

// view returns what Inspect shows of a server.
func (e *quorumEnv) view(c *lockcore.Client, server int, of []int) lockcore.ServerView {
	e.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		seen, err := c.Inspect(e.Context(), "orders")
		must(e, err)
		for n, i := range of {
			if i == server && (seen.Servers[n].Member || time.Now().After(deadline)) {
				return seen.Servers[n]
			}
		}
	}
}
