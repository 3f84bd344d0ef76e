package wire_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// Little time is left to the caller that ends an attempt, less than a server needs to answer. What
// the server must then get has its full time, so that one try is enough.
// Mutant: a release that is sent again has the time of the caller.
func TestOwedHasItsFullTime(t *testing.T) {
	inBubble(t, func(t *testing.T, e *env) {
		rdb := redis.NewClient(e.redis.OptionsVia(e.faults))
		defer rdb.Close()
		target, err := wire.TargetOf(rdb)
		if err != nil {
			t.Fatal(err)
		}
		q := wire.NewQuorum([]*wire.Target{target}, config(func() {}, func() {}), wire.Watchers{
			Health:   func(int, error) {},
			Answered: func(int, any, time.Duration) {},
			Failed:   func(int, bool) {},
		})
		defer q.Close()
		first := func(answers map[int]wire.Answer, _ int) (wire.Answer, bool) { return answers[0], true }
		var trail wire.Trail
		if _, err := q.Send(t.Context(), "", wire.Command("set", "lock", "mine").Counted(first, &trail), time.Second); err != nil {
			t.Fatal(err)
		}
		slow := e.faults.Inject(t, lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: 100 * time.Millisecond, Match: lockcoretest.Command("DEL")})
		release := wire.Command("del", "lock").Counted(first, &trail)
		if _, err := q.Send(t.Context(), "", release.Leaving(release, 10*time.Second, time.Second), 10*time.Millisecond); err == nil {
			t.Fatal("the release was answered at once")
		}
		time.Sleep(10 * time.Second)
		if n := slow.Fired(); n != 2 {
			t.Errorf("the release was sent %d times", n)
		}
	})
}
