package cas_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/adapters/clientgo/internal/cas"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/internal/wire"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, cas.ScriptFiles, cas.UseScripts))
}

func scripts() testenv.Scripts { return testenv.Scripts{Files: cas.ScriptFiles} }

// The header of each script declares exactly its inputs.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	scripts().CheckHeaders(t)
}

// Short names for all tests.
var (
	must      = testenv.Must
	mustIs    = testenv.MustIs
	mustNotBe = testenv.MustNotBe
)

// key is the key of the record in these tests.
const key = "noonlock:{clientgo/board}:record"

// script matches writes in faults.
func script(e *testenv.Env) func([]string) bool { return scripts().Match(e, "record_put") }

// warm loads the script on the server, so that faults of requests apply to an EVALSHA that runs it.
func warm(e *testenv.Env) {
	e.Helper()
	must(e, e.Raw.ScriptLoad(e.Context(), wire.Naming(scripts().Source(e, "record_put"))).Err())
}

func record(e *testenv.Env, c *lockcore.Client, timeout time.Duration) *cas.Record {
	e.Helper()
	return testenv.Call(cas.New(c, "board", timeout)).Must(e)
}

// put writes the record, which must succeed.
func put(e *testenv.Env, r *cas.Record, seen cas.Version, value string) cas.Version {
	e.Helper()
	return testenv.Call(r.Put(e.Context(), seen, []byte(value), time.Hour)).Must(e)
}

// holds asserts the content of the record.
func holds(e *testenv.Env, r *cas.Record, want string) cas.State {
	e.Helper()
	state := testenv.Call(r.Get(e.Context())).Must(e)
	testenv.Equal(e, "the record", string(state.Value), want)
	return state
}

// record_put in every state of its key, run twice by a user who may access no other key. The second
// answer equals the first, and the script writes only its own record.
func TestRecordPutTwiceInEveryState(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		const mine = "ME.1"
		user := e.Narrowed("narrow", []string{key})
		source := scripts().Source(e, "record_put")
		const written = "nr1 " + mine + " new\nvalue"
		for _, state := range []struct {
			stored string
			want   map[string]int64 // by the version seen
		}{
			{"", map[string]int64{" - ": 1, " A.1 ": 0, " - A.1 ": 1, " - A.1 A.2 ": 1}},
			{"nr1 A.1 value", map[string]int64{" - ": 0, " A.1 ": 1, " - A.1 ": 1, " A.2 A.1 ": 1, " A.11 ": 0, " A.2 ": 0, " XA.1 ": 0, " AX1 ": 0}},
			{written, map[string]int64{" - ": 1, " A.1 ": 1}},
			{"nr1 B.1 ", map[string]int64{" - ": 0, " A.1 ": 0, " B.1 ": 1}},
			{"nr2 A.1 value", map[string]int64{" - ": -1, " A.1 ": -1}},
			{"nr12 A.1 value", map[string]int64{" A.1 ": -1}},
			{"a foreign value", map[string]int64{" - ": -2, " A.1 ": -2}},
			{"nr1", map[string]int64{" - ": -2}},
			{"wrong", map[string]int64{" - ": -2, " A.1 ": -2}},
		} {
			for seen, want := range state.want {
				where := fmt.Sprintf("stored %q, seen %q", state.stored, seen)
				must(e, e.Raw.Del(e.Context(), key).Err())
				before := state.stored
				switch before {
				case "":
				case "wrong":
					before = "WRONGTYPE"
					must(e, e.Raw.HSet(e.Context(), key, "a", "b").Err())
				default:
					must(e, e.Raw.Set(e.Context(), key, before, time.Hour).Err())
				}
				now := before
				if want == 1 {
					now = written
				}
				for n := range 2 {
					got, err := user.Eval(e.Context(), source, []string{key}, mine, "new\nvalue", 60000, seen).Int64()
					if err != nil || got != want {
						t.Errorf("%s, run %d: %d, %v, want %d", where, n+1, got, err, want)
					}
					stored, err := e.Raw.Get(e.Context(), key).Result()
					if redis.HasErrorPrefix(err, "WRONGTYPE") {
						stored = "WRONGTYPE"
					}
					testenv.Equal(t, fmt.Sprintf("%s, run %d: the record", where, n+1), stored, now)
				}
				if ttl := e.Raw.PTTL(e.Context(), key).Val(); now != before && (ttl <= 30*time.Second || ttl > time.Minute) {
					t.Errorf("%s: it ends in %v", where, ttl)
				}
			}
		}
	})
}

// unknown runs a write whose request or reply is lost until it times out.
func unknown(e *testenv.Env, f *lockcoretest.Faults, r *cas.Record, kind string, seen cas.Version, value string) cas.Version {
	e.Helper()
	rule := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: script(e), Count: 1})
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	go func() {
		_ = rule.Wait(ctx, 1)
		cancel()
	}()
	v, err := r.Put(ctx, seen, []byte(value), time.Hour)
	mustIs(e, err, lockcore.ErrUnknown, context.Canceled)
	mustNotBe(e, err, cas.ErrConflict)
	return v
}

