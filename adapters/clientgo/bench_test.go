package clientgo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/internal/testing/servers"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// The time from a resignation to the next OnStartedLeading, with two candidates and client-go's
// default times of 15 s, 10 s and 2 s, in one run: client-go's elector with its fake client, which
// answers from memory, and the same elector with this adapter. The bench module measures
// noonlock's own elector. The benchmark does not pass or fail by a time.
//
// client-go's candidates poll every 2 s to 4.4 s, so each handover takes a random part of that.
// Many elections are measured concurrently; they mostly sleep.
func BenchmarkHandOver(b *testing.B) {
	const elections, handOvers = 25, 6
	s := servers.Redis(b)
	for b.Loop() {
		lease := pollers(b, elections, handOvers, func(election int) func(identity string) resourcelock.Interface {
			api := fake.NewClientset()
			return func(identity string) resourcelock.Interface {
				return &resourcelock.LeaseLock{
					LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("e", election)},
					Client:     api.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
				}
			}
		})
		clients := map[string]*lockcore.Client{"a": benchClient(b, s.Addr()), "b": benchClient(b, s.Addr())}
		adapter := pollers(b, elections, handOvers, func(election int) func(identity string) resourcelock.Interface {
			return func(identity string) resourcelock.Interface {
				l, err := clientgo.NewLock(clients[identity], fmt.Sprint("e", election), clientgo.Config{Identity: identity})
				must(b, err)
				return l
			}
		})
		for metric, samples := range map[string][]time.Duration{"fake": lease, "adapter": adapter} {
			slices.Sort(samples)
			for _, p := range []int{50, 99} {
				b.ReportMetric(float64(samples[len(samples)*p/100])/float64(time.Millisecond), fmt.Sprintf("p%d-ms-%s", p, metric))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

func benchClient(b *testing.B, addr string) *lockcore.Client {
	b.Helper()
	rdb := redis.NewClient(testenv.Options(addr))
	c := testenv.Call(lockcore.New(rdb, lockcore.Config{})).Must(b)
	b.Cleanup(func() {
		testenv.Must(b, c.Close(context.Background()))
		rdb.Close()
	})
	return c
}

// pollers measures client-go's elector.
func pollers(b *testing.B, elections, handOvers int, locks func(election int) func(identity string) resourcelock.Interface) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var samples []time.Duration
	var all sync.WaitGroup
	for n := range elections {
		lock := locks(n)
		all.Go(func() {
			leads := make(chan func(), 2) // functions that end the elector that leads
			var running sync.WaitGroup
			stand := func(identity string) {
				ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
				le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
					Lock: lock(identity), LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
					ReleaseOnCancel: true,
					Callbacks: leaderelection.LeaderCallbacks{
						OnStartedLeading: func(context.Context) { leads <- cancel },
						OnStoppedLeading: func() {},
					},
				})
				if err != nil {
					b.Error(err)
					return
				}
				running.Go(func() {
					defer cancel()
					le.Run(ctx)
				})
			}
			stand("a")
			end := <-leads
			for i := range handOvers {
				stand([]string{"b", "a"}[i%2])
				<-time.After(rand.N(retryPeriod * 22 / 10))
				begin := time.Now()
				end()
				end = <-leads
				took := time.Since(begin)
				mu.Lock()
				samples = append(samples, took)
				mu.Unlock()
			}
			end()
			running.Wait()
		})
	}
	all.Wait()
	return samples
}
