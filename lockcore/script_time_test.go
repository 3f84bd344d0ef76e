package lockcore_test

import (
	"crypto/sha1"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
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
	inBubble(t, func(e *env) {
		e.Pass(1234*time.Millisecond + 567*time.Microsecond)
		test(&timed{e, time.Now()})
	})
}

// ms is an instant as scripts write it.
func (e *timed) ms(later time.Duration) string {
	return strconv.FormatInt(e.now.Add(later).UnixMilli(), 10)
}

// hears subscribes to channels, or to patterns of them.
func (e *env) hears(channels ...string) *redis.PubSub {
	e.Helper()
	heard := e.Raw.PSubscribe(e.Context(), channels...)
	e.Cleanup(func() { heard.Close() })
	for range channels {
		call(heard.Receive(e.Context())).Must(e)
	}
	return heard
}

func (e *timed) run(script string, keys []string, args ...any) string {
	e.Helper()
	source := call(lockcore.ScriptSource(script)).Must(e.env)
	answer, err := e.Raw.Eval(e.Context(), source, keys, argv(script, args...)...).Result()
	if err != nil {
		return err.Error()
	}
	if list, ok := listed(answer); ok && strings.HasSuffix(script, "_acquire") {
		answer = list
	}
	return fmt.Sprint(answer)
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

// A token is the server's clock in µs, or one more than the last token if that is not less. The counter outlives a
// grant by its keep. Without one, it keeps its TTL; a counter that was lost gets one.
func TestTokensToTheMicrosecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		const longer = int64(1000000000000000) // greater, although its text is less
		now, ahead := e.now.UnixMicro(), e.now.Add(minute).UnixMicro()
		later := now - now%1000000 + 1000042 // TIME has no zeros before 42
		outlives := func(token int64) time.Duration {
			return (keep + time.Duration(max(0, token-later))*time.Microsecond).Round(time.Millisecond)
		}
		for i, row := range []struct {
			counter int64         // before it; 0: as it is
			ttl     time.Duration // of the counter, before it
			keep    any
			token   int64
			left    time.Duration // the counter's TTL
		}{
			{0, 0, keep.Milliseconds(), now, keep},
			{0, 0, keep.Milliseconds(), now + 1, keep},
			{0, 0, keep.Milliseconds(), now + 2, keep},
			{0, 0, keep.Milliseconds(), later, keep},
			{ahead, 0, keep.Milliseconds(), ahead + 1, outlives(ahead)},
			{99, 0, keep.Milliseconds(), later, keep}, // less, although its text is greater
			{longer, 0, keep.Milliseconds(), longer + 1, outlives(longer)},
			{ahead + 1, 0, nil, ahead + 2, week + outlives(ahead) - keep}, // as scripts of jobs do, which name no keep
			{-1, 0, false, later + 1, week},                               // one more than the counter that the script has written
			{later - 1, minute, false, later, minute},
			{0, 0, false, later + 1, minute},
			{ahead, keep, false, ahead + 1, keep},
		} {
			if i == 3 {
				e.Pass(time.Duration(later-now) * time.Microsecond)
			}
			if row.counter == -1 {
				must(e.env, e.Raw.Del(e.Context(), k[1]).Err())
			} else if row.counter > 0 {
				must(e.env, e.Raw.Set(e.Context(), k[1], row.counter, row.ttl).Err())
			}
			args := []any{me, 60000, "try", row.keep}
			if row.keep == nil {
				args = args[:3]
			}
			equal(e, fmt.Sprint("token ", i), e.run("mutex_acquire", k, args...), fmt.Sprintf("[1 %d]", row.token))
			equal(e, fmt.Sprint("counter ", i), e.Raw.Get(e.Context(), k[1]).Val(), strconv.FormatInt(row.token, 10))
			equal(e, fmt.Sprint("the TTL of the counter ", i), e.left(k[1]), row.left.String())
			equal(e, "release", e.run("mutex_leave", k, me, 0, keep.Milliseconds()), "1")
		}
	})
}

