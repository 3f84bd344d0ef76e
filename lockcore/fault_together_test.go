package lockcore_test

import (
	"strconv"
	"testing"
	"time"
)

// FAULT 17, class D: a failover to a replica that lagged, or an old snapshot, lost a grant
// and set the counter back. The next token is greater nevertheless.
//
// Caught mutant: only a new counter is seeded.
func TestFault17_ClassD_CounterSetBack(t *testing.T) {
	onAllKinds(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", ttl(time.Minute))
		lost := e.try(m)
		must(e, e.Raw.Del(e.Context(), e.key("orders", "lock")).Err())
		must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), lost.Token()-1, time.Hour).Err())
		e.Pass(10 * time.Millisecond)
		if next := e.try(e.mutex(e.Client("b"), "orders", ttl(time.Minute))); next.Token() <= lost.Token() {
			e.Errorf("token %d after %d", next.Token(), lost.Token())
		}
	})
}

// FAULT 54: the holder and the head of the queue die together, as goroutines of one
// process. The next waiter acquires the lock when it expires.
//
// Caught mutant: only the head of the queue looks when the lock ends.
func TestFault54_HolderAndHeadDieTogether(t *testing.T) {
	for _, own := range []int{1, 3, 20, 31} {
		t.Run(strconv.Itoa(own), func(t *testing.T) { holderAndHeadsDie(t, own) })
	}
}

// holderAndHeadsDie is the test with a number of waiters of the dying process before a live
// one.
func holderAndHeadsDie(t *testing.T, own int) {
	t.Helper()
	inBubbleAllKinds(t, func(e *env) {
		const lives = 10 * time.Second
		a, f := e.Linked("a")
		defer f.Heal()
		e.try(e.mutex(a, "orders", ttl(lives)))
		for range own {
			e.queued(e.mutex(a, "orders", ttl(lives)))
		}
		next := e.queued(e.mutex(e.Client("b"), "orders", ttl(lives)))
		e.Pass(4 * time.Second) // out of step with the looks
		cut := f.Partition()
		f.Cut()
		died := e.Clock()
		next.granted()
		if took := e.Clock() - died; took > lives+500*time.Millisecond {
			e.Errorf("the lock was had %v after its holder died", took)
		}
		if cut.Fired() == 0 {
			e.Error("nothing was cut off")
		}
	})
}
