package lockcore_test

import (
	"crypto/sha1"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// A timed is a test of scripts to the millisecond: in a bubble no time passes while they run. Its clock does not
// stand at a whole second.
type timed struct {
	*env
	now time.Time
}

func toTheMillisecond(t *testing.T, test func(e *timed)) {
	t.Helper()
	t.Parallel()
	inBubble(t, func(e *env) {
		e.Pass(1234*time.Millisecond + 567*time.Microsecond)
		test(&timed{e, time.Now()})
	})
}

// ms is an instant as scripts write it.
func (e *timed) ms(later time.Duration) string {
	return strconv.FormatInt(e.now.Add(later).UnixMilli(), 10)
}

func (e *timed) run(script string, keys []string, args ...any) string {
	e.Helper()
	source, err := lockcore.ScriptSource(script)
	must(e.env, err)
	answer, err := e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()
	if err != nil {
		return err.Error()
	}
	if list, ok := listed(answer); ok && strings.HasSuffix(script, "_acquire") {
		answer = list
	}
	return fmt.Sprint(answer)
}

func (e *timed) wants(what, got, want string) {
	e.Helper()
	if got != want {
		e.Errorf("%s: %s, want %s", what, got, want)
	}
}

// fillQueue fills the queue, as `attempt, place, alive until` with times from now; no `until`: nothing is known of
// it.
func (e *timed) fillQueue(name string, of ...any) {
	e.Helper()
	k := e.scriptKeys(name)
	must(e.env, e.Raw.Del(e.Context(), k[2], k[3]).Err())
	for i := 0; i < len(of); i += 3 {
		place, _ := of[i+1].(time.Duration)
		must(e.env, e.Raw.ZAdd(e.Context(), k[2], redis.Z{Score: float64(e.now.Add(place).UnixMilli()), Member: of[i]}).Err())
		if until, ok := of[i+2].(time.Duration); ok {
			must(e.env, e.Raw.HSet(e.Context(), k[3], of[i], e.ms(until)).Err())
		}
	}
}

func (e *timed) members(name string) string {
	return fmt.Sprint(e.Raw.ZRange(e.Context(), e.key(name, "queue"), 0, -1).Val())
}

func (e *timed) left(key string) string { return e.Raw.PTTL(e.Context(), key).Val().String() }

const (
	minute, week = time.Minute, 7 * 24 * time.Hour
	keep         = 10 * time.Minute // how long the counter of tokens outlives a grant
)

// A token is the server's clock in µs; and one more than the last where that is not less.
func TestTokensToTheMicrosecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		grant := func(token int64, kept time.Duration) {
			e.Helper()
			e.wants("token", e.run("mutex_acquire", k, me, 60000, "try", keep.Milliseconds()), fmt.Sprintf("[1 %d]", token))
			e.wants("counter", e.Raw.Get(e.Context(), k[1]).Val(), strconv.FormatInt(token, 10))
			e.wants("the counter's TTL", e.left(k[1]), kept.String())
			e.wants("release", e.run("mutex_leave", k, me, 0, keep.Milliseconds()), "1")
		}
		for i := range int64(3) {
			grant(e.now.UnixMicro()+i, keep)
		}
		e.Pass(time.Second)
		e.now = time.Now()
		grant(e.now.UnixMicro(), keep)
		ahead := e.now.Add(minute).UnixMicro()
		must(e.env, e.Raw.Set(e.Context(), k[1], ahead, 0).Err())
		grant(ahead+1, keep+minute)
		must(e.env, e.Raw.Set(e.Context(), k[1], "99", 0).Err()) // less, although its text is greater
		grant(e.now.UnixMicro(), keep)
		longer := int64(1000000000000000) // greater, although its text is less
		must(e.env, e.Raw.Set(e.Context(), k[1], longer, 0).Err())
		grant(longer+1, (keep + time.Duration(longer-e.now.UnixMicro())*time.Microsecond).Truncate(time.Millisecond))
		must(e.env, e.Raw.Set(e.Context(), k[1], ahead+1, 0).Err())
		e.run("mutex_acquire", k, me, 60000, "try") // as scripts of jobs do, which name no keep
		e.wants("the counter's TTL by default", e.left(k[1]), (week + minute).String())
	})
}

