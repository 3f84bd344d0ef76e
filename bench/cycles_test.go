package bench_test

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var beside = []library{raw, noonlock, pipelined, redisLock, redSync, rueidisLock, blpop, etcdMutex}

// uncontended: one goroutine locks and unlocks one name.
func uncontended(x *bench) {
	t := x.table("", "library")
	x.cycles(1, beside, func(name string, c, first cycles) {
		t.add(name, "µs", 1e6*c.took)
		t.add(name, "× raw", c.took/first.took)
		t.add(name, "allocations", c.allocations)
		t.add(name, "bytes", c.bytes)
		t.add(name, "server CPU, µs", 1e6*c.server)
		t.add(name, "commands", c.sent)
		t.add(name, "commands inside scripts", c.inside)
	})
}

// distinct: goroutines lock and unlock, each its own name.
func distinct(x *bench) {
	t := x.table("64 goroutines", "library")
	by := x.table("Cycles a second by the number of goroutines", "library; goroutines:")
	for _, goroutines := range []int{1, 4, 16, 64, 256} {
		x.cycles(goroutines, beside, func(name string, c, first cycles) {
			by.add(name, strconv.Itoa(goroutines), 1/c.took)
			if goroutines != 64 {
				return
			}
			t.add(name, "cycles a second", 1/c.took)
			t.add(name, "× raw", first.took/c.took)
			t.add(name, "server CPU, µs", 1e6*c.server)
			t.add(name, "client CPU, µs", 1e6*c.client)
		})
	}
}

// serverTime: what a cycle takes of the server. The libraries alternate, each with a server of its own.
func serverTime(x *bench) {
	took := x.table("Server CPU of a cycle, µs", "library; goroutines:")
	times := x.table("× rueidislock", "library; goroutines:")
	for _, goroutines := range []int{1, 16, 64, 256} {
		x.cycles(goroutines, []library{rueidisLock, redisLock, noonlock}, func(name string, c, first cycles) {
			took.add(name, strconv.Itoa(goroutines), 1e6*c.server)
			times.add(name, strconv.Itoa(goroutines), c.server/first.server)
		})
	}
}

// places: one goroutine locks and unlocks, where the lock is on more than one server or has more than one holder.
func places(x *bench) {
	t := x.table("", "lock")
	x.cycles(1, []library{noonlock, oneReplica, minReplicas, inSentinel, inCluster, oneOf8}, func(name string, c, first cycles) {
		t.add(name, "µs", 1e6*c.took)
		t.add(name, "× one server", c.took/first.took)
	})
}

// cycles is what a cycle cost in one repetition. Times are in seconds.
type cycles struct {
	n, took, allocations, bytes, server, client, sent, inside float64
}

// cycles locks and unlocks. Each repetition is cut into slices that alternate between the
// libraries.
func (x *bench) cycles(goroutines int, libraries []library, add func(name string, c, first cycles)) {
	const slices = 10
	holds := make([][]hold, len(libraries))
	on := make([]*server, len(libraries))
	counted := make([]cycles, len(libraries))
	for i, l := range libraries {
		on[i] = x.serve(l)
		c := x.open(l, on[i], options{connections: max(10, goroutines)})
		for g := range goroutines {
			holds[i] = append(holds[i], c.lock(x.ctx(), "bench"+strconv.Itoa(g)))
		}
		x.slice(holds[i], length()/slices) // warm up
		stop := on[i].count()
		n := x.slice(holds[i], length()/slices)
		sent, inside := stop()
		counted[i] = cycles{sent: sent / n, inside: inside / n}
	}
	for range *repetitions {
		sums := make([]cycles, len(libraries))
		for range slices {
			for i := range libraries {
				var before, after runtime.MemStats
				server, client := on[i].processor(), x.processor()
				runtime.ReadMemStats(&before)
				began := time.Now()
				sums[i].n += x.slice(holds[i], length()/slices)
				sums[i].took += time.Since(began).Seconds()
				runtime.ReadMemStats(&after)
				sums[i].allocations += float64(after.Mallocs - before.Mallocs)
				sums[i].bytes += float64(after.TotalAlloc - before.TotalAlloc)
				sums[i].server += on[i].processor() - server
				sums[i].client += x.processor() - client
			}
		}
		for i, s := range sums {
			sums[i] = cycles{s.n, s.took / s.n, s.allocations / s.n, s.bytes / s.n, s.server / s.n, s.client / s.n, counted[i].sent, counted[i].inside}
			add(libraries[i].name, sums[i], sums[0])
		}
	}
}

// slice cycles through each hold in its own goroutine for d, and returns the number of cycles.
func (x *bench) slice(holds []hold, d time.Duration) float64 {
	var wg sync.WaitGroup
	var n atomic.Int64
	until := time.Now().Add(d)
	for _, h := range holds {
		wg.Go(func() {
			for time.Now().Before(until) {
				if err := h(x.ctx(), func() {}); err != nil {
					x.b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	if n.Load() == 0 {
		x.b.Fatal("no cycle was complete")
	}
	return float64(n.Load())
}

// processor returns the processor time that this process has used, in seconds.
func (x *bench) processor() float64 {
	var u syscall.Rusage
	x.check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
