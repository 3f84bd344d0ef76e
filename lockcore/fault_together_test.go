package lockcore_test

import (
	"testing"
	"time"
)

// FAULT 17, class D: a failover to a replica that lagged, or an old snapshot, lost
// a grant and set the counter back. The next token is greater all the same.
// Caught mutant: only a counter that is new is seeded.
func TestFault17_ClassD_CounterSetBack(t *testing.T) {
	onAllKinds(t, func(e *env) {
		m := e.mutex(e.client("a"), "orders", ttl(time.Minute))
		lost := e.try(m)
		must(e, e.raw.Del(e.Context(), e.key("orders", "lock")).Err())
		must(e, e.raw.Set(e.Context(), e.key("orders", "fence"), lost.Token()-1, time.Hour).Err())
		e.pass(10 * time.Millisecond)
		if next := e.try(e.mutex(e.client("b"), "orders", ttl(time.Minute))); next.Token() <= lost.Token() {
			e.Errorf("token %d after %d", next.Token(), lost.Token())
		}
	})
}

// FAULT 54: the holder and the head of the line die together, as goroutines of one
// process. Who stands behind them has the lock when it ends.
// Caught mutant: only the head of the line looks when the lock ends.
func TestFault54_HolderAndHeadDieTogether(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		const lives = 10 * time.Second
		a, f := e.linked("a")
		defer f.Heal()
		e.try(e.mutex(a, "orders", ttl(lives)))
		e.inLine(e.mutex(a, "orders", ttl(lives)))
		next := e.inLine(e.mutex(e.client("b"), "orders", ttl(lives)))
		e.pass(4 * time.Second) // out of step with the looks
		cut := f.Partition()
		f.Cut()
		died := e.clock()
		next.granted()
		if took := e.clock() - died; took > lives+500*time.Millisecond {
			e.Errorf("the lock was had %v after its holder died", took)
		}
		if cut.Fired() == 0 {
			e.Error("nothing was cut off")
		}
	})
}