// A renewal and a confirmation let the lock end a full TTL later.
func TestHoldsToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		held := e.run("mutex_acquire", k, me, 60000, "try", keep.Milliseconds())
		e.Pass(time.Second)
		e.wants("the lock's TTL", e.left(k[0]), (59 * time.Second).String())
		e.wants("renewal", e.run("mutex_renew", k[:2], me, 60000, keep.Milliseconds()), "1")
		e.wants("the lock's TTL after it", e.left(k[0]), minute.String())
		e.Pass(time.Second)
		e.wants("renewal without the counter", e.run("mutex_renew", k[:1], me, 60000), "1")
		e.wants("the lock's TTL after that", e.left(k[0]), minute.String())
		e.wants("the counter's TTL", e.left(k[1]), (keep - time.Second).String())
		e.Pass(time.Second)
		e.wants("acquired again", e.run("mutex_acquire", k, me, 60000, "look", keep.Milliseconds()), held)
		e.wants("the lock's TTL after that", e.left(k[0]), minute.String())
		for _, row := range []struct{ before, after time.Duration }{
			{keep + time.Millisecond, keep + time.Millisecond},
			{keep - time.Millisecond, keep},
		} {
			must(e.env, e.Raw.PExpire(e.Context(), k[1], row.before).Err())
			e.wants("renewal", e.run("mutex_renew", k[:2], me, 60000, keep.Milliseconds()), "1")
			e.wants(fmt.Sprintf("the counter's TTL, that was %v", row.before), e.left(k[1]), row.after.String())
		}
	})
}

// The same of a lock with owners, whose end is a whole millisecond of the server's clock.
func TestOwnedHoldsToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const attempt, sibling = "ns1:ALIVE.1.t.w/me id", "ns1:ALIVE.2.t.w/me id"
		k := e.scriptKeys("orders")
		lasts := func(what string) {
			e.Helper()
			if left := e.Raw.PTTL(e.Context(), k[0]).Val(); left <= minute-2*time.Millisecond || left > minute {
				e.Errorf("%s: the lock lasts %v, want %v", what, left, minute)
			}
		}
		held := e.run("owned_acquire", k, attempt, 60000, "try", keep.Milliseconds())
		lasts("acquired")
		e.Pass(time.Second)
		e.wants("renewal", e.run("owned_renew", k[:1], attempt, 60000), "1")
		lasts("renewed")
		e.Pass(time.Second)
		e.wants("acquired again", e.run("owned_acquire", k, attempt, 60000, "look", keep.Milliseconds()), held)
		lasts("acquired again")
		for left, answer := range map[time.Duration]string{0: "1", -time.Millisecond: "0"} {
			e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"w", attempt, left}, {"w", sibling, minute}}})
			e.wants("renewal of an entry that lasts "+left.String(), e.run("owned_renew", k[:1], attempt, 60000), answer)
		}
	})
}

// An entry ends with its millisecond, although the key of the lock has a later end: it is nobody's then, and counts
// no more. A member that is no entry is dropped when its time is over, too.
func TestEndsOfOwnedEntriesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, sibling, reader = "ns1:ALIVE.1.t.w/me id", "ns1:ALIVE.2.t.w/me id", "ns1:ALIVE.3.t.r/me id"
		k := e.scriptKeys("orders")
		stands := func(entries ...ownedEntry) {
			e.Helper()
			const keeps = "ns1:ALIVE.9.t.r/keeps id" // the key
			e.establishOwned("orders", ownedState{kind: "ns1", entries: append(entries, ownedEntry{"r", keeps, time.Hour})})
			must(e.env, e.Raw.ZRem(e.Context(), k[0], keeps, "n:keeps", "t:"+keeps).Err())
		}
		leave := func(what, want string) {
			e.Helper()
			e.wants(what, e.run("owned_leave", k, mine, 0, keep.Milliseconds()), want)
		}
		stands(ownedEntry{"w", mine, 0})
		leave("an entry in its last millisecond is left", "1")
		stands(ownedEntry{"w", mine, -time.Millisecond})
		leave("an entry that has ended is left", "0")
		stands(ownedEntry{"w", mine, minute}, ownedEntry{"w", sibling, -time.Millisecond})
		leave("an entry beside an ended one is left", "1")
		stands(ownedEntry{"w", mine, -time.Millisecond}, ownedEntry{"w", sibling, minute})
		leave("an ended entry beside another is left", "-1")

		stands(ownedEntry{"w", sibling, -time.Millisecond})
		token := e.storedOwned("orders").tokens[sibling]
		if answer := e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds()); answer == "[1 "+token+"]" {
			e.Errorf("a lock all of whose entries have ended is taken under the token of the last one")
		}
		stands(ownedEntry{"w", mine, time.Second}, ownedEntry{"r", reader, minute})
		if answer := e.run("owned_acquire", k, "ns1:ALIVE.4.t.r/you id", 60000, "join", keep.Milliseconds()); !strings.HasPrefix(answer, "[2 1001 ") {
			e.Errorf("a reader behind an entry that writes for a second gets %s", answer)
		}
		stands(ownedEntry{"r", reader, minute})
		e.run("owned_acquire", k, reader, 120000, "look", keep.Milliseconds())
		if x := e.storedOwned("orders").entries; len(x) != 1 || x[0].mode != "r" || strconv.FormatInt(x[0].until, 10) != e.ms(2*minute) {
			e.Errorf("a reader that has asked again is %+v", x)
		}
		stands(ownedEntry{"w", sibling, -time.Millisecond})
		must(e.env, e.Raw.ZAdd(e.Context(), k[0], redis.Z{Score: 5, Member: "no entry"}).Err())
		if answer := e.run("owned_acquire", k, strings.Replace(mine, "/me", "/you", 1), 60000, "try", keep.Milliseconds()); !strings.HasPrefix(answer, "[1 ") {
			e.Errorf("a lock with a member that is no entry is not taken: %s", answer)
		}
	})
}