// The first grant of a handle sets the TTL of the counter, and then the first one after each second.
func TestWhenAGrantSetsTheTTLOfTheCounter(t *testing.T) {
	inBubble(t, func(e *env) {
		const ms, short, long = time.Millisecond, time.Minute, 2*time.Hour + time.Second
		m, counter := e.mutex(e.Client("a"), "orders", ttl(5*time.Second)), e.key("orders", "fence")
		e.Pass(ms) // the clock of the Client is not 0
		lease := e.try(m)
		for _, row := range []struct {
			after, left time.Duration
		}{{0, short}, {999 * ms, short - 999*ms}, {ms, long}, {999 * ms, short - 999*ms}, {ms, long}} {
			e.unlock(lease)
			must(e, e.Raw.PExpire(e.Context(), counter, short).Err())
			e.Pass(row.after)
			next := e.try(m)
			tokensGrow(e, lease, next)
			lease = next
			equal(e, "the counter's TTL", e.Raw.PTTL(e.Context(), counter).Val(), row.left)
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
			equal(e, row.name, e.run("mutex_acquire", k, me, 2000, row.mode, keep.Milliseconds()), fmt.Sprintf("[2 60000 %s %s]", row.place, stranger))
			equal(e, row.name+", alive until", e.Raw.HGet(e.Context(), k[3], me).Val(), e.ms(6600*time.Millisecond))
			equal(e, row.name+", the queue's TTL", e.left(k[2]), "13.2s")
			equal(e, row.name+", the TTL of what is known of it", e.left(k[3]), "13.2s")
		}
		e.fillQueue("orders")
		e.run("mutex_acquire", k, me, 500, "join", keep.Milliseconds())
		equal(e, "a TTL below a second, alive until", e.Raw.HGet(e.Context(), k[3], me).Val(), e.ms(3300*time.Millisecond))
		for _, row := range []struct {
			script, mode string
			until        time.Duration
		}{
			{"mutex_acquire", "join,30", 30 * time.Millisecond},
			{"mutex_acquire", "look,20", 20 * time.Millisecond},
			{"mutex_acquire", "1000,1", time.Millisecond},
			{"mutex_acquire", "-1000,3299", 3299 * time.Millisecond},
			{"mutex_acquire", "join,3301", 3300 * time.Millisecond},
			{"owned_acquire", "join,30", 30 * time.Millisecond},
			{"owned_acquire", "join,3301", 3300 * time.Millisecond},
		} {
			of := me
			if row.script == "owned_acquire" {
				of = "ns1:ALIVE.1.w/me id"
				e.establish("orders", heldBy("ns1:OTHER.9.w/other id"))
			}
			e.run(row.script, k, of, 500, row.mode, keep.Milliseconds())
			equal(e, row.script+", "+row.mode+": alive until", e.Raw.HGet(e.Context(), k[3], of).Val(), e.ms(row.until))
		}
		must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
		e.fillQueue("orders", me, -minute, minute)
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
			equal(e, row.name+", the queue's TTL after a look", e.left(k[2]), row.wanted.String())
			equal(e, row.name+", that of what is known of it", e.left(k[3]), row.wanted.String())
		}
		must(e.env, e.Raw.Del(e.Context(), k[2]).Err())
		e.run("mutex_acquire", k, me, 2000, "join", keep.Milliseconds())
		equal(e, "the TTL of a new queue", e.left(k[2]), minute.String())
		equal(e, "the TTL of what was known of an old one", e.left(k[3]), minute.String())
	})
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
				attempt := fmt.Sprintf("nl1:%c.%d/id", process, i)
				if process == '?' {
					attempt = fmt.Sprint(nonsense, i)
				}
				queue = append(queue, attempt, -minute+time.Duration(i)*time.Millisecond, minute)
			}
			const me = "nl1:M.me/id"
			e.fillQueue("orders", append(queue, me, time.Duration(0), minute)...)
			code := map[bool]string{true: "2", false: "3"}[near]
			equal(e, "behind "+before, e.run("mutex_acquire", k, me, 60000, "look", keep.Milliseconds()), fmt.Sprintf("[%s 60000 %s %s]", code, e.ms(0), stranger))
		}
	})
}

