package singleton_test

import (
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
)

// scheduled starts a replica that runs the job with that schedule.
func (f *fleet) scheduled(name, schedule string, cfg singleton.JobConfig) {
	f.Helper()
	r := f.replica(name, singleton.Config{})
	r.add("draw", schedule, nil, cfg)
	r.run()
	f.Pass(10 * time.Millisecond)
}

// The replicas of the old schedule claim a tick every 100 ms, and a round trip of the replica with the
// new schedule takes longer. The new schedule takes over in time, and each due tick of the old one
// has run or is recorded. A replica that starts and dies again does not stop the ticks for long.
// Mutants: no tick waits; the ticks wait for each look of a replica that never takes over.
func TestANewScheduleBesideFastClaims(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inBubble(t, func(t *testing.T, f *fleet) {
			for _, name := range []string{"a", "b"} {
				f.scheduled(name, "@every 100ms", singleton.JobConfig{CatchUp: singleton.CatchUpAll})
			}
			f.begun("draw", 100)
			c := f.replica("c", singleton.Config{})
			slow := c.net.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: 120 * time.Millisecond})
			c.add("draw", "@every 1m", nil, singleton.JobConfig{})
			c.run()
			if dies {
				f.Pass(5100 * time.Millisecond)
				c.die()
				n := len(f.book.all())
				f.Pass(20 * time.Second)
				if now := len(f.book.all()); now < n+150 {
					t.Errorf("%d ticks of the old schedule in 20 s", now-n)
				}
				return
			}
			f.Pass(10 * time.Second)
			job := f.job("draw")
			st, err := job.Status(t.Context())
			if err != nil || st.Replicas != 1 {
				t.Errorf("after 10 s the status is %+v, %v", st, err)
			}
			f.Pass(2 * time.Minute)
			entries := f.book.all()
			if last := entries[len(entries)-1]; last.replica != "c" {
				t.Errorf("the last run is %+v", last)
			}
			lockcoretest.MustFire(t, slow)
		})
	}
}