// Places in the queue and how long they are kept.
func TestPlacesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
		for _, row := range []struct {
			name  string
			queue []any
			mode  string
			place string
		}{
			{"nobody waits", nil, "join", e.ms(0)},
			{"others wait", []any{living, -2 * minute, minute, unknown, -minute, minute}, "join", e.ms(0)},
			{"another waits of this millisecond", []any{living, time.Duration(0), minute}, "join", e.ms(time.Millisecond)},
			{"the clock was set back", []any{living, minute, minute, unknown, 2 * minute, minute}, "join", e.ms(2*minute + time.Millisecond)},
			{"it has an old place", []any{living, -minute, minute}, "1000", "1000"},
		} {
			e.fillQueue("orders", row.queue...)
			e.wants(row.name, e.run("mutex_acquire", k, me, 2000, row.mode, keep.Milliseconds()), fmt.Sprintf("[2 60000 %s %s]", row.place, stranger))
			e.wants(row.name+", alive until", e.Raw.HGet(e.Context(), k[3], me).Val(), e.ms(6600*time.Millisecond))
			e.wants(row.name+", the queue's TTL", e.left(k[2]), "13.2s")
			e.wants(row.name+", the TTL of what is known of it", e.left(k[3]), "13.2s")
		}
		e.fillQueue("orders")
		e.run("mutex_acquire", k, me, 500, "join", keep.Milliseconds())
		e.wants("a TTL below a second, alive until", e.Raw.HGet(e.Context(), k[3], me).Val(), e.ms(3300*time.Millisecond))
		for _, row := range []struct {
			name         string
			left, wanted time.Duration
		}{
			{"long enough", 6600 * time.Millisecond, 6600 * time.Millisecond},
			{"a millisecond too short", 6599 * time.Millisecond, 13200 * time.Millisecond},
			{"longer than this waiter needs", minute, minute},
		} {
			must(e.env, e.Raw.PExpire(e.Context(), k[2], row.left).Err())
			must(e.env, e.Raw.PExpire(e.Context(), k[3], row.left).Err())
			e.run("mutex_acquire", k, me, 2000, "look", keep.Milliseconds())
			e.wants(row.name+", the queue's TTL after a look", e.left(k[2]), row.wanted.String())
			e.wants(row.name+", that of what is known of it", e.left(k[3]), row.wanted.String())
		}
		must(e.env, e.Raw.Del(e.Context(), k[2]).Err())
		e.run("mutex_acquire", k, me, 2000, "join", keep.Milliseconds())
		e.wants("the TTL of a new queue", e.left(k[2]), minute.String())
		e.wants("the TTL of what was known of an old one", e.left(k[3]), minute.String())
	})
}

