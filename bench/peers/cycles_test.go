package peers_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// uncontended: one goroutine locks and unlocks one name.
func uncontended(x *bench) {
	t := x.table("", "library")
	for _, c := range x.cycles(1) {
		for i, r := range c.repetitions {
			n := r.cycles
			t.add(c.name, "µs", 1e6*r.took/n)
			t.add(c.name, "× raw", r.took/n/c.raw[i])
			t.add(c.name, "allocations", r.allocations/n)
			t.add(c.name, "bytes", r.bytes/n)
			t.add(c.name, "server CPU, µs", 1e6*r.server/n)
			t.add(c.name, "commands", c.sent)
			t.add(c.name, "commands inside scripts", c.inside)
		}
	}
}

// distinct: 64 goroutines, each locks and unlocks its own name.
func distinct(x *bench) {
	t := x.table("", "library")
	for _, c := range x.cycles(64) {
		for i, r := range c.repetitions {
			n := r.cycles
			t.add(c.name, "cycles a second", n/r.took)
			t.add(c.name, "× raw", n/r.took*c.raw[i])
			t.add(c.name, "server CPU, µs", 1e6*r.server/n)
			t.add(c.name, "client CPU, µs", 1e6*r.client/n)
		}
	}
}

// A repetition is the sum of the slices of one repetition. Times are in seconds.
type repetition struct {
	cycles, took, allocations, bytes, server, client float64
}

type cycled struct {
	library
	repetitions  []repetition
	raw          []float64 // the time of a raw cycle in each repetition
	sent, inside float64   // commands of a cycle
}

// cycles locks and unlocks. Each repetition is cut into slices that alternate between the
// libraries.
func (x *bench) cycles(goroutines int) []*cycled {
	const slices = 10
	libraries := []library{raw, noonlock, redisLock, redSync, rueidisLock, blpop, etcdMutex}
	all := make([]*cycled, len(libraries))
	holds := make([][]hold, len(libraries))
	on := make([]*server, len(libraries))
	for i, l := range libraries {
		all[i] = &cycled{library: l}
		on[i] = x.serve(l)
		c := x.open(l, on[i], options{connections: max(10, goroutines)})
		for g := range goroutines {
			holds[i] = append(holds[i], x.hold(x.ctx(), c, "bench"+strconv.Itoa(g)))
		}
		x.slice(holds[i], length()/slices) // warm up
		stop := on[i].count()
		cycles := x.slice(holds[i], length()/slices)
		sent, inside := stop()
		all[i].sent, all[i].inside = sent/cycles, inside/cycles
	}
	for range *repetitions {
		sums := make([]repetition, len(libraries))
		for range slices {
			for i := range libraries {
				var before, after runtime.MemStats
				server, client := on[i].processor(), x.processor()
				runtime.ReadMemStats(&before)
				began := time.Now()
				sums[i].cycles += x.slice(holds[i], length()/slices)
				sums[i].took += time.Since(began).Seconds()
				runtime.ReadMemStats(&after)
				sums[i].allocations += float64(after.Mallocs - before.Mallocs)
				sums[i].bytes += float64(after.TotalAlloc - before.TotalAlloc)
				sums[i].server += on[i].processor() - server
				sums[i].client += x.processor() - client
			}
		}
		for i, sum := range sums {
			all[i].repetitions = append(all[i].repetitions, sum)
			all[i].raw = append(all[i].raw, sums[0].took/sums[0].cycles)
		}
	}
	return all
}

// slice cycles through each hold in its own goroutine for d, and returns the number of cycles.
func (x *bench) slice(holds []hold, d time.Duration) float64 {
	var wg sync.WaitGroup
	var cycles atomic.Int64
	ctx := x.ctx()
	nothing := func() {}
	until := time.Now().Add(d)
	for _, h := range holds {
		wg.Go(func() {
			n := int64(0)
			for ; time.Now().Before(until); n++ {
				if err := h(ctx, nothing); err != nil {
					x.b.Error(err)
					return
				}
			}
			cycles.Add(n)
		})
	}
	wg.Wait()
	if cycles.Load() == 0 {
		x.b.Fatal("no cycle was complete")
	}
	return float64(cycles.Load())
}

// processor returns the processor time that this process has used, in seconds.
func (x *bench) processor() float64 {
	x.b.Helper()
	var u syscall.Rusage
	x.check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