// A release that leaves the lock free writes the end into the record of an election, once: into any record if it held
// the lock of one server, and otherwise only into that of its own attempt. A release without a tombstone leaves none.
func TestReleaseEndsTheRecordOfAnElection(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const me, news = "nl1:ALIVE.1/me", "noonlock:leader:board"
		heard := e.hears(news)
		k, record := e.scriptKeys("orders"), e.key("orders", "leader")
		const both = "mutex_leave quorum_leave"
		for _, row := range []struct {
			name, holder, by string
			waits            bool
			more             []any  // of the record
			ends             string // the scripts that end the record
		}{
			{name: "its own record", holder: me, by: me, ends: both},
			{name: "its own record, and another one waits", holder: me, by: me, waits: true, ends: "quorum_leave"},
			{name: "another's record", holder: me, by: "other", ends: "mutex_leave"},
			{name: "a free lock", by: me, ends: both},
			{name: "a free lock, and another's record", by: "other"},
			{name: "another's lock", holder: "another", by: me, ends: "quorum_leave"},
			{name: "a record that has ended", holder: me, by: me, more: []any{"released", 7}},
			{name: "a record of another version", holder: me, by: me, more: []any{"v", 2}},
			{name: "a key of another type", holder: me},
			{name: "no record", holder: me},
		} {
			for script, run := range map[string][]any{
				"mutex_leave":  {append(k[:5:5], record), me, "1000 0 noonlock:ch:", 0, news},
				"quorum_leave": {[]string{k[0], k[4], record}, me, 0, "", news},
			} {
				where := script + ", " + row.name
				must(e.env, e.Raw.FlushDB(e.Context()).Err())
				switch {
				case row.by != "":
					by := fmt.Sprintf("%x", sha1.Sum([]byte(row.by))) //nolint:gosec // as in the script
					must(e.env, e.Raw.HSet(e.Context(), record, append([]any{"v", 1, "by", by, "holder", "pod-1", "acquired", 5}, row.more...)...).Err())
				case row.name != "no record":
					must(e.env, e.Raw.Set(e.Context(), record, "spoilt", 0).Err())
				}
				if row.holder != "" {
					must(e.env, e.Raw.Set(e.Context(), k[0], row.holder, time.Minute).Err())
				}
				if row.waits {
					e.fillQueue("orders", living, time.Duration(0), minute)
				}
				want, ends := e.Raw.HGetAll(e.Context(), record).Val(), strings.Contains(row.ends, script)
				if ends {
					want["holder"], want["released"] = "", e.ms(0)
				}
				for range 2 {
					call(testenv.Scripts{Files: lockcore.ScriptFiles()}.Eval(e.Env, script, run[0].([]string), run[1:]...)).Must(e.env)
					equal(e, where, fmt.Sprint(e.Raw.HGetAll(e.Context(), record).Val()), fmt.Sprint(want))
				}
				equal(e, where+": messages", len(e.Received(heard, news)), map[bool]int{true: 1}[ends])
				equal(e, where+": the lock of its own", e.Raw.Get(e.Context(), k[0]).Val() == me, false)
				equal(e, where+": the key of another type", e.Raw.Get(e.Context(), record).Val() == "spoilt", row.name == "a key of another type")
				equal(e, where+": a tombstone", e.Exists(k[4]), false)
			}
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
			e.Pass(time.Second) // until a grant sets the TTL
			must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), spoilt, 0).Err())
			next := e.try(m)
			tokensGrow(e, lease, next)
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
		source := call(lockcore.ScriptSource("lock_rights")).Must(e)
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
		source := call(lockcore.ScriptSource(script)).Must(e)
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
		mine    = "ns1:ALIVE.1.r/me id"
		sibling = "ns1:ALIVE.2.r/me id"
		writer  = "ns1:ALIVE.2.w/me id"
		other   = "ns1:OTHER.3.r/other id"
	)
	slot, another := slotAttempt("ALIVE", "1", "id"), slotAttempt("OTHER", "3", "id")
	ended, short, long := -time.Second, stop-time.Second, time.Minute // short: over when the script writes
	const keeps = "ns1:OTHER.9.r/keeps id"
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
		{"acquires a slot", "owned_acquire", []any{slot, short.Milliseconds(), "try"}, []ownedEntry{{"p", another, ended}}},
		{"a repeated request that has a slot", "owned_acquire", []any{slot, short.Milliseconds(), "try"}, []ownedEntry{{"p", slot, ended}}},
		{"leaves its slot, and another's entry is over", "owned_leave", []any{slot, 0}, []ownedEntry{{"p", slot, long}, {"p", another, ended}}},
		{"downgrades", "owned_downgrade", []any{writer}, []ownedEntry{{"w", writer, ended}}},
	} {
		e.establish("orders", keyState{entries: append(c.entries, ownedEntry{"r", keeps, long})})
		lock := e.key("orders", "lock")
		// The key still exists, as at the start of the script.
		must(e, e.Raw.ZRem(e.Context(), lock, "n:keeps", "t:"+keeps, keeps).Err())
		keys := e.slotKeys("orders")[:map[string]int{"owned_acquire": 6, "owned_leave": 6, "owned_renew": 1, "owned_downgrade": 4}[c.script]]
		answer := call(e.Raw.Eval(e.Context(), late(c.script), keys, argv(c.script, c.args...)...).Result()).Must(e)
		if list, ok := answer.([]any); ok && len(list) == 4 && list[2] != int64(-1) {
			e.Errorf("%s: answers %v, and there is no entry", c.name, answer)
		}
		if fmt.Sprint(answer) == "0" {
			e.Errorf("%s: it was not its own: the test shows nothing", c.name)
		}
		if fields := e.Raw.ZRange(e.Context(), lock, 0, -1).Val(); len(fields) > 0 {
			e.Errorf("%s: answered %v, and all is over, but a lock is left: %v, ends in %v", c.name, answer, fields, e.pttl("orders"))
		}
	}
}