// Who waits is taken to be alive until the millisecond that is written down, and not in it; and not at all if
// nothing is.
func TestLapsesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for _, row := range []struct {
			name  string
			until any
			alive bool
		}{
			{"alive for a millisecond", time.Millisecond, true},
			{"not any more", time.Duration(0), false},
			{"nothing is known", nil, false},
		} {
			ask := func(what, script string, keys []string, args []any, lives, lapses string) {
				e.Helper()
				e.fillQueue("orders", living, -minute, row.until, unknown, -minute/2, minute)
				want := lapses
				if row.alive {
					want = lives
				}
				answer := e.run(script, keys, args...)
				e.wants(row.name+": "+what, answer+" "+e.members("orders"), want)
			}
			of := func(ids ...string) string { return fmt.Sprint(ids) }

			must(e.env, e.Raw.MSet(e.Context(), k[0], stranger, k[1], "17").Err())
			must(e.env, e.Raw.PExpire(e.Context(), k[0], minute).Err())
			busy := "[4 60000 " + stranger + "] "
			ask("a try while the lock is held", "mutex_acquire", k, []any{me, 60000, "try", keep.Milliseconds()}, busy+of(living, unknown), busy+of(unknown))
			ask("inspected", "lock_inspect", k[:4], nil,
				"[string 60000 [a foreign client w 60000 17] ["+living+" "+e.ms(-minute)+" 1 "+unknown+" "+e.ms(-minute/2)+" 1] "+strconv.FormatInt(e.now.UnixMicro(), 10)+"] "+of(living, unknown),
				"[string 60000 [a foreign client w 60000 17] ["+living+" "+e.ms(-minute)+" 0 "+unknown+" "+e.ms(-minute/2)+" 1] "+strconv.FormatInt(e.now.UnixMicro(), 10)+"] "+of(living, unknown))
			must(e.env, e.Raw.Set(e.Context(), k[0], me, minute).Err())
			ask("a promotion", "lock_promote", []string{k[0], k[2], k[3]}, []any{me, "living"}, "1 "+of(living, unknown), "0 "+of(living, unknown))
			must(e.env, e.Raw.Set(e.Context(), k[0], me, minute).Err())
			listener := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
			_, err := listener.Receive(e.Context())
			must(e.env, err)
			ask("a release", "mutex_leave", k, []any{me, 0, keep.Milliseconds()}, "[1 1000] "+of(unknown), "[1 1000] "+of())
			must(e.env, listener.Close())
		}
	})
}

// A grant that is not confirmed stands for a second, under a token of its own. It is made although nobody listens,
// where PUBLISH does not say.
func TestGrantsToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		must(e.env, e.Raw.Set(e.Context(), k[0], me, minute).Err())
		e.fillQueue("orders", unknown, -minute, minute)
		e.wants("release", e.run("mutex_leave", k, me, 0, keep.Milliseconds()), "[1 1000]")
		e.wants("the holder", e.Raw.Get(e.Context(), k[0]).Val(), unknown)
		e.wants("its TTL", e.left(k[0]), time.Second.String())
		e.wants("the counter of tokens", e.Raw.Get(e.Context(), k[1]).Val(), strconv.FormatInt(e.now.UnixMicro(), 10))
		e.wants("the counter's TTL", e.left(k[1]), keep.String())
	})
}

// A server that forbids PUBLISH does not say, either.
func TestGrantsWithoutPublish(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	user := redis.NewClient(e.As("mute", "~noonlock:*", "+@all", "-publish"))
	defer user.Close()
	e.establish("orders", mutexState{me, []string{living}, false, true})
	source, err := lockcore.ScriptSource("mutex_leave")
	must(e, err)
	released, err := user.Eval(e.Context(), source, e.scriptKeys("orders"), argv("mutex_leave", me, 0, keep.Milliseconds())...).Result()
	if err != nil || fmt.Sprint(released) != "[1 1000]" {
		e.Errorf("release: %v, %v", released, err)
	}
	if holder := e.Raw.Get(e.Context(), e.key("orders", "lock")).Val(); holder != living {
		e.Errorf("the holder is %q, want %q", holder, living)
	}
}

