package bench_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/noonlock/noonlock/election"
	"github.com/noonlock/noonlock/lockcore"
)

// roleVariable makes this test binary another process of a benchmark: one that leads and is
// killed, or one that is measured separately. serverVariable is the server's address,
// sizeVariable the amount of work.
const (
	roleVariable   = "NOONLOCK_BENCH_ROLE"
	serverVariable = "NOONLOCK_BENCH_SERVER"
	sizeVariable   = "NOONLOCK_BENCH_SIZE"
	leaseVariable  = "NOONLOCK_BENCH_LEASE"
)

func TestMain(m *testing.M) {
	logging.Disable() // it would log the connections that a benchmark cuts
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	size, err := strconv.Atoi(os.Getenv(sizeVariable))
	if err == nil {
		switch role {
		case "crowd":
			err = measureCrowd(os.Getenv(serverVariable), size)
		default:
			err = leadUntilKilled(os.Getenv(serverVariable), role, size)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// play starts a process with a role. The process ends with the benchmark.
func (x *bench) play(role string, size int, lease time.Duration) (process *os.Process, out *bufio.Reader) {
	x.b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, serverVariable+"="+x.server.Addr(),
		sizeVariable+"="+strconv.Itoa(size), leaseVariable+"="+lease.String())
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		x.b.Fatal(err)
	}
	x.b.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		_ = cmd.Wait()         // reports the kill
	})
	return cmd.Process, bufio.NewReader(stdout)
}

// A replica is a candidate of a benchmark.
type replica struct {
	*election.LeaderElector
	leads func(*replica) // called when the replica leads
}

// stand runs a candidate until ctx ends.
func stand(ctx context.Context, wg *sync.WaitGroup, client *lockcore.Client, name string, cfg election.Config, leads func(*replica)) (*replica, error) {
	r := &replica{leads: leads}
	var err error
	r.LeaderElector, err = election.NewLeaderElector(client, name, election.Callbacks{
		OnStartedLeading: func(ctx context.Context) {
			r.leads(r)
			<-ctx.Done()
		},
		OnStoppedLeading: func() {},
	}, cfg)
	if err != nil {
		return nil, err
	}
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	return r, nil
}

// stand runs a candidate until the benchmark ends.
func (x *bench) stand(ctx context.Context, wg *sync.WaitGroup, client *lockcore.Client, name string, cfg election.Config, leads func(*replica)) {
	x.b.Helper()
	if _, err := stand(ctx, wg, client, name, cfg, leads); err != nil {
		x.b.Fatal(err)
	}
}

// queued waits until n candidates are queued for an election.
func (x *bench) queued(ctx context.Context, name string, n int64) {
	x.b.Helper()
	for {
		have, err := x.rdb.ZCard(ctx, "noonlock:{election/"+name+"}:queue").Result()
		switch {
		case err != nil:
			x.b.Fatal(err)
		case have == n:
			return
		}
		<-time.After(200 * time.Microsecond) // polling must not take processor time from the candidates
	}
}

// percentiles reports the percentiles of samples (ns) in ms.
func (x *bench) percentiles(samples []float64, unit string) {
	x.b.Helper()
	slices.Sort(samples)
	for _, p := range []int{50, 99} {
		at := samples[min(len(samples)-1, len(samples)*p/100)]
		x.b.ReportMetric(at/1e6, fmt.Sprintf("p%d-%s", p, unit))
	}
	x.b.ReportMetric(samples[len(samples)-1]/1e6, "max-"+unit)
}

// BenchmarkResign: from Resign to the next OnStartedLeading, with a separate Client for each
// replica. The target is a p99 of 5 ms. A term lasts at least RetryPeriod, because an elector
// pauses for longer and longer after shorter ones.
func BenchmarkResign(b *testing.B) {
	for _, replicas := range []int{2, 10, 100} {
		b.Run(fmt.Sprintf("replicas=%d", replicas), func(b *testing.B) { resign(b, replicas) })
	}
}