// A renewal and a confirmation let the lock end a full TTL later. With owners, it ends at a whole millisecond of the
// server's clock.
func TestHoldsToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for family, mine := range map[string]string{"mutex": me, "owned": "ns1:ALIVE.1.w/me id"} {
			must(e.env, e.Raw.Del(e.Context(), k...).Err())
			lasts := func(what string) {
				e.Helper()
				if left := e.Raw.PTTL(e.Context(), k[0]).Val(); left > minute || left <= minute-2*time.Millisecond || family == "mutex" && left != minute {
					e.Errorf("%s of %s: the lock lasts %v, want %v", what, family, left, minute)
				}
				e.Pass(time.Second)
			}
			held := e.run(family+"_acquire", k, mine, 60000, "try", keep.Milliseconds())
			lasts("acquired")
			equal(e, "renewal", e.run(family+"_renew", k[:1], mine, 60000), "1")
			lasts("renewed")
			equal(e, "acquired again", e.run(family+"_acquire", k, mine, 60000, "look", keep.Milliseconds()), held)
			lasts("acquired again")
			equal(e, "the counter's TTL", e.left(k[1]), (keep - 3*time.Second).String())
		}
		e.now = time.Now()
		e.establish("orders", heldBy(me))
		for before, after := range map[time.Duration]time.Duration{keep + time.Millisecond: keep + time.Millisecond, keep - time.Millisecond: keep} {
			must(e.env, e.Raw.PExpire(e.Context(), k[1], before).Err())
			equal(e, "renewal", e.run("mutex_renew", k[:2], me, 60000, keep.Milliseconds()), "1")
			equal(e, fmt.Sprintf("the counter's TTL, that was %v", before), e.left(k[1]), after.String())
		}
	})
}