// All replies are lost, so the outcome is unknown. The returned version covers both outcomes for a
// later write, but not the writes of others since then. (This fails if it is only the version before,
// only the one after, or not both after a second unknown outcome.)
func TestRecordOutcomeUnknown(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		warm(e)
		c, f := e.Linked("a")
		r := record(e, c, time.Second)
		other := record(e, e.Client("b"), time.Second)
		swallow, drop := lockcoretest.SwallowReply, lockcoretest.DropRequest
		v := cas.Version{}
		for round, lost := range [][]string{{swallow}, {drop}, {swallow, swallow}, {drop, swallow}, {swallow, drop}, {drop, drop}} {
			for _, kind := range lost {
				v = unknown(e, f, r, kind, v, "unknown")
			}
			v = put(e, r, v, fmt.Sprint("round ", round))
			testenv.Equal(e, fmt.Sprintf("round %d: the version", round),
				holds(e, other, fmt.Sprint("round ", round)).Version.String(), v.String())
		}
		for _, kind := range []string{swallow, drop} {
			v = unknown(e, f, r, kind, v, "unknown")
			put(e, other, read(e, other).Version, "another's")
			_, err := r.Put(e.Context(), v, []byte("too late"), time.Hour)
			mustIs(e, err, cas.ErrConflict)
			v = holds(e, r, "another's").Version
		}
		// An unanswered write is unknown, even if nothing was sent after that.
		brief := record(e, c, time.Second)
		v = put(e, brief, read(e, brief).Version, "before")
		f.Inject(e, lockcoretest.Fault{Kind: swallow, Match: script(e), Count: 1})
		refuse := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		v, err := brief.Put(e.Context(), v, []byte("unknown"), time.Hour)
		mustIs(e, err, lockcore.ErrUnknown)
		refuse.Lift()
		put(e, brief, v, "after")
	})
}

// So many writes in a row have an unknown outcome that the oldest ones are dropped. The last one still counts.
func TestRecordManyOutcomesUnknown(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		warm(e)
		c, f := e.Linked("a")
		r := record(e, c, time.Second)
		v := cas.Version{}
		for range 70 {
			v = unknown(e, f, r, lockcoretest.SwallowReply, v, "many")
		}
		v = unknown(e, f, r, lockcoretest.DropRequest, v, "the last one") // the previous one is on the server
		many := strings.Fields(v.String())
		if len(many) != 64 {
			e.Errorf("the version covers %d writes", len(many))
		}
		now := read(e, r).Version
		if !v.Includes(now) || now.Includes(v) || !v.Includes(v) || v.Includes(cas.Version{}) || !(cas.Version{}).Includes(cas.Version{}) {
			e.Errorf("what includes %v is not right", now)
		}
		put(e, r, v, "")
		holds(e, r, "")
	})
}

// read reads the record.
func read(e *testenv.Env, r *cas.Record) cas.State {
	e.Helper()
	return testenv.Call(r.Get(e.Context())).Must(e)
}

func TestRecordErrors(t *testing.T) {
	testenv.OnBoth(t, func(e *testenv.Env) {
		c := e.Client("a")
		r := record(e, c, 50*time.Millisecond)
		none := cas.Version{}
		ctx := e.Context()

		for stored, want := range map[string]error{
			"foreign": lockcore.ErrWrongKind, "nr1 x": lockcore.ErrWrongKind, "nr2 A.1 x": cas.ErrNewerSchema,
		} {
			must(e, e.Raw.Set(ctx, key, stored, 0).Err())
			_, err := r.Get(ctx)
			mustIs(e, err, want)
			_, err = r.Put(ctx, none, nil, time.Hour)
			mustIs(e, err, want)
		}
		must(e, e.Raw.Del(ctx, key).Err())
		must(e, e.Raw.HSet(ctx, key, "a", "b").Err())
		_, err := r.Get(ctx)
		mustIs(e, err, lockcore.ErrWrongKind)
		_, err = r.Put(ctx, none, nil, time.Hour)
		mustIs(e, err, lockcore.ErrWrongKind)

		must(e, c.Close(ctx))
		_, err = r.Get(ctx)
		mustIs(e, err, lockcore.ErrClosed)
	})
}

// During LockDelay no first record is written, as the record may have been lost. A record that
// the server has is written.
func TestFault89_FirstRecordIsDelayed(t *testing.T) {
	t.Parallel()
	testenv.InBubble(t, func(e *testenv.Env) {
		const delay = 10 * time.Second
		r := record(e, e.ClientWith(e.Direct(), lockcore.Config{LockDelay: delay}), time.Second)
		delayed := func() {
			e.Helper()
			_, err := r.Put(e.Context(), cas.Version{}, []byte("a"), time.Hour)
			var refused *wire.DelayError
			if !errors.As(err, &refused) || !lockcore.IsTemporary(err) {
				e.Fatalf("Put: %v, want a DelayError", err)
			}
		}
		delayed() // at the first use of the server
		e.Pass(delay)
		version := put(e, r, cas.Version{}, "a")
		must(e, e.Bubble.Restart())
		version = put(e, r, version, "b")
		holds(e, r, "b")
		e.LoseData()
		if _, err := r.Put(e.Context(), version, []byte("c"), time.Hour); !errors.Is(err, cas.ErrConflict) {
			e.Errorf("Put: %v, want a conflict", err)
		}
		delayed()
		e.Pass(delay)
		put(e, r, cas.Version{}, "d")
	})
}
