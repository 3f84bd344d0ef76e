//go:build unix

package bench_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

// BenchmarkEndsAtOneInstant: leases that are not renewed end at one instant. A goroutine for
// each waits until its context is done, and notes how late that is. "max/margin" is the worst
// one as a part of the margin of a TTL of 1 s: after the margin, the server may grant the lock
// to others.
func BenchmarkEndsAtOneInstant(b *testing.B) {
	for _, leases := range []int{5_000, 20_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) { endsAtOneInstant(b, leases) })
	}
}

func endsAtOneInstant(b *testing.B, leases int) {
	b.Helper()
	const (
		rounds = 5
		margin = 12 * time.Millisecond
	)
	x := start(b)
	for b.Loop() {
		columns := map[string][]float64{}
		var best []float64
		worst := 0.0
		for round := range rounds {
			late := x.ends(leases, round)
			columns[fmt.Sprint("round ", round+1)] = slices.Clone(late)
			slices.Sort(late)
			last := late[leases-1]
			worst = max(worst, last)
			if best == nil || last < best[leases-1] {
				best = late
			}
		}
		x.keep(columns)
		x.percentiles(best, "ms")
		b.ReportMetric(best[leases-1]/float64(margin), "max/margin")
		b.ReportMetric(worst/1e6, "worst-round-max-ms")
	}
}

// ends acquires leases that end at the same instant, and returns how late their contexts are
// done (ns).
func (x *bench) ends(leases, round int) []float64 {
	x.b.Helper()
	const workers = 50
	c, ctx := x.client(), x.b.Context()
	end := time.Now().Add(2*time.Second + time.Duration(leases)*200*time.Microsecond)
	late := make([]float64, leases)
	var acquired, ended sync.WaitGroup
	for part := range workers {
		acquired.Go(func() {
			for i := part; i < leases; i += workers {
				cfg := lockcore.LeaseConfig{TTL: 10 * time.Second, NoRenewal: true, ValidFor: time.Until(end)}
				lease, err := x.mutex(c, fmt.Sprintf("end-%d-%d", round, i), cfg).TryLock(ctx)
				if err != nil {
					x.b.Error(err)
					return
				}
				until := time.Now().Add(lease.Remaining())
				ended.Go(func() {
					<-lease.Context().Done()
					late[i] = float64(time.Since(until))
				})
			}
		})
	}
	acquired.Wait()
	if !time.Now().Before(end) {
		x.b.Error("the leases ended before all of them were acquired")
	}
	ended.Wait()
	return late
}