// An entry ends with its millisecond, although the key of the lock has a later end: it is nobody's then, and counts
// no more. A member that is no entry is dropped when its time is over, too.
func TestEndsOfOwnedEntriesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const (
			mine, sibling, reader = "ns1:ALIVE.1.w/me id", "ns1:ALIVE.2.w/me id", "ns1:ALIVE.3.r/me id"
			you, yours            = "ns1:ALIVE.1.w/you id", "ns1:ALIVE.4.r/you id"
			ended                 = -time.Millisecond
		)
		k := e.scriptKeys("orders")
		stands := func(entries ...ownedEntry) {
			e.Helper()
			const keeps = "ns1:ALIVE.9.r/keeps id" // the key
			e.establish("orders", keyState{entries: append(entries, entryOf(keeps, time.Hour))})
			must(e.env, e.Raw.ZRem(e.Context(), k[0], keeps, "n:keeps", "t:"+keeps).Err())
		}
		for _, row := range []struct {
			name, script string
			args         []any
			entries      []ownedEntry
			answer       string // its start
		}{
			{"an entry in its last millisecond is left", "owned_leave", []any{mine, 0}, []ownedEntry{entryOf(mine, 0)}, "1"},
			{"an entry that has ended is left", "owned_leave", []any{mine, 0}, []ownedEntry{entryOf(mine, ended)}, "0"},
			{"an entry beside an ended one is left", "owned_leave", []any{mine, 0}, []ownedEntry{entryOf(mine, minute), entryOf(sibling, ended)}, "1"},
			{"an ended entry beside another is left", "owned_leave", []any{mine, 0}, []ownedEntry{entryOf(mine, ended), entryOf(sibling, minute)}, "-1"},
			{"an entry in its last millisecond is renewed", "owned_renew", []any{mine, 60000}, []ownedEntry{entryOf(mine, 0), entryOf(sibling, minute)}, "1"},
			{"an entry that has ended is renewed", "owned_renew", []any{mine, 60000}, []ownedEntry{entryOf(mine, ended), entryOf(sibling, minute)}, "0"},
			{"a reader behind an entry that writes for a second", "owned_acquire", []any{yours, 60000, "join"}, []ownedEntry{entryOf(mine, time.Second), entryOf(reader, minute)}, "[2 1001 "},
			{"all entries have ended: not the token of the last one", "owned_acquire", []any{mine, 60000, "try"}, []ownedEntry{entryOf(sibling, ended)}, "[1 " + strconv.FormatInt(e.now.UnixMicro(), 10)},
		} {
			stands(row.entries...)
			must(e.env, e.Raw.Del(e.Context(), k[1]).Err())
			keys := map[bool][]string{true: k[:1], false: k}[row.script == "owned_renew"]
			if answer := e.run(row.script, keys, row.args...); !strings.HasPrefix(answer, row.answer) {
				e.Errorf("%s: %s, want %s", row.name, answer, row.answer)
			}
		}
		stands(entryOf(reader, minute))
		e.run("owned_acquire", k, reader, 120000, "look", keep.Milliseconds())
		if x := e.storedOwned("orders").entries; len(x) != 1 || x[0].mode != "r" || strconv.FormatInt(x[0].until, 10) != e.ms(2*minute) {
			e.Errorf("a reader that has asked again is %+v", x)
		}
		stands(entryOf(sibling, ended))
		must(e.env, e.Raw.ZAdd(e.Context(), k[0], redis.Z{Score: 5, Member: "no entry"}).Err())
		if answer := e.run("owned_acquire", k, you, 60000, "try", keep.Milliseconds()); !strings.HasPrefix(answer, "[1 ") {
			e.Errorf("a lock with a member that is no entry is not taken: %s", answer)
		}
	})
}

// A waiter is taken to be alive until the millisecond that is written down, and not in it; and not at all if
// nothing is.
func TestLapsesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		e.hears("noonlock:ch:ALIVE")
		both, one := fmt.Sprint([]string{living, unknown}), fmt.Sprint([]string{unknown})
		inspected := func(alive string) string {
			return "[string 60000 [a foreign client w 60000 17] [" + living + " " + e.ms(-minute) + " " + alive + " " + unknown + " " + e.ms(-minute/2) + " 1] " + strconv.FormatInt(e.now.UnixMicro(), 10) + " 0] " + both
		}
		for until, alive := range map[any]bool{time.Millisecond: true, time.Duration(0): false, nil: false} {
			for _, row := range []struct {
				script        string
				keys          []string
				holder        string
				args          []any
				lives, lapses string
			}{
				{"mutex_acquire", k, stranger, []any{me, 60000, "try"}, "[4 60000 " + stranger + "] " + both, "[4 60000 " + stranger + "] " + one},
				{"lock_inspect", append(k[:4:4], e.key("orders", "size")), stranger, nil, inspected("1"), inspected("0")},
				{"lock_promote", []string{k[0], k[2], k[3]}, me, []any{me, "living"}, "1 " + both, "0 " + both},
				{"mutex_leave", k, me, []any{me, 0}, "[1 1000] " + one, "[1 1000] []"},
			} {
				must(e.env, e.Raw.Set(e.Context(), k[0], row.holder, minute).Err())
				must(e.env, e.Raw.Set(e.Context(), k[1], "17", 0).Err())
				e.fillQueue("orders", living, -minute, until, unknown, -minute/2, minute)
				answer := e.run(row.script, row.keys, row.args...)
				equal(e, fmt.Sprint(row.script, ", alive until ", until), answer+" "+e.members("orders"), map[bool]string{true: row.lives, false: row.lapses}[alive])
			}
		}
	})
}

