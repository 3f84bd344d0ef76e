package clientgo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/noonlock/noonlock/adapters/clientgo"
	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// The time from a resignation to the next OnStartedLeading, with two candidates and client-go's
// default times of 15 s, 10 s and 2 s, in one run: client-go's elector with its fake client, which
// answers from memory; the same elector with this adapter; and noonlock's own elector. The
// benchmark does not pass or fail by a time.
//
// client-go's candidates poll every 2 s to 4.4 s, so each handover takes a random part of that.
// Many elections are measured concurrently; they mostly sleep.
func BenchmarkHandOver(b *testing.B) {
	const elections, handOvers, ownHandOvers = 25, 6, 300
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
		own := resignations(b, clients, ownHandOvers)

		var table strings.Builder
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(w, "elector\tlock\thand-overs\tp50 ms\tp99 ms\tp50 ratio\tp99 ratio\t\n")
		for _, row := range []struct {
			elector, lock, metric string
			samples               []time.Duration
		}{
			{"client-go", "Lease, fake client", "fake", lease},
			{"client-go", "adapters/clientgo", "adapter", adapter},
			{"noonlock", "election", "noonlock", own},
		} {
			slices.Sort(row.samples)
			p50, p99 := percentile(row.samples, 50), percentile(row.samples, 99)
			fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%.2f\t%.0f\t%.0f\t\n", row.elector, row.lock, len(row.samples), p50, p99,
				p50/percentile(own, 50), p99/percentile(own, 99))
			b.ReportMetric(p50, "p50-ms-"+row.metric)
			b.ReportMetric(p99, "p99-ms-"+row.metric)
		}
		must(b, w.Flush())
		b.Log("from giving up the lead to the next OnStartedLeading\n" + table.String())
	}
	b.ReportMetric(0, "ns/op")
}

// percentile returns a percentile in ms. noonlock's samples come last and are not sorted before
// the first row is printed.
func percentile(samples []time.Duration, p int) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	return float64(sorted[min(len(sorted)-1, len(sorted)*p/100)]) / float64(time.Millisecond)
}

func benchClient(b *testing.B, addr string) *lockcore.Client {
	b.Helper()
	rdb := redis.NewClient(testenv.Options(addr))
	c, err := lockcore.New(rdb, lockcore.Config{})
	must(b, err)
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
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

// resignations measures noonlock's elector.
func resignations(b *testing.B, clients map[string]*lockcore.Client, handOvers int) (samples []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	leads := make(chan *election.LeaderElector, 2)
	var running sync.WaitGroup
	var onlooker *election.LeaderElector
	for identity, c := range clients {
		var le *election.LeaderElector
		le, err := election.NewLeaderElector(c, "board", election.Callbacks{
			OnStartedLeading: func(ctx context.Context) {
				leads <- le
				<-ctx.Done()
			},
			OnStoppedLeading: func() {},
		}, election.Config{Identity: identity})
		must(b, err)
		onlooker = le
		running.Go(func() {
			if err := le.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	leader := <-leads
	for range handOvers {
		for { // until the other candidate is queued
			line, err := onlooker.Candidates(ctx)
			must(b, err)
			if len(line) == 1 {
				break
			}
		}
		resigned := make(chan error, 1)
		begin := time.Now()
		go func() { resigned <- leader.Resign(ctx) }()
		next := <-leads
		samples = append(samples, time.Since(begin))
		must(b, <-resigned)
		leader = next
	}
	cancel()
	running.Wait()
	return samples
}