func resign(b *testing.B, replicas int) {
	b.Helper()
	x := start(b)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const rounds, period = 1000, 10 * time.Millisecond
	leaders := make(chan *replica, replicas)
	began := make(chan time.Time, replicas)
	for range replicas {
		x.stand(ctx, &wg, x.client(), "bench", election.Config{RetryPeriod: period}, func(r *replica) {
			began <- time.Now()
			leaders <- r
		})
	}
	for b.Loop() {
		var took, pings []float64
		leader := <-leaders
		<-began
		for range rounds {
			x.queued(ctx, "bench", int64(replicas-1))
			<-time.After(period)
			resigned := make(chan error, 1)
			at := time.Now()
			go func() { resigned <- leader.Resign(ctx) }()
			took = append(took, float64((<-began).Sub(at)))
			leader = <-leaders
			if err := <-resigned; err != nil {
				b.Fatal(err)
			}
			pings = append(pings, each(1, func() { x.ping(ctx) }))
		}
		x.keep(map[string][]float64{"resign": took, "ping": pings})
		b.ReportMetric(median(took)/median(pings), "x_ping")
		x.percentiles(took, "ms")
		b.ReportMetric(0, "ns/op")
	}
}

// leadUntilKilled is the role of a process that leads elections until it is killed.
func leadUntilKilled(server, identity string, elections int) error {
	lease, err := time.ParseDuration(os.Getenv(leaseVariable))
	if err != nil {
		return err
	}
	client, err := lockcore.New(redis.NewClient(&redis.Options{Addr: server}), lockcore.Config{Identity: identity})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	var leading atomic.Int64
	for i := range elections {
		_, err := stand(context.Background(), &wg, client, identity+"-"+strconv.Itoa(i), election.Config{LeaseDuration: lease}, func(*replica) {
			if leading.Add(1) == int64(elections) {
				fmt.Println("leading")
			}
		})
		if err != nil {
			return err
		}
	}
	wg.Wait()
	return nil
}

// BenchmarkSuccessorAfterKill: from the SIGKILL of the leader's process to the successor's
// OnStartedLeading, minus the lease. The target is a p99 of 100 ms. The lease expires earlier
// than one lease after the kill, since the last renewal was before it. late is the time from
// the end of the lease on the server to the successor's start.
func BenchmarkSuccessorAfterKill(b *testing.B) {
	for _, lease := range []time.Duration{time.Second, 3 * time.Second} {
		b.Run(fmt.Sprintf("ttl=%s", lease), func(b *testing.B) { afterKill(b, lease) })
	}
}

func afterKill(b *testing.B, lease time.Duration) {
	b.Helper()
	x := start(b)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const rounds, processes, elections = 5, 8, 5
	client := x.client()
	for b.Loop() {
		var beyond, late []float64
		for round := range rounds {
			var deaths sync.WaitGroup
			var mu sync.Mutex // guards beyond and late
			for p := range processes {
				name := fmt.Sprintf("r%dp%d", round, p)
				victim, out := x.play(name, elections, lease)
				if line, err := out.ReadString('\n'); line != "leading\n" {
					b.Fatalf("the leader said %q, %v", line, err)
				}
				led := make([]chan time.Time, elections)
				for i := range led {
					election1 := name + "-" + strconv.Itoa(i)
					led[i] = make(chan time.Time, 1)
					x.stand(ctx, &wg, client, election1, election.Config{LeaseDuration: lease}, func(*replica) { led[i] <- time.Now() })
					x.queued(ctx, election1, 1)
				}
				deaths.Go(func() {
					// At different times between two renewals.
					<-time.After(lease * time.Duration(10+p) / 20)
					at := time.Now()
					if err := victim.Kill(); err != nil {
						b.Error(err)
					}
					ends := make([]time.Time, elections)
					for i := range ends {
						until, err := x.rdb.PExpireTime(ctx, fmt.Sprintf("noonlock:{election/%s-%d}:lock", name, i)).Result()
						if err != nil || until <= 0 {
							b.Errorf("the lock ends at %v: %v", until, err)
						}
						ends[i] = time.UnixMilli(until.Milliseconds())
					}
					for i, c := range led {
						began := <-c
						mu.Lock()
						beyond = append(beyond, float64(began.Sub(at)-lease))
						late = append(late, float64(began.Sub(ends[i])))
						mu.Unlock()
					}
				})
			}
			deaths.Wait()
		}
		x.keep(map[string][]float64{"beyond": beyond, "late": late})
		x.percentiles(beyond, "ms-beyond-ttl")
		x.percentiles(late, "ms-late")
		b.ReportMetric(float64(len(beyond)), "deaths")
		b.ReportMetric(0, "ns/op")
	}
}

// sent returns how many commands the server has received, without those inside scripts.
func (x *bench) sent(ctx context.Context) (total int) {
	stats, err := x.rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		x.b.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		for _, name := range []string{"evalsha", "eval", "subscribe", "unsubscribe", "ping", "hello", "client|setinfo", "script|load"} {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+name+":calls="); ok {
				n, _, _ := strings.Cut(rest, ",")
				count, err := strconv.Atoi(n)
				if err != nil {
					x.b.Fatal(err)
				}
				total += count
			}
		}
	}
	return total
}