// A waiter has a timer for the end of the lock if it is one of the first three, or the first of its process among
// the first 32 waiters.
func TestTimersOfTheFirstWaiters(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
		for before, near := range map[string]bool{
			"": true, "AB": true, "MM": true, // the first three
			"AAA": true, "AAAB": true, "ABBA": true, "ABAB": true, // the first of its process
			"ABC": true, "AAABBBC": true, "AAAM": false, "AAMB": false,
			"A?A": true, "A?B?": true, "??????": true,
			strings.Repeat("A", 31): true, strings.Repeat("A", 32): false,
		} {
			var queue []any
			for i, process := range before {
				attempt := fmt.Sprintf("nl1:%c.%d.u/id", process, i)
				if process == '?' {
					attempt = fmt.Sprint(nonsense, i)
				}
				queue = append(queue, attempt, -minute+time.Duration(i)*time.Millisecond, minute)
			}
			const me = "nl1:M.me.u/id"
			e.fillQueue("orders", append(queue, me, time.Duration(0), minute)...)
			code := map[bool]string{true: "2", false: "3"}[near]
			e.wants("behind "+before, e.run("mutex_acquire", k, me, 60000, "look", keep.Milliseconds()), fmt.Sprintf("[%s 60000 %s %s]", code, e.ms(0), stranger))
		}
	})
}

// The first waiter has a timer for the end of the lock, so a release notifies it only if the lock ends earlier than
// before. The message says when.
func TestReleaseBeforeTheEndOfALock(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, reader, writer = "ns1:ALIVE.1.t.r/me id", "ns1:ALIVE.2.t.r/other id", "ns1:OTHER.3.t.w/you id"
		k := e.scriptKeys("orders")
		ear := e.Raw.Subscribe(e.Context(), "noonlock:ch:OTHER")
		defer ear.Close()
		_, err := ear.Receive(e.Context())
		must(e.env, err)
		for _, row := range []struct {
			lasts    time.Duration // the entry of the other reader
			messages string
		}{
			{minute + time.Millisecond, "[]"},
			{minute, "[]"},
			{minute - time.Millisecond, "[noonlock:ch:OTHER h noonlock:{orders}:lock 60000 " + writer + "]"},
		} {
			e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"r", mine, minute}, {"r", reader, row.lasts}}})
			e.fillQueue("orders", writer, -time.Second, minute)
			e.run("owned_leave", k, mine, 0, keep.Milliseconds())
			e.wants("the other reader's entry lasts "+row.lasts.String()+": messages", fmt.Sprint(e.messages(ear, "noonlock:ch:OTHER")), row.messages)
		}
	})
}

// A waiter has an entry again if the clock of the server was set back behind the end of that entry. A grant then
// counts it once. Otherwise its owner would have one entry more than it can leave.
func TestEntriesOfWaiters(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const waiter, other = "ns1:ALIVE.1.t.r/me id", "ns1:ALIVE.2.t.r/other id"
		k := e.scriptKeys("orders")
		ear := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
		defer ear.Close()
		_, err := ear.Receive(e.Context())
		must(e.env, err)
		e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"r", waiter, time.Second}, {"r", other, minute}}})
		e.fillQueue("orders", waiter, -time.Second, minute)
		e.run("owned_leave", k, other, 0, keep.Milliseconds())
		e.wants("the queue after a grant", e.members("orders"), "[]")
		e.wants("the entries of its owner", strconv.Itoa(int(e.Raw.ZScore(e.Context(), k[0], "n:me").Val())-countScore), "1")
	})
}

// A waiter of a free lock with more dead waiters than one script removes gets no holder.
func TestNoHolderBeforeManyDead(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for form, script := range map[string]string{"nl1:%s.%d.u/id": "mutex_acquire", "ns1:%s.%d.u.w/owner id": "owned_acquire"} {
			must(e.env, e.Raw.Del(e.Context(), k...).Err())
			var queue []any
			for i := range 1010 {
				queue = append(queue, fmt.Sprintf(form, "DEAD", i), -minute, nil)
			}
			e.fillQueue("orders", queue...)
			e.wants(script, e.run(script, k, fmt.Sprintf(form, "ALIVE", 1), 60000, "join", keep.Milliseconds()), fmt.Sprintf("[2 -2 %s ]", e.ms(0)))
		}
	})
}

