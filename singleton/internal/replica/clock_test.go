package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// Mutants: a good sample is replaced by a worse one; a good one is kept although a later
// one contradicts it; the wall clock is used for the time.
func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		var c serverClock
		if _, ok := c.now(); ok {
			t.Error("a clock without a sample tells the time")
		}
		base := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		start := time.Now()
		server := func() time.Time { return base.Add(time.Since(start)) }
		// sample takes one whose answer was made after `there` of `took`.
		sample := func(there, took time.Duration) time.Duration {
			sent := time.Now()
			time.Sleep(there)
			now := server().Truncate(ms)
			time.Sleep(took - there)
			return c.observe(now, sent, time.Now())
		}
		off := func() time.Duration {
			now, _ := c.now()
			return now.Sub(server()).Abs()
		}
		if sample(50*ms, 100*ms); off() > ms {
			t.Errorf("after an even sample the clock is off by %v", off())
		}
		if sample(0, 110*ms); off() > ms {
			t.Errorf("a worse sample moved the clock by %v", off())
		}
		if sample(0, 10*ms); off() > 5*ms+ms {
			t.Errorf("after a better sample the clock is off by %v", off())
		}
		good := off()
		if step := sample(190*ms, 200*ms); step != 0 || off() != good {
			t.Errorf("a worse sample made the clock off by %v", off())
		}
		time.Sleep(2 * trustFor)
		if sample(100*ms, 200*ms); off() > ms {
			t.Errorf("an old sample was kept, the clock is off by %v", off())
		}
		for _, step := range []time.Duration{time.Minute, -time.Hour, 300 * ms} {
			base = base.Add(step)
			if got := sample(20*ms, 40*ms); (got-step).Abs() > 200*ms || off() > 20*ms {
				t.Errorf("the server's clock was set by %v: observed %v, off by %v", step, got, off())
			}
		}
		if got, want := c.offset(time.Now().Add(5*time.Minute)), time.Since(base.Add(time.Since(start)))+5*time.Minute; (got - want).Abs() > 50*ms {
			t.Errorf("offset is %v, want %v", got, want)
		}
	})
}
