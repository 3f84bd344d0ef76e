package docs_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/singleton"
)

//go:embed migrating_test.go
var migratingTest string

// The functions from here on are the noonlock code of MIGRATING.md.

func runController(ctx context.Context, client *lockcore.Client) error {
	elector, err := election.NewLeaderElector(client, "my-controller", election.Callbacks{
		OnStartedLeading: reconcileUntil, // is awaited
		OnStoppedLeading: func() {},
	}, election.Config{Once: true}) // 15 s, 10 s and 2 s by default
	if err != nil {
		return err
	}
	return elector.Run(ctx)
}

// whileLeading returns an OnStartedLeading; bind is Lock.Bind, and end cancels the context of LeaderElector.Run.
func whileLeading(bind func(context.Context) (context.Context, context.CancelFunc), end context.CancelFunc) func(context.Context) {
	return func(lead context.Context) {
		defer end() // otherwise the elector would continue to renew without the work
		work, stop := bind(lead)
		defer stop()
		reconcileUntil(work)
	}
}

func chargeOrder(ctx context.Context, client *lockcore.Client, order string) error {
	return client.Do(ctx, "charge/"+order, lockcore.LeaseConfig{Wait: 8 * time.Second}, func(ctx context.Context) error {
		return charge(ctx, order, lockcore.FromContext(ctx).Token()) // may take longer than the TTL
	})
}

func runReports(ctx context.Context, client *lockcore.Client) error {
	jobs, err := singleton.NewRunner(client, singleton.Config{})
	if err != nil {
		return err
	}
	err = jobs.Add("report", "*/5 * * * *", func(ctx context.Context, run singleton.Run) error {
		return report(ctx, run.Tick, run.Key())
	}, singleton.JobConfig{})
	if err != nil {
		return err
	}
	return jobs.Run(ctx)
}

// underBoth calls work under the old lock and the new one, acquired in this order.
func underBoth(ctx context.Context, old oldLock, client *lockcore.Client, name string, work func(ctx context.Context) error) (err error) {
	ctx, release, err := old(ctx) // ctx ends when the old lock is lost, if that is known
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	return client.Do(ctx, name, lockcore.LeaseConfig{}, work)
}

// An oldLock acquires the lock to be replaced.
type oldLock func(ctx context.Context) (held context.Context, release func() error, err error)

// leadBoth returns the OnStartedLeading of the old elector in release 2.
func leadBoth(client *lockcore.Client) func(ctx context.Context) {
	return func(ctx context.Context) { // done when the old elector stops leading
		if err := runController(ctx, client); err != nil {
			os.Exit(1) // as the old elector's OnStoppedLeading does
		}
	}
}

// reportFrom returns the work of the job in release 2. The old task does what is due before an instant.
func reportFrom(from time.Time) func(ctx context.Context, run singleton.Run) error {
	return func(ctx context.Context, run singleton.Run) error {
		if run.Tick.Before(from) {
			return nil
		}
		return report(ctx, run.Tick, run.Key())
	}
}

// End of the code of MIGRATING.md.

var (
	_ = runReports
	_ = whileLeading
	_ = chargeOrder
	_ = reportFrom
)

func reconcileUntil(ctx context.Context)              { <-ctx.Done() }
func charge(context.Context, string, uint64) error    { return nil }
func report(context.Context, time.Time, string) error { return nil }

var function = regexp.MustCompile(`(?ms)^func (\w+)\(.*?^}\n`)

// The guide shows each program of the other libraries, as bench compiles it, and then ours, which is not longer.
// It names the versions that bench uses.
func TestMigratingCodeIsCompiled(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for _, name := range []string{"MIGRATING.md", "../bench/migrating_test.go", "../bench/go.mod"} {
		text := testenv.Call(os.ReadFile(name)).Must(t)
		files[filepath.Base(name)] = string(text)
	}
	guide := files["MIGRATING.md"]
	for _, block := range goCode.FindAllStringSubmatch(guide, -1) {
		if !strings.Contains(migratingTest, "\n"+block[1]) && !strings.Contains(files["migrating_test.go"], "\n"+block[1]) {
			t.Errorf("neither docs/migrating_test.go nor bench/migrating_test.go has this code:\n%s", block[1])
		}
	}
	lines := map[string]int{}
	for _, f := range function.FindAllStringSubmatch(migratingTest, -1) {
		lines[f[1]] = strings.Count(f[0], "\n")
	}
	theirs, _, _ := strings.Cut(files["migrating_test.go"], "// End of the code")
	programs := function.FindAllStringSubmatch(theirs, -1)
	for _, f := range programs {
		_, after, shown := strings.Cut(guide, f[0])
		of, _, _ := strings.Cut(f[1], "By")
		if !shown || !strings.Contains(after, "\nfunc "+of+"(ctx context.Context, client *lockcore.Client") {
			t.Errorf("the guide does not show %s, and then ours", f[1])
		}
		if n := strings.Count(f[0], "\n"); lines[of] == 0 || lines[of] > n {
			t.Errorf("%s has %d lines, and ours %d", f[1], n, lines[of])
		}
	}
	versions := regexp.MustCompile(`([a-z-]+) v(\d+\.\d+\.\d+)`).FindAllStringSubmatch(guide, -1)
	if len(versions) != 6 || len(programs) != 5 {
		t.Errorf("%d versions and %d programs", len(versions), len(programs))
	}
	for _, v := range versions {
		if !regexp.MustCompile(`/` + v[1] + `(/v\d)? v` + v[2] + `\n`).MatchString(files["go.mod"]) {
			t.Errorf("bench has another version of %s than %s", v[1], v[2])
		}
	}
}