// A try looks twice at a lock without a queue, and each time removes at most 1000 entries that have ended, so that
// the script stays short. If there are more, it is sent again.
func TestSweepsOfManyEnded(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for ended, left := range map[int]int{999: 0, 2500: 500} {
			e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"r", "ns1:ALIVE.1.t.r/stays id", minute}}})
			members := []redis.Z{{Score: float64(countScore + ended), Member: "n:gone"}}
			for i := range ended {
				members = append(members, redis.Z{Score: float64(e.now.UnixMilli() - 1), Member: fmt.Sprintf("ns1:GONE.%d.u.r/gone id", i)})
			}
			must(e.env, e.Raw.ZAdd(e.Context(), k[0], members...).Err())
			answer := e.run("owned_acquire", k, "ns1:OTHER.1.t.r/other id", 60000, "try", keep.Milliseconds())
			if again := strings.HasPrefix(answer, "[4 -2 "); again != (left > 0) {
				e.Errorf("%d entries had ended: answered %s", ended, answer)
			}
			if n := e.Raw.ZCount(e.Context(), k[0], "0", e.ms(-time.Millisecond)).Val(); n != int64(left) {
				e.Errorf("%d entries had ended: %d are left, want %d", ended, n, left)
			}
		}
	})
}

// An entry that has ended is not extended, even if there are more ended ones than one script removes. In its last
// millisecond it is.
func TestEndedEntryBehindManyEnded(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		const mine = "ns1:ALIVE.1.t.r/me id"
		for left, granted := range map[time.Duration]bool{0: true, -time.Millisecond: false} {
			e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"r", mine, left}, {"r", "ns1:OTHER.1.t.r/stays id", minute}}})
			members := []redis.Z{{Score: float64(countScore + 2500), Member: "n:gone"}}
			for i := range 2500 {
				members = append(members, redis.Z{Score: float64(e.now.UnixMilli() - 2), Member: fmt.Sprintf("ns1:GONE.%d.u.r/gone id", i)})
			}
			must(e.env, e.Raw.ZAdd(e.Context(), k[0], members...).Err())
			must(e.env, e.Raw.PExpire(e.Context(), k[0], minute).Err())
			answer := e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds())
			if strings.HasPrefix(answer, "[1 ") != granted || !granted && !strings.HasPrefix(answer, "[4 -2 ") {
				e.Errorf("an entry that ends in %v: answered %s", left, answer)
			}
		}
	})
}

// A release that passes 1000 waiters asks to be repeated at once if there are more.
func TestReleasesBeforeManyDead(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for kind, form := range map[string]string{"mutex": "nl1:DEAD.%d.u/id", "owned": "ns1:DEAD.%d.u.w/owner id"} {
			for dead, want := range map[int]string{999: "1", 1001: "[1 0]"} {
				script, holder := "mutex_leave", "nl1:HOLDER.1.u/id"
				if kind == "mutex" {
					must(e.env, e.Raw.Set(e.Context(), k[0], holder, minute).Err())
				} else {
					script, holder = "owned_leave", "ns1:HOLDER.1.u.w/holder id"
					e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"w", holder, minute}}})
				}
				var queue []any
				for i := range dead {
					queue = append(queue, fmt.Sprintf(form, i), -minute, nil)
				}
				e.fillQueue("orders", queue...)
				e.wants(fmt.Sprint(kind, ", ", dead, " dead waiters"), e.run(script, k, holder, 0, keep.Milliseconds()), want)
			}
		}
	})
}

// After a forced release, the first waiter of each process is called, of at most 32 processes that a message
// reaches, among the first 1000 waiters.
func TestForceNotifiesTheFirst(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		ear := e.Raw.PSubscribe(e.Context(), "noonlock:ch:P*")
		defer ear.Close()
		_, err := ear.Receive(e.Context())
		must(e.env, err)
		for _, row := range []struct {
			dead, each, processes int // waiters of a process without a subscription, then some of each process
			messages              int
		}{{0, 1, 1, 1}, {5, 3, 2, 2}, {0, 1, 33, 32}, {100, 1, 33, 32}, {999, 1, 1, 1}, {1000, 1, 1, 0}, {998, 2, 2, 1}} {
			must(e.env, e.Raw.Del(e.Context(), k...).Err())
			must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
			var queue []any
			if row.dead < 100 {
				queue = append(queue, nonsense, -minute, minute) // it is passed over
			}
			for i := range row.dead {
				queue = append(queue, fmt.Sprintf("nl1:DEAD%d.1.t/id", i), -minute, minute)
			}
			want := []string{}
			for i := range row.processes {
				for n := range row.each {
					attempt := fmt.Sprintf("nl1:P%d.%d.t/id", 10+i, n)
					queue = append(queue, attempt, time.Duration(i)*time.Millisecond, minute)
					if n == 0 && i < row.messages {
						want = append(want, fmt.Sprintf("noonlock:ch:P%d l noonlock:{orders}:lock %s", 10+i, attempt))
					}
				}
			}
			e.fillQueue("orders", queue...)
			e.wants("force", e.run("lock_force", []string{k[0], k[2], e.key("orders", "forced"), e.key("orders", "releases")}, "string", stranger), "1")
			e.wants(fmt.Sprintf("called of %+v", row), fmt.Sprint(e.messages(ear, "noonlock:ch:P")), fmt.Sprint(want))
		}
	})
}

