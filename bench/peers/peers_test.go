package peers_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

var (
	chosen      = flag.String("rows", "", "the rows to measure, separated by commas; default: all")
	seconds     = flag.Float64("seconds", 1, "the length of one measurement")
	repetitions = flag.Int("repetitions", 3, "how often each measurement is repeated")
	compareOnly = flag.Bool("compare", false, "print what is worse than on the page, and do not write it")
	pagePath    = flag.String("page", "../../docs/PERFORMANCE.md", "the page with the tables; plots are written beside it")
)

func TestMain(m *testing.M) {
	logging.Disable() // it would log the connections that a benchmark cuts
	if role := os.Getenv(roleVariable); role != "" {
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lastStart bounds the time of all rows to 20 minutes.
const lastStart = 15 * time.Minute

// A row is one question to all libraries.
type row struct {
	name    string
	measure func(x *bench)
}

func rows() []row {
	return []row{
		{"uncontended", uncontended},
		{"distinct", distinct},
		{"handover", handOvers},
		{"takeover", takeover},
		{"followers", followers},
		{"election", elections},
		{"schedulers", schedulers},
		{"stalls", stalls},
		{"growth", growth},
	}
}

// BenchmarkPeers measures the rows and writes each to the page when it is complete.
func BenchmarkPeers(b *testing.B) {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	want := strings.FieldsFunc(*chosen, func(r rune) bool { return r == ',' })
	for _, name := range want {
		if !slices.Contains(names, name) {
			b.Fatalf("there is no row %q; the rows are %s", name, strings.Join(names, ", "))
		}
	}
	began := time.Now()
	for _, r := range rows() {
		if len(want) > 0 && !slices.Contains(want, r.name) {
			continue
		}
		b.Run(r.name, func(b *testing.B) {
			if time.Since(began) > lastStart {
				b.Skipf("no row begins later than %v after the first one", lastStart)
			}
			for b.Loop() {
				x := &bench{b: b, row: r.name}
				r.measure(x)
				if b.Failed() {
					b.Fatal("the row is not written")
				}
				x.write()
			}
		})
	}
}

// A bench is the measurement of one row.
type bench struct {
	b      *testing.B
	row    string
	report []fmt.Stringer // tables and plots, in the order of the page
	redis  string         // the version of the server, if the row uses one
	etcd   string
}

func (x *bench) ctx() context.Context { return x.b.Context() }

// check ends the benchmark after an error.
func (x *bench) check(err error) {
	x.b.Helper()
	if err != nil {
		x.b.Fatal(err)
	}
}

// length is the length of one measurement.
func length() time.Duration { return time.Duration(*seconds * float64(time.Second)) }

// how says with what a row was measured.
func (x *bench) how() string {
	with := []string{runtime.Version()}
	if x.redis != "" {
		with = append(with, "redis-server "+x.redis)
	}
	if x.etcd != "" {
		with = append(with, "etcd "+x.etcd)
	}
	return fmt.Sprintf("%s, %d processors; repetitions: %d, seconds: %v.",
		strings.Join(with, ", "), runtime.NumCPU(), *repetitions, *seconds)
}

// sleep returns after d, or when the benchmark ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// median returns the median of samples, which it sorts.
func median(samples []float64) float64 {
	slices.Sort(samples)
	return samples[len(samples)/2]
}