// A grant that is not confirmed stands for a second, under a token of its own. It is made although nobody listens,
// where PUBLISH does not say.
func TestGrantsToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		e.establish("orders", keyState{holder: me, unused: true})
		e.fillQueue("orders", unknown, -minute, minute)
		equal(e, "release", e.run("mutex_leave", k, me, 0, keep.Milliseconds()), "[1 1000]")
		got := fmt.Sprint(e.Raw.Get(e.Context(), k[0]).Val(), " ", e.left(k[0]), ", ", e.Raw.Get(e.Context(), k[1]).Val(), " ", e.left(k[1]))
		equal(e, "the holder and the counter of tokens", got, fmt.Sprint(unknown, " 1s, ", e.now.UnixMicro(), " ", keep))
	})
}

// A server that forbids PUBLISH does not say, either.
func TestGrantsWithoutPublish(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	e.establish("orders", heldBy(me, living))
	e.Raw = e.Narrowed("mute", e.scriptKeys("orders"), "-publish")
	released := e.run("mutex_leave", e.scriptKeys("orders"), me, 0)
	if holder := e.stored("orders"); fmt.Sprint(released) != "[1 1000]" || holder != living {
		e.Errorf("released: %v; the holder is %q, want %q", released, holder, living)
	}
}

// The first waiter has a timer for the end of the lock, so a release notifies it only if the lock ends earlier than
// before. The message says when.
func TestReleaseBeforeTheEndOfALock(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, reader, writer = "ns1:ALIVE.1.r/me id", "ns1:ALIVE.2.r/other id", "ns1:OTHER.3.w/you id"
		k := e.scriptKeys("orders")
		ear := e.hears("noonlock:ch:OTHER")
		for lasts, messages := range map[time.Duration]string{
			minute + time.Millisecond: "[]",
			minute:                    "[]",
			minute - time.Millisecond: "[noonlock:ch:OTHER h noonlock:{orders}:lock 60000 " + writer + "]",
		} {
			e.establish("orders", keyState{entries: []ownedEntry{entryOf(mine, minute), entryOf(reader, lasts)}})
			e.fillQueue("orders", writer, -time.Second, minute)
			e.run("owned_leave", k, mine, 0, keep.Milliseconds())
			equal(e, "the other reader's entry lasts "+lasts.String()+": messages", fmt.Sprint(e.Received(ear, "noonlock:ch:OTHER")), messages)
		}
	})
}

// A waiter has an entry again if the clock of the server was set back behind the end of that entry. A grant then
// counts it once. Otherwise its owner would have one entry more than it can leave.
func TestEntriesOfWaiters(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const waiter, other = "ns1:ALIVE.1.r/me id", "ns1:ALIVE.2.r/other id"
		k := e.scriptKeys("orders")
		e.hears("noonlock:ch:ALIVE")
		e.establish("orders", keyState{entries: []ownedEntry{entryOf(waiter, time.Second), entryOf(other, minute)}})
		e.fillQueue("orders", waiter, -time.Second, minute)
		e.run("owned_leave", k, other, 0, keep.Milliseconds())
		equal(e, "the queue after a grant", e.members("orders"), "[]")
		equal(e, "the entries of the owner", e.storedOwned("orders").counts["me"], 1)
	})
}