// A release takes back what its own attempt has written, once, and nothing else.
func TestRecordOfAnElectionIsTakenBack(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		heard := e.Raw.Subscribe(e.Context(), "noonlock:leader:board")
		defer heard.Close()
		_, err := heard.Receive(e.Context())
		must(e.env, err)
		const me, news = "nl1:ALIVE.1.t/me", "noonlock:leader:board"
		keys := e.scriptKeys("orders")
		record := e.key("orders", "leader")
		hash := func(text string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(text))) } //nolint:gosec // as in the script
		releases := map[string]func(source string) error{
			"mutex_leave": func(source string) error {
				return e.Raw.Eval(e.Context(), source, append(keys, record), me, "1000 0 noonlock:ch:", 60000, news).Err()
			},
			"quorum_leave": func(source string) error {
				return e.Raw.Eval(e.Context(), source, []string{keys[0], keys[4], record}, me, 60000, "", news).Err()
			},
		}
		for script, release := range releases {
			source, err := lockcore.ScriptSource(script)
			must(e.env, err)
			for by, want := range map[string]string{
				me:      "map[acquired:5 holder: metadata:{} released:" + e.ms(0) + " term:6 token:17 v:1]",
				"other": "map[acquired:5 by:" + hash("other") + " holder:pod-1 metadata:{\"a\":\"b\"} term:7 token:17 v:1]",
			} {
				must(e.env, e.Raw.Del(e.Context(), record).Err())
				must(e.env, e.Raw.HSet(e.Context(), record, "v", 1, "by", hash(by), "holder", "pod-1", "token", 17, "term", 7, "acquired", 5, "metadata", `{"a":"b"}`).Err())
				for range 2 {
					must(e.env, release(source))
					e.wants(script+" by "+by, fmt.Sprint(e.Raw.HGetAll(e.Context(), record).Val()), want)
				}
				if by == me {
					m, err := heard.ReceiveMessage(e.Context())
					must(e.env, err)
					e.wants(script+": the message", m.Payload, "")
				}
			}
			must(e.env, e.Raw.Set(e.Context(), record, "spoilt", 0).Err())
			must(e.env, release(source))
			must(e.env, e.Raw.Del(e.Context(), record).Err())
			must(e.env, release(source))
			e.wants(script+" without a record", strconv.FormatBool(e.Exists(record)), "false")
		}
	})
}

// Each script's header declares its arguments, and the script uses exactly those.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	testenv.Scripts{Files: lockcore.ScriptFiles()}.CheckHeaders(t)
}

// If a counter could not be seeded (rights were missing) or was changed by others, it is seeded at the next call.
// Tokens are never small.
func TestTokenOfASpoiltCounter(t *testing.T) {
	onBoth(t, func(e *env) {
		m := e.mutex(e.Client("a"), "orders", ttl(5*time.Second))
		for _, spoilt := range []string{"1", "a text"} {
			lease := e.try(m)
			e.unlock(lease)
			e.Pass(time.Millisecond)
			must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), spoilt, 0).Err())
			next := e.try(m)
			if next.Token() <= lease.Token() {
				e.Errorf("%q: token %d after %d", spoilt, next.Token(), lease.Token())
			}
			if e.Raw.PTTL(e.Context(), e.key("orders", "fence")).Val() <= 0 {
				e.Errorf("%q: the counter has no TTL", spoilt)
			}
			e.unlock(next)
		}
	})
}

