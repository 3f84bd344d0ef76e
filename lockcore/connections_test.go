package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/auth"

	"github.com/noonlock/noonlock/lockcore"
)

// A rotation is a provider of credentials that change.
type rotation struct {
	mu        sync.Mutex
	now       auth.Credentials
	listeners map[int]auth.CredentialsListener
	last      int
}

func (r *rotation) Subscribe(l auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	n := r.last
	r.listeners[n] = l
	return r.now, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, n)
		return nil
	}, nil
}

func (r *rotation) rotate(now auth.Credentials) {
	r.mu.Lock()
	r.now = now
	var all []auth.CredentialsListener
	for _, l := range r.listeners {
		all = append(all, l)
	}
	r.mu.Unlock()
	for _, l := range all {
		l.OnNext(now)
	}
}

// The password changes thirty times. One provider announces the changes, another one has to
// be asked. Leases are renewed, locks are acquired, and the number of connections does not
// grow.
//
// Caught mutant: no limit of idle connections. go-redis then opens one more for each
// rotation.
func TestFault71_RotatedCredentials(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"streaming", "context", "plain"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			e := realEnv(t)
			rules := append([]string{"~noonlock:*", "resetchannels", "&noonlock:*", "+@all"}, ">p0")
			must(e, e.Raw.ACLSetUser(e.Context(), "app", append([]string{"reset", "on"}, rules...)...).Err())
			r := &rotation{now: auth.NewBasicCredentials("app", "p0"), listeners: map[int]auth.CredentialsListener{}}
			current := func() (string, string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.now.BasicAuth()
			}
			opt := e.Direct()
			switch kind {
			case "streaming":
				opt.StreamingCredentialsProvider = r
			case "context":
				opt.CredentialsProviderContext = func(context.Context) (string, string, error) {
					user, password := current()
					return user, password, nil
				}
			default:
				opt.CredentialsProvider = current
			}
			c := e.ClientWith(opt, lockcore.Config{})
			lease := e.try(e.mutex(c, "held", ttl(30*time.Second)))
			for i := range 30 {
				must(e, e.Raw.ACLSetUser(e.Context(), "app", fmt.Sprintf(">p%d", i+1)).Err())
				r.rotate(auth.NewBasicCredentials("app", fmt.Sprintf("p%d", i+1)))
				must(e, e.Raw.ACLSetUser(e.Context(), "app", fmt.Sprintf("<p%d", i)).Err())
				var wg sync.WaitGroup
				for n := range 8 {
					wg.Go(func() {
						e.unlock(e.lock(e.mutex(c, fmt.Sprint("m", n), ttl(30*time.Second))))
					})
				}
				wg.Wait()
				if i%10 == 9 { // some connections are lost, too
					_ = e.Raw.Do(e.Context(), "client", "kill", "user", "app").Err()
				}
				if n := e.connections("user=app"); n > 2*(4+3+1) {
					t.Errorf("%d connections after %d rotations", n, i+1)
				}
			}
			e.Until("no more connections than at first are left", func() bool { return e.connections("user=app") <= 4+3+1 })
			r.mu.Lock()
			listening := len(r.listeners)
			r.mu.Unlock()
			if listening > 2*(4+3+1) {
				t.Errorf("%d listeners are left", listening)
			}
			if lease.Context().Err() != nil {
				t.Errorf("the lease has ended: %v", context.Cause(lease.Context()))
			}
			e.unlock(lease)
		})
	}
}