// setNX acquires a lock as redsync and redislock do. drop releases it as they do, after a
// check of the value.
func setNX(t testing.TB, rdb redis.UniversalClient, key, value string, ttl time.Duration) bool {
	t.Helper()
	err := rdb.SetArgs(t.Context(), key, value, redis.SetArgs{Mode: "NX", TTL: ttl}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return err == nil
}

// obtain acquires as redislock does: all keys at once, then their TTL.
func obtain(t testing.TB, rdb redis.UniversalClient, key, value string, ttl time.Duration) bool {
	t.Helper()
	ok, err := rdb.MSetNX(t.Context(), key, value).Result()
	if err == nil && ok {
		err = rdb.PExpire(t.Context(), key, ttl).Err()
	}
	testenv.Must(t, err)
	return ok
}

func drop(t testing.TB, rdb redis.UniversalClient, key, value string) bool {
	t.Helper()
	n, err := rdb.Eval(t.Context(), "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0",
		[]string{key}, value).Int()
	testenv.Must(t, err)
	return n == 1
}

// A client that uses only SET NX PX and a Mutex exclude each other if the client uses the
// key that the guide names.
func TestSharedKey(t *testing.T) {
	t.Parallel()
	const key = "noonlock:{orders}:lock"
	for name, take := range map[string]func(testing.TB, redis.UniversalClient, string, string, time.Duration) bool{"redsync": setNX, "redislock": obtain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				rdb := e.Raw
				m := testenv.Call(e.Client("ours").Mutex("orders", lockcore.LeaseConfig{})).Must(e)
				if !take(e, rdb, key, "theirs", 3*time.Second) {
					e.Fatal("the lock is not free")
				}
				if _, err := m.TryLock(e.Context()); !errors.Is(err, lockcore.ErrNotAcquired) {
					e.Errorf("while they hold it: %v", err)
				}
				begin := time.Now()
				lease := testenv.Call(m.Lock(e.Context())).Must(e)
				if took := time.Since(begin); took < 3*time.Second-time.Millisecond {
					e.Errorf("after %v it was ours, and they held it for 3 s", took)
				}
				if take(e, rdb, key, "theirs", time.Second) || drop(e, rdb, key, "theirs") || lease.Context().Err() != nil {
					e.Error("they took or dropped what is ours")
				}
				time.Sleep(time.Minute) // renewed
				if take(e, rdb, key, "theirs", time.Second) {
					e.Error("they took what is renewed")
				}
				testenv.Must(e, lease.Unlock(e.Context()))
				if !take(e, rdb, key, "theirs", time.Second) || !drop(e, rdb, key, "theirs") {
					e.Error("they cannot take and drop it")
				}
			})
		})
	}
}

// Each release of the program excludes the previous and the next one: old alone, both, new
// alone. Here adjacent ones run together a hundred times.
func TestRollingMigration(t *testing.T) {
	t.Parallel()
	for _, versions := range [][]string{{"old", "both"}, {"both", "new"}, {"both", "both"}} {
		t.Run(strings.Join(versions, " with "), func(t *testing.T) {
			t.Parallel()
			testenv.InBubble(t, func(e *testenv.Env) {
				var atWork, done, values atomic.Int64
				work := func(context.Context) error {
					if n := atWork.Add(1); n != 1 {
						e.Errorf("%d at work", n)
					}
					time.Sleep(20 * time.Millisecond)
					atWork.Add(-1)
					done.Add(1)
					return nil
				}
				old := func(ctx context.Context) (context.Context, func() error, error) {
					value := fmt.Sprint("value ", values.Add(1))
					for !setNX(e, e.Raw, "charge", value, time.Minute) {
						time.Sleep(7 * time.Millisecond)
					}
					return ctx, func() error { drop(e, e.Raw, "charge", value); return nil }, nil
				}
				var wg sync.WaitGroup
				for _, version := range versions {
					for range 2 {
						client := e.ClientWith(e.Direct(), lockcore.Config{})
						wg.Go(func() {
							for range 25 {
								var err error
								switch version {
								case "old":
									_, release, _ := old(e.Context())
									err = errors.Join(work(e.Context()), release())
								case "both":
									err = underBoth(e.Context(), old, client, "charge", work)
								case "new":
									err = client.Do(e.Context(), "charge", lockcore.LeaseConfig{}, work)
								}
								if err != nil {
									e.Error(err)
								}
							}
						})
					}
				}
				wg.Wait()
				testenv.Equal(e, "how often they worked", done.Load(), 100)
			})
		})
	}
}

// The inner elector of the first release leads and ends with the outer one.
func TestLeadBoth(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		client := e.Client("ours")
		ctx, lost := context.WithCancel(e.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			leadBoth(client)(ctx)
		}()
		e.WaitIdle()
		if !e.Exists("noonlock:{election/my-controller}:lock") {
			e.Error("the inner elector does not lead")
		}
		lost()
		<-ended
		if e.Exists("noonlock:{election/my-controller}:lock") {
			e.Error("the inner elector has not given the lead up")
		}
	})
}
