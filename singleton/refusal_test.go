package singleton_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// A holder dies, an operator triggers a run, and each key of the ledger is lost at each step of that. The
// two other replicas send few requests, and ticks run afterwards.
// Mutant: after a refusal that changes nothing, the next claim follows at once.
func TestFault126_ClassD_AKeyIsLostAtEachStep(t *testing.T) {
	t.Parallel()
	for _, cfg := range []singleton.JobConfig{{}, {AllowOverlap: true}, {MaxAttempts: 1}} {
		for _, key := range []string{"job", "open", "runs", "fence", "acts", "defs"} {
			for lost := range 6 {
				inBubble(t, func(t *testing.T, f *fleet) {
					var mu sync.Mutex
					calls := map[int64]int{} // in each second
					count := countingFault(func(cmd []string) {
						if strings.HasPrefix(cmd[0], "EVAL") {
							mu.Lock()
							defer mu.Unlock()
							calls[time.Now().Unix()]++
						}
					})
					all := map[string]*replica{}
					for _, name := range []string{"a", "b", "c"} {
						r := f.replica(name, singleton.Config{})
						r.net.Inject(t, count)
						r.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: time.Millisecond, Match: func([]string) bool { return true }})
						r.add("draw", "@every 20s", func(ctx context.Context, run singleton.Run) error {
							if len(f.book.all()) == 1 {
								<-ctx.Done()
							}
							return sleep(time.Second)(ctx, run)
						}, cfg)
						r.run()
						all[name] = r
					}
					var first entry
					for step, do := range []func(){
						func() { f.Pass(time.Second) },
						func() { first = f.begun("draw", 1)[0] },
						func() { all[first.replica].die() },
						func() { _, _ = f.job("draw").Trigger(t.Context()) }, // there may be no ledger
						func() { f.Pass(1900 * time.Millisecond) },
						func() { f.Pass(time.Second) },
					} {
						do()
						if step == lost {
							testenv.Must(t, f.Raw.Del(t.Context(), f.key("draw", key)).Err())
							f.Pass(100 * time.Millisecond)
						}
					}
					f.Pass(15 * time.Second)
					n := len(f.book.all())
					f.begun("draw", n+2)
					mu.Lock()
					defer mu.Unlock()
					most := 0
					for _, n := range calls {
						most = max(most, n)
					}
					if most > 40 {
						t.Errorf("%+v, %s lost after step %d: %d scripts in a second", cfg, key, lost, most)
					}
				})
			}
		}
	}
}