// A script removes at most 1000 dead waiters, so that it stays short. A free lock with more gets no holder, and a
// release asks to be repeated at once.
func TestScriptsBeforeManyDead(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		for family, form := range map[string]string{"mutex": "nl1:%s.%d/id", "owned": "ns1:%s.%d.w/owner id"} {
			mine := fmt.Sprintf(form, "ALIVE", 1)
			for _, row := range []struct {
				held   bool
				dead   int
				script string
				args   []any
				want   string
			}{
				{false, 1010, "_acquire", []any{mine, 60000, "join"}, fmt.Sprintf("[2 -2 %s ]", e.ms(0))},
				{true, 999, "_leave", []any{mine, 0}, "1"},
				{true, 1001, "_leave", []any{mine, 0}, "[1 0]"},
			} {
				if e.establish("orders", keyState{}); row.held {
					e.establish("orders", heldBy(mine))
				}
				var queue []any
				for i := range row.dead {
					queue = append(queue, fmt.Sprintf(form, "DEAD", i), -minute, nil)
				}
				e.fillQueue("orders", queue...)
				equal(e, fmt.Sprint(family, row.script, ", ", row.dead, " dead waiters"), e.run(family+row.script, k, row.args...), row.want)
			}
		}
	})
}

// A try looks twice at a lock without a queue, and each time removes at most 1000 entries that have ended, so that
// the script stays short. If there are more, it is sent again. An entry in its last millisecond is extended, and one
// that has ended is not, even if there are more of those than one script removes.
func TestSweepsOfManyEnded(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, stays = "ns1:ALIVE.1.r/me id", "ns1:OTHER.1.r/stays id"
		for _, row := range []struct {
			ended, left int
			entries     []ownedEntry
			answer      string
		}{
			{999, 0, nil, "[1 "},
			{2500, 500, nil, "[4 -2 "},
			{2500, 2500 - 1000, []ownedEntry{entryOf(mine, 0)}, "[1 "},
			{2500, 2501 - 2000, []ownedEntry{entryOf(mine, -time.Millisecond)}, "[4 -2 "},
		} {
			e.establish("orders", keyState{entries: append(row.entries, entryOf(stays, minute))})
			members := []redis.Z{{Score: float64(countScore + row.ended), Member: "n:gone"}}
			for i := range row.ended {
				members = append(members, redis.Z{Score: float64(e.now.UnixMilli() - 2), Member: fmt.Sprintf("ns1:GONE.%d.r/gone id", i)})
			}
			k := e.scriptKeys("orders")
			must(e.env, e.Raw.ZAdd(e.Context(), k[0], members...).Err())
			if answer := e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds()); !strings.HasPrefix(answer, row.answer) {
				e.Errorf("%+v: answered %s", row, answer)
			}
			equal(e, fmt.Sprintf("%+v: entries that are left", row),
				e.Raw.ZCount(e.Context(), k[0], "0", e.ms(-time.Millisecond)).Val(), int64(row.left))
		}
	})
}

// After a forced release, the first waiter of each process is called, of at most 32 processes
// among the first 1000 waiters.
func TestForceNotifiesTheFirst(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		ear := e.hears("noonlock:ch:P*")
		for _, row := range []struct {
			ahead, each, processes int // waiters of one process, then some of each process
			messages               int
		}{{0, 1, 1, 1}, {5, 3, 2, 2}, {0, 1, 33, 32}, {100, 1, 33, 31}, {999, 1, 1, 1}, {1000, 1, 1, 0}, {998, 2, 2, 1}} {
			e.establish("orders", keyState{holder: living})
			var queue []any
			if row.ahead < 100 {
				queue = append(queue, nonsense, -minute, minute) // it is passed over
			}
			for i := range row.ahead {
				queue = append(queue, fmt.Sprintf("nl1:AHEAD.%d/id", i), -minute, minute)
			}
			want := []string{}
			for i := range row.processes {
				for n := range row.each {
					attempt := fmt.Sprintf("nl1:P%d.%d/id", 10+i, n)
					queue = append(queue, attempt, time.Duration(i)*time.Millisecond, minute)
					if n == 0 && i < row.messages {
						want = append(want, fmt.Sprintf("noonlock:ch:P%d l noonlock:{orders}:lock %s", 10+i, attempt))
					}
				}
			}
			e.fillQueue("orders", queue...)
			equal(e, "force", e.run("lock_force", []string{k[0], k[2], e.key("orders", "forced"), e.key("orders", "releases")}, "string", living), "1")
			equal(e, fmt.Sprintf("called of %+v", row), fmt.Sprint(e.Received(ear, "noonlock:ch:P")), fmt.Sprint(want))
		}
	})
}
