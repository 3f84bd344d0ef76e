package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/servers"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// FAULTS 54 with real processes: the holder is killed in the middle of its draw. The other
// replica takes the noon over when the hold has expired, one TTL after its last renewal.
// Only its draw is in the database.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	fleet := []*replica{w.start("a", nil), w.start("b", nil)}
	for _, r := range fleet {
		w.await(ctx, r, "replica is ready", 1)
	}
	w.awaitDraws(ctx, 1)
	dead, release := w.holdDraw(ctx, fleet)
	held, ok := w.running(ctx, dead)
	if !ok {
		t.Fatal("the replica does not hold the run that it draws")
	}
	dead.kill()
	killed := time.Now()
	release()
	other := fleet[0]
	if dead == other {
		other = fleet[1]
	}
	taken := w.awaitTick(ctx, other, "run begins", held.Tick)
	servers.Count(t, "the noon of a replica killed in mid-draw began again %s after, with a lease of %s", time.Since(killed).Round(time.Millisecond), lease)
	if taken.Attempt != 2 || taken.Token <= held.Token {
		t.Errorf("it was taken over as %+v; want attempt 2 under a greater token than %d", taken, held.Token)
	}
	w.awaitTick(ctx, other, "draw committed", held.Tick)
	w.finish(ctx, other)
}

// FAULTS 59 with real processes: the holder is killed after its draw is committed and before
// the ledger records it. The other replica runs the same noon, finds it drawn, and records
// it once.
func TestHolderIsKilledAfterItsCommit(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := newWorld(t)
	dead := w.start("dead", nil)
	w.await(ctx, dead, "draw committed", 1)
	lost := dead.redis.Faults().Inject(t, lockcoretest.Fault{Kind: lockcoretest.DropRequest, Match: isComplete})
	if err := lost.Wait(ctx, 1); err != nil {
		t.Fatal(err)
	}
	dead.kill()
	held, ok := w.running(ctx, dead)
	if !ok || w.drawer(ctx, held.Tick) != "dead" {
		t.Fatalf("the dead replica holds %+v, %t, drawn by %q; want one that it has drawn", held, ok, w.drawer(ctx, held.Tick))
	}
	drawn := w.winnersOf(ctx, held.Tick)

	other := w.start("other", nil)
	found := w.awaitTick(ctx, other, "draw was already committed", held.Tick)
	if found.Attempt != 2 || found.Token <= held.Token {
		t.Errorf("it was found as %+v; want attempt 2 under a greater token than %d", found, held.Token)
	}
	w.await(ctx, other, "draw committed", 1)
	if got := w.winnersOf(ctx, held.Tick); got != drawn || w.drawer(ctx, held.Tick) != "dead" {
		t.Errorf("the winners are %s, and were %s", got, drawn)
	}
	w.finish(ctx, other)
}
