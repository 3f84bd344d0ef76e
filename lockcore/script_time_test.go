package lockcore_test

import (
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
	now  time.Time
	edit func(source string) string // of a script, before it runs
}

func toTheMillisecond(t *testing.T, test func(e *timed)) {
	t.Helper()
	inBubble(t, func(e *env) {
		e.Pass(1234*time.Millisecond + 567*time.Microsecond)
		test(&timed{env: e, now: time.Now()})
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

const minute, week = time.Minute, 7 * 24 * time.Hour

func (e *timed) run(script string, keys []string, args ...any) string {
	e.Helper()
	answer, _ := e.eval(script, keys, argv(script, args...))
	return answer
}

// eval runs a script, and returns an answer of an acquire as a list, and an error also as a text.
func (e *timed) eval(script string, keys []string, args []any) (string, error) {
	e.Helper()
	source := call(lockcore.ScriptSource(script)).Must(e.env)
	if e.edit != nil {
		source = e.edit(source)
	}
	answer, err := e.Raw.Eval(e.Context(), source, keys, args...).Result()
	if err != nil {
		return err.Error(), err
	}
	if list, ok := listed(answer); ok && strings.HasSuffix(script, "_acquire") {
		answer = list
	}
	return fmt.Sprint(answer), nil
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
	const behind = " - 5000\n" // the script's clock is that far behind the clock of PEXPIREAT
	late := func(source string) string {
		for _, clock := range []string{
			"local now = server_ms()",
			"local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)",
		} {
			source = strings.ReplaceAll(source, clock+"\n", clock+behind)
		}
		equal(e, "places where a script reads the clock", strings.Count(source, behind), 1)
		return source
	}
	for _, row := range []struct{ name, entries, asks string }{
		{"leaves, and another's entry is over", "A.1r/me B.3r/other:-1000", "A.1r/me leaves => 1"},
		{"leaves, and its owner's other entry is over", "A.1r/me A.2r/me:-1000", "A.1r/me leaves => 2"},
		{"comes in", "B.3r/other:-1000", "A.1r/me tries => held _"},
		{"acquires while its owner holds", "A.2r/me:-1000", "A.1r/me tries => held _"},
		{"a repeated request that holds", "A.1r/me:-1000", "A.1r/me tries => held _"},
		{"renews", "A.1r/me:-1000", "A.1r/me renews => 1"},
		{"renews for less than before", "A.1r/me:-1000", "A.1r/me renews ttl=500 => 1"},
		{"acquires a slot", "B.3p/-:-1000", "A.1p/- tries => held _ -1 2"},
		{"a repeated request that has a slot", "A.1p/-:-1000", "A.1p/- tries => held _ -1 2"},
		{"leaves its slot, and another's entry is over", "A.1p/- B.3p/-:-1000", "A.1p/- leaves => 2"},
		{"downgrades", "A.2w/me:-1000", "A.2w/me downgrades => 1"},
	} {
		who, verb, _ := strings.Cut(row.asks, " ")
		p := &timed{env: e, now: time.Now(), edit: late}
		p.plays(row.name, 1, "anew; lock "+row.entries+" key:60000; "+who+" "+strings.Replace(verb, " ", " ttl=4000 ", 1)+"; lock =>")
	}
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
