package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// Thousands of cancels race acquires, at night twelve thousand of each kind. Afterwards no lock is held, the queue
// is empty, and no goroutine is left. The TTLs are too long to have expired. A tombstone is left only if the error
// says that a request may still arrive.
func TestFault50_CancelsRaceAcquires(t *testing.T) {
	onAllKinds(t, func(e *env) {
		const workers = 20
		cancels := testenv.Size(2000, 12000)
		if e.Bubble != nil {
			cancels = 600
		}
		e.warmAll()
		clients := []*lockcore.Client{e.Client("a"), e.Client("b"), e.Client("c")}
		names := []string{"one", "two"}
		var acquired, cancelled, unanswered atomic.Int64
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(50, uint64(w))) //nolint:gosec // a test's choices
				for range cancels / workers {
					m := e.mutex(clients[r.IntN(3)], names[r.IntN(2)], ttl(time.Hour))
					var err error
					patience := time.Duration(r.IntN(8000)) * time.Microsecond
					if r.IntN(16) == 0 {
						patience *= 50 // some succeed on a busy machine, too
					}
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					var lease *lockcore.Lease
					if r.IntN(4) == 0 {
						lease, err = m.TryLock(ctx)
					} else {
						lease, err = m.Lock(ctx)
					}
					switch {
					case err == nil:
						acquired.Add(1)
						if e.Bubble != nil {
							time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
						}
						if err := lease.Unlock(ctx); err != nil && ctx.Err() == nil {
							e.Errorf("Unlock: %v", err)
						}
					case errors.Is(err, context.DeadlineExceeded):
						cancelled.Add(1)
						if errors.Is(err, lockcore.ErrUnknown) {
							unanswered.Add(1)
						}
					case !errors.Is(err, lockcore.ErrNotAcquired):
						e.Errorf("%v", err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		e.Logf("%d were cancelled, %d acquired", cancelled.Load(), acquired.Load())
		if cancelled.Load() < int64(cancels)/4 || acquired.Load() == 0 {
			e.Error("cancels and acquires did not race")
		}
		for _, c := range clients {
			must(e, c.Close(context.Background()))
		}
		if tombs := e.tombs("one") + e.tombs("two"); int64(tombs) > unanswered.Load() {
			e.Errorf("%d tombstones after %d cancels, of which %d had a request on its way", tombs, cancelled.Load(), unanswered.Load())
		}
		for _, name := range names {
			if v := e.stored(name); v != "" || e.queueLength(name) != 0 {
				e.Errorf("%s: lock %q, %d in the queue", name, v, e.queueLength(name))
			}
		}
	})
}

// Passwords and the secret part of lock values appear neither in logs nor in errors.
func TestFault62_NoSecretsInLogsAndErrors(t *testing.T) {
	t.Parallel()
	const password = "correct-horse-battery-staple"
	e := &env{Env: &testenv.Env{T: t, Real: servers.Redis(t, "requirepass "+password), Start: time.Now()}}
	opt := e.Direct()
	opt.Password = password
	e.Raw = redis.NewClient(opt)
	t.Cleanup(func() { e.Raw.Close() })
	log := &testenv.Log{}
	var texts []string
	note := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("no error where one was provoked")
			return
		}
		texts = append(texts, err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err))
	}
	client := func(change func(*redis.Options)) *lockcore.Client {
		own := *opt
		change(&own)
		return e.ClientWith(&own, lockcore.Config{Identity: "shown", Logger: log.Logger()})
	}
	same := func(*redis.Options) {}
	a, b := client(same), client(same)
	cfg := ttl(2 * time.Second)
	try := func(c *lockcore.Client, name string) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := e.mutex(c, name, cfg).TryLock(ctx)
		return err
	}

	lease := e.try(e.mutex(a, "orders", cfg))
	secrets := []string{password, a.Process(), b.Process(), strings.SplitN(e.stored("orders"), "/", 2)[0]}
	note(try(b, "orders"))
	waiter := e.queued(e.mutex(b, "orders", ttl(20*time.Second)))
	e.Raw.Del(t.Context(), e.key("orders", "lock"))
	note(e.ended(lease))
	note(lease.Unlock(t.Context()))
	e.unlock(waiter.granted())

	// A value of this library in a reply that the script never returns, and keys of another type.
	e.Raw.Set(t.Context(), e.key("odd", "lock"), "nl1:"+a.Process()+".1", time.Minute)
	e.Raw.SAdd(t.Context(), e.key("kind", "lock"), "nl1:"+a.Process())
	e.Raw.SAdd(t.Context(), e.key("kind2", "fence"), "x")
	for _, name := range []string{"odd", "kind", "kind2"} {
		note(try(a, name))
	}
	for _, change := range []func(*redis.Options){
		func(o *redis.Options) { o.Password = "wrong-" + password },
		func(o *redis.Options) { o.Username, o.Password = "stranger", "wrong-"+password },
		func(o *redis.Options) { o.Password = "" },
		func(o *redis.Options) { o.Addr = unreachable(t) },
	} {
		note(try(client(change), "orders"))
	}

	// The server goes away under a holder, a waiter and a closing client.
	lease = e.try(e.mutex(a, "orders", cfg))
	last := e.queued(e.mutex(b, "orders", cfg))
	e.Real.Kill()
	note(e.ended(lease))
	note(lease.Unlock(t.Context()))
	last.cancel()
	_, err := last.wait()
	note(err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	for _, c := range []*lockcore.Client{a, b} {
		if err := c.Close(ctx); err != nil {
			note(err)
		}
	}

	if log.Count("lease lost") == 0 || log.Count("subscription lost") == 0 {
		t.Errorf("the log does not contain the provoked errors: this test proves nothing\n%s", log)
	}
	// The operator also sees the output of go-redis itself.
	all := strings.Join(append(texts, log.String(), testenv.DependencyLog.String()), "\n")
	for _, secret := range secrets {
		if len(secret) < 8 {
			t.Fatalf("secret %q", secret)
		}
		if at := strings.Index(all, secret); at >= 0 {
			t.Errorf("a secret is visible: %.200s", all[max(0, at-100):])
		}
	}
	if log.Count("nl1:") > 0 {
		t.Errorf("a stored value is logged:\n%s", log)
	}
}
