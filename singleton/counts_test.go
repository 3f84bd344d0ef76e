package singleton_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton"
)

// The cost of a tick. Each replica claims at most once and looks once at the outcome, and one of them completes. No request
// is sent between ticks.
// Mutants: a look before each claim; a claim again after "busy"; polling.
func TestTicksCostFewRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		const replicas, jobs, ticks = 5, 20, 5
		var scripts atomic.Int64
		var claims []func() int
		for i := range replicas {
			r := f.replica(fmt.Sprintf("r%d", i), singleton.Config{TTL: 10 * time.Second})
			for j := range jobs {
				r.add(fmt.Sprintf("job-%d", j), "@every 1s", nil, singleton.JobConfig{})
			}
			r.run()
			claims = append(claims, r.claims())
			r.net.Inject(t, countingFault(func(cmd []string) {
				if testenv.IsScript(cmd) {
					scripts.Add(1)
				}
			}))
		}
		f.Pass(3 * time.Second)
		scripts.Store(0)
		ran, claimed := len(f.book.all()), 0
		for _, count := range claims {
			claimed -= count()
		}
		f.Pass(ticks * time.Second)
		ran = len(f.book.all()) - ran
		for _, count := range claims {
			claimed += count()
		}
		// In 30 s, each replica looks.
		if most := ran*(replicas+1) + replicas*jobs; ran != jobs*ticks || claimed > ran*replicas || int(scripts.Load()) > most {
			t.Errorf("%d scripts, %d of them claims, for %d ticks of %d jobs on %d replicas, want at most %d", scripts.Load(), claimed, ran, jobs, replicas, most)
		}
	})
}