// The error of a command that fails names it. A token counter of another type is an error, unless it is not read.
// Mutant: the first error is ignored.
func TestRightsAreTried(t *testing.T) {
	onBoth(t, func(e *env) {
		never, fence := e.key("orders", "never"), e.key("orders", "fence")
		source, err := lockcore.ScriptSource("lock_rights")
		must(e, err)
		for _, key := range []string{never, fence} {
			must(e, e.Raw.Del(e.Context(), never, fence).Err())
			must(e, e.Raw.RPush(e.Context(), key, "spoilt").Err())
			for calls, says := range map[string]map[string]string{
				"TIME\nGET *\nHDEL * f":         {never: ": GET"},
				"LRANGE * 0 0\nHDEL * f":        {never: ": HDEL"},
				"TIME\nLRANGE * 0 0\nGET fence": {fence: ": GET"},
			} {
				answer, err := e.Raw.Eval(e.Context(), source, []string{never, fence}, calls).Result()
				if want := says[key]; want == "" && answer != int64(1) || want != "" && (err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), want)) {
					e.Errorf("%s is spoilt, %q: %v, %v, want %q", key, calls, answer, err, want)
				}
			}
		}
	})
}

// The server pauses in the middle of a script, after it has read the clock and before the script writes: for a
// moment, or for long (its process is stopped). By then the end that the script gives a lock's key may have passed,
// and the key is deleted. The later writes of the script must not leave a lock without a kind and an end, because no
// client could ever acquire it.
func TestServerThatStoodStillInAScript(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const stop = 5 * time.Second // the script's clock is that far behind the clock of PEXPIREAT
	late := func(script string) string {
		source, err := lockcore.ScriptSource(script)
		must(e, err)
		for _, clock := range []string{
			"local now = server_ms()\n",
			"local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)\n",
		} {
			source = strings.ReplaceAll(source, clock, fmt.Sprintf("%s - %d\n", strings.TrimSuffix(clock, "\n"), stop.Milliseconds()))
		}
		if n := strings.Count(source, fmt.Sprintf("- %d\n", stop.Milliseconds())); n != 1 {
			e.Fatalf("%s reads the clock in %d places, want 1", script, n)
		}
		return source
	}
	const (
		mine    = "ns1:ALIVE.1.t.r/me id"
		sibling = "ns1:ALIVE.2.t.r/me id"
		writer  = "ns1:ALIVE.2.t.w/me id"
		other   = "ns1:OTHER.3.t.r/other id"
	)
	ended, short, long := -time.Second, stop-time.Second, time.Minute // short: over when the script writes
	const keeps = "ns1:OTHER.9.t.r/keeps id"
	for _, c := range []struct {
		name, script string
		args         []any
		entries      []ownedEntry
	}{
		{"leaves, and another's entry is over", "owned_leave", []any{mine, 0}, []ownedEntry{{"r", mine, long}, {"r", other, ended}}},
		{"leaves, and its owner's other entry is over", "owned_leave", []any{mine, 0}, []ownedEntry{{"r", mine, long}, {"r", sibling, ended}}},
		{"comes in", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", other, ended}}},
		{"acquires while its owner holds", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", sibling, ended}}},
		{"a repeated request that holds", "owned_acquire", []any{mine, short.Milliseconds(), "try"}, []ownedEntry{{"r", mine, ended}}},
		{"renews", "owned_renew", []any{mine, short.Milliseconds()}, []ownedEntry{{"r", mine, ended}}},
		{"renews for less than before", "owned_renew", []any{mine, 500}, []ownedEntry{{"r", mine, ended}}},
		{"downgrades", "owned_downgrade", []any{writer}, []ownedEntry{{"w", writer, ended}}},
	} {
		e.establishOwned("orders", ownedState{kind: "ns1", entries: append(c.entries, ownedEntry{"r", keeps, long})})
		lock := e.key("orders", "lock")
		// The key still exists, as at the start of the script.
		must(e, e.Raw.ZRem(e.Context(), lock, "n:keeps", "t:"+keeps, keeps).Err())
		keys := e.scriptKeys("orders")[:map[string]int{"owned_acquire": 5, "owned_leave": 5, "owned_renew": 1, "owned_downgrade": 4}[c.script]]
		answer, err := e.Raw.Eval(e.Context(), late(c.script), keys, argv(c.script, c.args...)...).Result()
		must(e, err)
		if fmt.Sprint(answer) == "0" {
			e.Errorf("%s: it was not its own: the test shows nothing", c.name)
		}
		if fields := e.Raw.ZRange(e.Context(), lock, 0, -1).Val(); len(fields) > 0 {
			e.Errorf("%s: answered %v, and all is over, but a lock is left: %v, ends in %v", c.name, answer, fields, e.pttl("orders"))
		}
	}
}
