package store_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/entrants"
)

// A draw of ten from a million entrants, and the loading of the list. The peak memory is that of the whole process,
// including other benchmarks, so run one at a time:
//
//	go test -run '^$' -bench BenchmarkMillion/SQLite -benchtime 3x ./internal/store
func BenchmarkMillion(b *testing.B) {
	b.Run("SQLite", func(b *testing.B) { million(b, sqlite(b)) })
	b.Run("MariaDB", func(b *testing.B) { million(b, mariaDB(b)) })
	b.Run("PostgreSQL", func(b *testing.B) { million(b, postgreSQL(b)) })
}

func million(b *testing.B, at address) {
	b.Helper()
	name := filepath.Join(b.TempDir(), "million.csv")
	file, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriter(file)
	_, err = fmt.Fprintln(w, "id,eligible")
	for i := range 1_000_000 {
		// Not sorted, like the ids of real people.
		_, failed := fmt.Fprintf(w, "entrant-%07d,%v\n", i*7919%1_000_000, i%5 != 0)
		err = errors.Join(err, failed)
	}
	if err := errors.Join(err, w.Flush(), file.Close()); err != nil {
		b.Fatal(err)
	}
	s := at.open(b)
	load := func(b *testing.B) {
		b.Helper()
		totals, err := s.LoadEntrants(b.Context(), entrants.File(name))
		if err != nil || totals.Entrants != 1_000_000 {
			b.Fatalf("LoadEntrants = %+v, %v", totals, err)
		}
	}
	b.Run("first load", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			at.exec(b, "DELETE FROM entrants")
			b.StartTimer()
			load(b)
		}
		report(b)
	})
	b.Run("load again", func(b *testing.B) {
		for b.Loop() {
			load(b)
		}
		report(b)
	})
	tick := 0
	b.Run("draw", func(b *testing.B) {
		for b.Loop() {
			tick++
			mustDraw(b, s, run(tick, 1), 10)
		}
		report(b)
	})
}

func report(b *testing.B) {
	b.Helper()
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/op")
	if peak, ok := peakMemory(); ok {
		b.ReportMetric(peak, "peak-MB")
	}
}

// peakMemory returns the peak resident size of this process in MB, where the system reports it (Linux).
func peakMemory() (float64, bool) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(status) {
		fields := bytes.Fields(line)
		if len(fields) == 3 && string(fields[0]) == "VmHWM:" {
			kb, err := strconv.ParseFloat(string(fields[1]), 64)
			return kb / 1024, err == nil
		}
	}
	return 0, false
}
