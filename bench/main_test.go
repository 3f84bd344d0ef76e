// Package bench_test measures noonlock beside other locks in the same run. Each library is used as
// its own documentation shows. make bench runs all rows. For a single one, in this directory:
//
//	GOWORK=off go test -run '^$' -bench Rows/handover -benchtime 1x .
//
// Each library has a server of its own. A repetition measures all of them in turn, so that
// other load of the machine affects all.
package bench_test

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

	"github.com/noonlock/noonlock/internal/retry"
)

var (
	seconds     = flag.Float64("seconds", 1, "the length of one measurement")
	repetitions = flag.Int("repetitions", 3, "how often each measurement is repeated")
	compareOnly = flag.Bool("compare", false, "print what is worse than on the page, and do not write it")
	pagePath    = flag.String("page", "../docs/PERFORMANCE.md", "the page with the tables")
)

func TestMain(m *testing.M) {
	logging.Disable() // it would log the connections that a benchmark cuts
	if holder := os.Getenv(holderVariable); holder != "" {
		fmt.Fprintln(os.Stderr, holdUntilKilled(strings.Split(holder, "\n")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkRows measures the rows and writes each to the page when it is complete. A row is one
// question to all libraries.
func BenchmarkRows(b *testing.B) {
	for _, r := range []struct {
		name    string
		measure func(x *bench)
	}{
		{"uncontended", uncontended},
		{"distinct", distinct},
		{"server", serverTime},
		{"instructions", instructions},
		{"places", places},
		{"handover", handOvers},
		{"takeover", takeover},
		{"followers", followers},
		{"election", elections},
		{"partitions", partitions},
		{"jobs", manyJobs},
		{"bursts", bursts},
		{"noon", atNoon},
		{"idle", idleJobs},
		{"schedules", schedules},
		{"changes", changes},
		{"instants", instants},
		{"stalls", stalls},
		{"growth", growth},
	} {
		b.Run(r.name, func(b *testing.B) {
			for b.Loop() {
				x := &bench{b: b, row: r.name, with: []string{runtime.Version()}}
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
	report []*table // in the order of the page
	with   []string // versions
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

// note says on the page with what a row is measured.
func (x *bench) note(with string) {
	if !slices.Contains(x.with, with) {
		x.with = append(x.with, with)
	}
}

// sleep returns after d, or when the benchmark ends.
func sleep(ctx context.Context, d time.Duration) { retry.Sleep(ctx, d, nil) }

// median returns the median of samples, which it sorts.
func median(samples []float64) float64 { return quantile(samples, .5) }

// quantile returns a quantile of samples, which it sorts.
func quantile(samples []float64, q float64) float64 {
	slices.Sort(samples)
	return samples[min(len(samples)-1, int(q*float64(len(samples))))]
}