// BenchmarkIdleCandidates: the commands per second of a leader and 1,000 waiting candidates,
// as a fraction of 1,000/TTL, which is the target. Each Client also reads the record and checks
// its subscription about once in 60 leases. The measured window contains two of these.
func BenchmarkIdleCandidates(b *testing.B) {
	const many, lease, leases = 1000, time.Second, 120
	for _, clients := range []int{20, 1000} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			x := start(b)
			ctx, cancel := context.WithCancel(b.Context())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			// The leader renews as often as with a lease of that length, but its lease is longer, so
			// that it does not expire on a busy machine.
			leads := make(chan struct{}, 1)
			x.stand(ctx, &wg, x.client(), "bench", election.Config{RetryPeriod: lease * 2 / 15}, func(*replica) { leads <- struct{}{} })
			<-leads
			for range clients {
				c := x.client()
				for range many / clients {
					x.stand(ctx, &wg, c, "bench", election.Config{LeaseDuration: lease}, func(*replica) {
						if ctx.Err() == nil {
							b.Error("the leader has lost the lead: these are not idle")
						}
					})
				}
			}
			x.queued(ctx, "bench", many)
			for b.Loop() {
				<-time.After(2 * lease) // new candidates have looked once more
				before, began := x.sent(ctx), time.Now()
				<-time.After(leases * lease)
				perSecond := float64(x.sent(ctx)-before) / time.Since(began).Seconds()
				b.ReportMetric(perSecond, "commands/s")
				b.ReportMetric(perSecond/(many/lease.Seconds()), "of-1000/TTL")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// crowdFigures are the measurements of a process with many elections.
type crowdFigures struct {
	Goroutines int     // without those of Run's callers
	Heap       float64 // MB
	Resident   float64 // MB, of the whole process
	Peak       float64 // MB, peak
	Start      float64 // seconds until all elections had a leader
}

// measureCrowd is the role of that process. It prints its figures.
func measureCrowd(server string, elections int) error {
	rdb := redis.NewClient(&redis.Options{Addr: server})
	ctx := context.Background()
	goroutines := runtime.NumGoroutine()
	var wg sync.WaitGroup
	var leading atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	for i := range 3 {
		client, err := lockcore.New(redis.NewClient(&redis.Options{Addr: server}), lockcore.Config{Identity: "r" + strconv.Itoa(i)})
		if err != nil {
			return err
		}
		for k := range elections {
			_, err := stand(ctx, &wg, client, "e"+strconv.Itoa(k), election.Config{}, func(*replica) {
				if leading.Add(1) == int64(elections) {
					close(all)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	<-all
	figures := crowdFigures{Start: time.Since(began).Seconds()}
	// All candidates queue, and look and renew for a while.
	<-time.After(20 * time.Second)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	figures.Goroutines = runtime.NumGoroutine() - goroutines - 3*elections
	figures.Heap = float64(m.HeapAlloc) / 1e6
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		var kB float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kB); n == 1 {
			figures.Resident = kB * 1024 / 1e6
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kB); n == 1 {
			figures.Peak = kB * 1024 / 1e6
		}
	}
	if line, err := rdb.ZCard(ctx, "noonlock:{election/e0}:queue").Result(); err != nil || line != 2 {
		return fmt.Errorf("%d candidates are queued: %w", line, err)
	}
	return json.NewEncoder(os.Stdout).Encode(figures)
}

// BenchmarkElections2000: 2,000 elections with 3 candidates each in one process, with 3 Clients.
// The targets are 200 MB, and 30 goroutines in addition to Run's callers.
func BenchmarkElections2000(b *testing.B) {
	x := start(b)
	for b.Loop() {
		_, out := x.play("crowd", 2000, 0)
		text, err := io.ReadAll(out)
		if err != nil {
			b.Fatal(err)
		}
		var f crowdFigures
		if err := json.Unmarshal(text, &f); err != nil {
			b.Fatalf("%q: %v", text, err)
		}
		b.ReportMetric(float64(f.Goroutines), "goroutines")
		b.ReportMetric(f.Heap, "MB-heap")
		b.ReportMetric(f.Resident, "MB-resident")
		b.ReportMetric(f.Peak, "MB-peak")
		b.ReportMetric(f.Start, "s-to-start")
		b.ReportMetric(0, "ns/op")
	}
}
