//go:build unix

package bench_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/noonlock/noonlock/singleton"
)

// runners starts replicas of jobs, each with its own Client. stop ends them and waits.
func (x *bench) runners(replicas, jobs int, schedule string, work singleton.Func) (stop func()) {
	x.b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range replicas {
		r, err := singleton.NewRunner(x.client(), singleton.Config{})
		if err != nil {
			x.b.Fatal(err)
		}
		for j := range jobs {
			if err := r.Add("job-"+strconv.Itoa(j), schedule, work, singleton.JobConfig{}); err != nil {
				x.b.Fatal(err)
			}
		}
		wg.Go(func() {
			if err := r.Run(ctx); err != nil {
				x.b.Error(err)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// quantile returns a quantile of samples, which it sorts.
func quantile(samples []float64, q float64) float64 {
	slices.Sort(samples)
	return samples[min(len(samples)-1, int(q*float64(len(samples))))]
}

// BenchmarkStartDelay: from the time of a tick on the server's clock, here also this machine's,
// to the first line of the work. Three replicas claim the ticks.
func BenchmarkStartDelay(b *testing.B) {
	x := start(b)
	const ticks, warm = 400, 20
	for b.Loop() {
		var mu sync.Mutex
		var delays, pings []float64
		early, begun := 0, 0
		over := make(chan struct{})
		stop := x.runners(3, 1, "@every 100ms", func(ctx context.Context, run singleton.Run) error {
			delay := time.Since(run.Tick)
			mu.Lock()
			defer mu.Unlock()
			if begun++; begun <= warm || len(delays) == ticks {
				return nil
			}
			if delay < 0 {
				early++
			}
			delays = append(delays, float64(delay))
			pings = append(pings, each(1, func() { x.ping(ctx) }))
			if len(delays) == ticks {
				close(over)
			}
			return nil
		})
		<-over
		stop()
		x.keep(map[string][]float64{"delay": delays, "ping": pings})
		b.ReportMetric(ratio(slices.Clone(delays), pings), "x_ping")
		b.ReportMetric(quantile(delays, .5)/1e3, "us/start_p50")
		b.ReportMetric(quantile(delays, .99)/1e3, "us/start_p99")
		b.ReportMetric(quantile(pings, .5)/1e3, "us/ping_p50")
		b.ReportMetric(quantile(pings, .99)/1e3, "us/ping_p99")
		b.ReportMetric(float64(early), "early")
	}
}

// BenchmarkThousandJobs: five replicas of a thousand jobs, all due at the same time. The
// interval is 10 s, so one minute has six such ticks. The load per second is six times that of
// one tick per minute.
func BenchmarkThousandJobs(b *testing.B) {
	x := start(b)
	const replicas, jobs, ticks = 5, 1000, 4
	const interval = 10 * time.Second
	ctx := b.Context()
	for b.Loop() {
		var runs atomic.Int64
		var mu sync.Mutex
		var delays []float64
		stop := x.runners(replicas, jobs, "@every "+interval.String(), func(_ context.Context, run singleton.Run) error {
			delay := time.Since(run.Tick)
			runs.Add(1)
			mu.Lock()
			defer mu.Unlock()
			delays = append(delays, float64(delay))
			return nil
		})
		await(&runs, 2*jobs) // every script is loaded, every job has run
		quiet(interval)
		before, commands, reads := runs.Load(), x.calls(ctx), x.stat("total_reads_processed")
		mu.Lock()
		delays = nil
		mu.Unlock()
		began, used := time.Now(), processorTime(b)
		await(&runs, before+ticks*jobs)
		quiet(interval)
		used, took := processorTime(b)-used, time.Since(began)
		n := float64(runs.Load() - before)
		commandsUsed, readsUsed := float64(x.calls(ctx)-commands), float64(x.stat("total_reads_processed")-reads)

		claims := x.claims(interval)
		stop()
		most, all := 0, 0
		for _, n := range claims {
			most, all = max(most, n), all+n
		}
		mu.Lock()
		b.ReportMetric(quantile(delays, .5)/1e3, "us/start_p50")
		b.ReportMetric(quantile(delays, .99)/1e3, "us/start_p99")
		mu.Unlock()
		b.ReportMetric(float64(most), "claims/replica_and_tick_most")
		b.ReportMetric(float64(all)/float64(max(1, len(claims))), "claims/replica_and_tick")
		b.ReportMetric(commandsUsed/n, "commands/tick")
		b.ReportMetric(commandsUsed/readsUsed, "commands/read")
		b.ReportMetric(100*used.Seconds()/took.Seconds()/replicas, "%core/replica")
		b.ReportMetric(used.Seconds()*1e6/n/replicas, "cpu_us/tick_and_replica")
		b.ReportMetric(n/jobs, "ticks/job")
	}
}

// await returns after this number of runs have begun.
func await(runs *atomic.Int64, n int64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for runs.Load() < n {
		<-tick.C
	}
}

// quiet returns in the middle between two ticks.
func quiet(interval time.Duration) {
	now := time.Now()
	middle := now.Truncate(interval).Add(interval / 2)
	if middle.Before(now) {
		middle = middle.Add(interval)
	}
	timer := time.NewTimer(time.Until(middle))
	defer timer.Stop()
	<-timer.C
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// stat returns a number from INFO stats.
func (x *bench) stat(name string) int {
	x.b.Helper()
	text, err := x.rdb.Info(x.b.Context(), "stats").Result()
	if err != nil {
		x.b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				x.b.Fatal(err)
			}
			return n
		}
	}
	x.b.Fatalf("INFO stats has no %s", name)
	return 0
}

// claims monitors the server (MONITOR) for two ticks and counts the claims by replica, job and
// tick.
func (x *bench) claims(interval time.Duration) map[string]int {
	x.b.Helper()
	conn, err := net.Dial("tcp", x.server.Addr())
	if err != nil {
		x.b.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		x.b.Fatal(err)
	}
	until := time.Now().Truncate(interval).Add(2*interval + interval/2)
	if err := conn.SetReadDeadline(until); err != nil {
		x.b.Fatal(err)
	}
	claims := map[string]int{}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		words := strings.Fields(lines.Text())
		// "evalsha" sha "5" job open runs fence tomb me tick …
		at := slices.IndexFunc(words, func(w string) bool { return w == `"evalsha"` || w == `"eval"` })
		if at < 0 || len(words) < at+10 || words[at+2] != `"5"` || !strings.HasSuffix(words[at+6], `:fence"`) {
			continue
		}
		process, _, _ := strings.Cut(words[at+8], ".")
		claims[process+" "+words[at+3]+" "+words[at+9]]++
	}
	return claims
}
