package singleton_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// commands returns how often the real server has executed each command, including those of
// scripts.
func (f *fleet) commands() map[string]int {
	f.Helper()
	text, err := f.Raw.Info(f.Context(), "commandstats").Result()
	testenv.Must(f, err)
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		n := 0
		if _, err := fmt.Sscanf(rest, "%d", &n); ok && err == nil {
			counts[name] = n
		}
	}
	return counts
}

// The cost of a tick, as the server counts it. Each replica claims at most once and looks
// once at the outcome, and one of them completes. No request is sent between ticks.
// Mutants: a look before each claim; a claim again after "busy"; polling.
func TestTicksCostFewCommands(t *testing.T) {
	t.Parallel()
	f := onServer(t)
	const replicas, jobs, ticks = 5, 20, 5
	var mu sync.Mutex
	claims := map[string]map[string]int{}
	for i := range replicas {
		r := f.replica(fmt.Sprintf("r%d", i), singleton.Config{TTL: 10 * time.Second})
		claim := request("claim")
		r.net.Inject(t, countingFault(func(cmd []string) {
			if claim(cmd) {
				mu.Lock()
				defer mu.Unlock()
				job, tick := cmd[3], cmd[9]
				if claims[job+" "+tick] == nil {
					claims[job+" "+tick] = map[string]int{}
				}
				claims[job+" "+tick][r.name]++
			}
		}))
		for j := range jobs {
			r.add(fmt.Sprintf("job-%d", j), "@every 1s", nil, singleton.JobConfig{})
		}
		r.run()
	}
	f.Until("every job has run", func() bool { return len(f.book.all()) >= jobs })
	// A claim that arrived before the tick by the server's clock is repeated. So on a busy machine the count is repeated.
	var reports []string
	for range 8 {
		reports = nil
		mu.Lock()
		clear(claims)
		mu.Unlock()
		f.Raw.ConfigResetStat(t.Context())
		n := len(f.book.all())
		f.Until("some more ticks are over", func() bool { return len(f.book.all()) >= n+jobs*ticks })
		counts := f.commands()
		// A claim for each replica, a completion for one of them, and in 30 s a look for each
		// replica.
		ran := len(f.book.all()) - n
		most := ran*(replicas+1) + 2*replicas*jobs
		if scripts := counts["evalsha"] + counts["eval"]; scripts > most {
			reports = append(reports, fmt.Sprintf("%d scripts were run for %d ticks, want at most %d: %v", scripts, ran, most, counts))
		}
		again := 0
		mu.Lock()
		for _, by := range claims {
			for _, n := range by {
				again += n - 1
			}
		}
		claimed := len(claims)
		mu.Unlock()
		if again > claimed/5 {
			reports = append(reports, fmt.Sprintf("%d claims of %d ticks by %d replicas were made again", again, claimed, replicas))
		}
		if claimed < ran-jobs {
			t.Errorf("claims of %d ticks were seen, %d were run", claimed, ran)
		}
		if reports == nil {
			t.Logf("%d scripts for %d ticks of %d jobs on %d replicas", counts["evalsha"]+counts["eval"], ran, jobs, replicas)
			break
		}
	}
	for _, report := range reports {
		t.Error(report)
	}
}
