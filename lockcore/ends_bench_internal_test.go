package lockcore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// BenchmarkEndsAtOneInstant ends many leases at one instant. It reports how late their
// contexts were done, as seen by goroutines that wait for them. Each goroutine wakes up,
// checks the lease again, and tries to release it.
func BenchmarkEndsAtOneInstant(b *testing.B) {
	for _, n := range []int{5_000, 20_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var all []time.Duration
			for range b.N {
				all = append(all, endsAtOneInstant(b, n)...)
			}
			slices.Sort(all)
			late := func(share float64) float64 {
				return float64(all[int(share*float64(len(all)-1))].Microseconds()) / 1000
			}
			b.ReportMetric(late(0.5), "p50-ms")
			b.ReportMetric(late(0.99), "p99-ms")
			b.ReportMetric(late(1), "max-ms")
			b.ReportMetric(float64(all[0].Microseconds())/1000, "first-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func endsAtOneInstant(b *testing.B, n int) []time.Duration {
	b.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	c, err := New(rdb, Config{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	cancel() // nothing can be released
	defer c.Close(ctx)
	terms, err := LeaseConfig{TTL: time.Second, NoRenewal: true}.terms("a")
	if err != nil {
		b.Fatal(err)
	}
	t0 := c.clock.Now()
	end := time.Now().Add(terms.times.Valid)
	var wg sync.WaitGroup
	late := make([]time.Duration, n)
	for i := range n {
		a, err := c.begin(mutexKind{}, c.keys.lock(fmt.Sprint("lock-", i)), terms, false)
		if err != nil {
			b.Fatal(err)
		}
		l, err := c.hold(b.Context(), a, grant{uint64(i + 1), t0})
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			<-l.Context().Done()
			late[i] = time.Since(end)
			_ = l.Context().Err()
		})
	}
	wg.Wait()
	return late
}
