package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

func (e *env) record(c *lockcore.Client, cfg lockcore.RecordConfig) *lockcore.Record {
	e.Helper()
	r, err := c.Record("board", cfg)
	must(e, err)
	return r
}

// put writes and must succeed.
func (e *env) put(r *lockcore.Record, seen lockcore.RecordVersion, value string) lockcore.RecordVersion {
	e.Helper()
	v, err := r.Put(e.Context(), seen, []byte(value), time.Hour)
	must(e, err)
	return v
}

// holds asserts what the record says.
func (e *env) holds(r *lockcore.Record, want string) lockcore.RecordState {
	e.Helper()
	state, err := r.Get(e.Context())
	must(e, err)
	if string(state.Value) != want {
		e.Errorf("the record says %q, want %q", state.Value, want)
	}
	return state
}

// record_put in every state of its key, run twice, by a user who may touch no
// other key: the second answer is the first, and nothing is written but what was
// asked for.
func TestRecordPutTwiceInEveryState(t *testing.T) {
	onBoth(t, func(e *env) {
		const mine = "ME.1"
		key := e.key("board", "record")
		user := e.raw
		if e.real != nil {
			must(e, e.raw.ACLSetUser(e.Context(), "narrow", "reset", "on", ">secret", "+@all", "~"+key).Err())
			opt := e.direct()
			opt.Username, opt.Password = "narrow", "secret"
			user = redis.NewClient(opt)
			e.Cleanup(func() { user.Close() })
		}
		source, err := lockcore.ScriptSource("record_put")
		must(e, err)
		const written = "nr1 " + mine + " new\nvalue"
		for _, state := range []struct {
			stored string
			want   map[string]int64 // by what was seen
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
				must(e, e.raw.Del(e.Context(), key).Err())
				before := state.stored
				switch before {
				case "":
				case "wrong":
					before = "WRONGTYPE"
					must(e, e.raw.HSet(e.Context(), key, "a", "b").Err())
				default:
					must(e, e.raw.Set(e.Context(), key, before, time.Minute).Err())
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
					stored, err := e.raw.Get(e.Context(), key).Result()
					if redis.HasErrorPrefix(err, "WRONGTYPE") {
						stored = "WRONGTYPE"
					}
					if stored != now {
						t.Errorf("%s, run %d: now %q, want %q", where, n+1, stored, now)
					}
				}
				if now == written && e.raw.PTTL(e.Context(), key).Val() <= 0 {
					t.Errorf("%s: without TTL", where)
				}
			}
		}
	})
}

// The life of a record through the exported API.
func TestRecord(t *testing.T) {
	onBoth(t, func(e *env) {
		// Two Records of one Client are as strange to each other as two Clients'.
		c := e.client("a")
		a, b := e.record(c, lockcore.RecordConfig{}), e.record(c, lockcore.RecordConfig{})
		ctx := e.Context()
		_, err := a.Get(ctx)
		mustIs(e, err, lockcore.ErrNoRecord)
		first := e.put(a, lockcore.RecordVersion{}, "one")
		_, err = b.Put(ctx, lockcore.RecordVersion{}, []byte("two"), time.Hour)
		mustIs(e, err, lockcore.ErrConflict)
		mustNotBe(e, err, lockcore.ErrUnknown)
		if state := e.holds(a, "one"); !state.Own || state.Version.String() != first.String() {
			e.Errorf("read by its writer: %+v", state)
		}
		state := e.holds(b, "one")
		if state.Own {
			e.Error("b reads a's record as its own")
		}
		second := e.put(b, state.Version, "two words\nand a line")
		if first.String() == second.String() || second.String() == (lockcore.RecordVersion{}).String() {
			e.Errorf("versions %v, then %v", first, second)
		}
		// The same value again is another write.
		e.put(b, second, "two words\nand a line")
		_, err = b.Put(ctx, second, nil, time.Hour)
		mustIs(e, err, lockcore.ErrConflict)
		last := e.put(b, e.holds(a, "two words\nand a line").Version, "")
		e.holds(a, "")

		// It outlives its last write as long as that said, and no longer.
		_, err = a.Put(ctx, last, []byte("short"), 300*time.Millisecond)
		must(e, err)
		e.until("it is gone", func() bool { return !e.exists(e.key("board", "record")) })
		_, err = a.Get(ctx)
		mustIs(e, err, lockcore.ErrNoRecord)
		_, err = b.Put(ctx, last, []byte("late"), time.Hour)
		mustIs(e, err, lockcore.ErrConflict)
		if keys := e.raw.Keys(ctx, "noonlock:*").Val(); len(keys) > 0 {
			e.Errorf("left behind: %v", keys)
		}
	})
}

// Of many who have seen the same, one writes.
func TestRecordConcurrentPuts(t *testing.T) {
	onBoth(t, func(e *env) {
		records := []*lockcore.Record{
			e.record(e.client("a"), lockcore.RecordConfig{}),
			e.record(e.client("b"), lockcore.RecordConfig{}),
		}
		seen := lockcore.RecordVersion{}
		for round := range 50 {
			errs := make([]error, 6)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					_, errs[i] = records[i%2].Put(e.Context(), seen, fmt.Appendf(nil, "%d by %d", round, i), time.Hour)
				})
			}
			wg.Wait()
			state, err := records[0].Get(e.Context())
			must(e, err)
			writers := 0
			for i, err := range errs {
				if err == nil {
					writers++
					if want := fmt.Sprintf("%d by %d", round, i); string(state.Value) != want {
						e.Errorf("%q was written, and the record says %q", want, state.Value)
					}
					continue
				}
				mustIs(e, err, lockcore.ErrConflict)
			}
			if writers != 1 {
				e.Fatalf("round %d: %d wrote", round, writers)
			}
			seen = state.Version
		}
	})
}

// The reply to a write is lost: it is sent again and told that it is written, not
// that somebody else was quicker.
//
// Caught mutants: the version of the repeated request is another; the script does
// not know its own version.
func TestRecordReplyLost(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warm("record_put")
		c, f := e.linked("a")
		r := e.record(c, lockcore.RecordConfig{Timeout: 2 * time.Second})
		seen := lockcore.RecordVersion{}
		for _, fault := range []lockcoretest.Kind{lockcoretest.SwallowReply, lockcoretest.ResetAfter, lockcoretest.DuplicateRequest, lockcoretest.ResetBefore, lockcoretest.DropRequest} {
			f.Inject(e, lockcoretest.Fault{Kind: fault, Match: e.script("record_put"), Count: 1})
			seen = e.put(r, seen, fault.String())
			e.holds(r, fault.String())
		}
	})
}

// No reply comes at all, so that nobody knows. What is returned stands for either
// outcome, for a write after it, but not for what others wrote since.
//
// Caught mutants: the version returned is the one before; it is the new one; it is
// both, but no longer after a second unknown.
func TestRecordOutcomeUnknown(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warm("record_put")
		c, f := e.linked("a")
		r := e.record(c, lockcore.RecordConfig{Timeout: 10 * time.Second})
		other := e.record(e.client("b"), lockcore.RecordConfig{})
		// unknown is a write that is given up when its request, or the reply, is lost.
		unknown := func(kind lockcoretest.Kind, seen lockcore.RecordVersion, value string) lockcore.RecordVersion {
			e.Helper()
			rule := f.Inject(e, lockcoretest.Fault{Kind: kind, Match: e.script("record_put"), Count: 1})
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			go func() {
				_ = rule.Wait(ctx, 1)
				cancel()
			}()
			v, err := r.Put(ctx, seen, []byte(value), time.Hour)
			mustIs(e, err, lockcore.ErrUnknown, context.Canceled)
			mustNotBe(e, err, lockcore.ErrConflict)
			return v
		}
		swallow, drop := lockcoretest.SwallowReply, lockcoretest.DropRequest
		v := lockcore.RecordVersion{}
		for round, lost := range [][]lockcoretest.Kind{{swallow}, {drop}, {swallow, swallow}, {drop, swallow}, {swallow, drop}, {drop, drop}} {
			for _, kind := range lost {
				v = unknown(kind, v, "unknown")
			}
			v = e.put(r, v, fmt.Sprint("round ", round))
			if state := e.holds(other, fmt.Sprint("round ", round)); state.Version.String() != v.String() {
				e.Errorf("round %d: version %v, want %v", round, state.Version, v)
			}
		}
		for _, kind := range []lockcoretest.Kind{swallow, drop} {
			v = unknown(kind, v, "unknown")
			e.put(other, e.read(other).Version, "another's")
			_, err := r.Put(e.Context(), v, []byte("too late"), time.Hour)
			mustIs(e, err, lockcore.ErrConflict)
			v = e.holds(r, "another's").Version
		}
		// Once unanswered is unknown, also if nothing was sent after that.
		brief := e.record(c, lockcore.RecordConfig{Timeout: time.Second})
		v = e.put(brief, e.read(brief).Version, "before")
		f.Inject(e, lockcoretest.Fault{Kind: swallow, Match: e.script("record_put"), Count: 1})
		refuse := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.RefuseDial})
		v, err := brief.Put(e.Context(), v, []byte("unknown"), time.Hour)
		mustIs(e, err, lockcore.ErrUnknown)
		refuse.Lift()
		e.put(brief, v, "after")
		v = e.read(r).Version
		// So many in a row that the oldest are forgotten: the last one still counts.
		for range 70 {
			v = unknown(swallow, v, "many")
		}
		v = unknown(drop, v, "the last one") // the one before is what is there
		many := strings.Split(v.String(), "|")
		if len(many) != 64 {
			e.Errorf("the version stands for %d", len(many))
		}
		now := e.read(r).Version
		if !v.Includes(now) || now.Includes(v) || !v.Includes(v) || v.Includes(lockcore.RecordVersion{}) || !(lockcore.RecordVersion{}).Includes(lockcore.RecordVersion{}) {
			e.Errorf("what includes %v is not right", now)
		}
		e.put(r, v, "after many")
	})
}

// A request that comes after somebody else's write changes nothing.
func TestRecordLateRequest(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warm("record_put")
		c, f := e.linked("a")
		r := e.record(c, lockcore.RecordConfig{Timeout: time.Second})
		other := e.record(e.client("b"), lockcore.RecordConfig{})
		seen := e.put(r, lockcore.RecordVersion{}, "before")
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("record_put"), Count: 1})
		e.put(r, seen, "sent twice")
		last := e.put(other, e.read(other).Version, "since")
		late.Lift()
		e.barrier(f)
		if state := e.holds(other, "since"); state.Version.String() != last.String() {
			e.Errorf("version %v, want %v", state.Version, last)
		}
	})
}

// read reads the record.
func (e *env) read(r *lockcore.Record) lockcore.RecordState {
	e.Helper()
	state, err := r.Get(e.Context())
	must(e, err)
	return state
}

func TestRecordErrors(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.client("a")
		for _, name := range []string{"", "a b", "{a}", "job/x", "election/x", strings.Repeat("n", 201)} {
			_, err := c.Record(name, lockcore.RecordConfig{})
			mustIs(e, err, lockcore.ErrConfig)
		}
		for _, timeout := range []time.Duration{-1, time.Millisecond, time.Hour} {
			_, err := c.Record("board", lockcore.RecordConfig{Timeout: timeout})
			mustIs(e, err, lockcore.ErrConfig)
		}
		r := e.record(c, lockcore.RecordConfig{Timeout: 50 * time.Millisecond})
		none := lockcore.RecordVersion{}
		ctx := e.Context()
		_, err := r.Put(ctx, none, make([]byte, 65537), time.Hour)
		mustIs(e, err, lockcore.ErrConfig)
		for _, keep := range []time.Duration{0, -1, time.Microsecond, 11 * 365 * 24 * time.Hour} {
			_, err = r.Put(ctx, none, nil, keep)
			mustIs(e, err, lockcore.ErrConfig)
		}
		_, err = r.Put(nil, none, nil, time.Hour) //nolint:staticcheck // that is the test
		mustIs(e, err, lockcore.ErrConfig)
		_, err = r.Get(nil) //nolint:staticcheck // that is the test
		mustIs(e, err, lockcore.ErrConfig)
		if e.exists(e.key("board", "record")) {
			e.Error("something was written")
		}

		key := e.key("board", "record")
		for stored, want := range map[string]error{
			"foreign": lockcore.ErrWrongKind, "nr1 x": lockcore.ErrWrongKind, "nr2 A.1 x": lockcore.ErrNewerSchema,
		} {
			must(e, e.raw.Set(ctx, key, stored, 0).Err())
			_, err = r.Get(ctx)
			mustIs(e, err, want)
			_, err = r.Put(ctx, none, nil, time.Hour)
			mustIs(e, err, want)
		}
		must(e, e.raw.Del(ctx, key).Err())
		must(e, e.raw.HSet(ctx, key, "a", "b").Err())
		_, err = r.Get(ctx)
		mustIs(e, err, lockcore.ErrWrongKind)
		_, err = r.Put(ctx, none, nil, time.Hour)
		mustIs(e, err, lockcore.ErrWrongKind)

		down := e.record(e.clientWith(&redis.Options{Addr: unreachable(e)}, lockcore.Config{}), lockcore.RecordConfig{Timeout: 50 * time.Millisecond})
		if e.real != nil {
			_, err = down.Get(ctx)
			if err == nil {
				e.Error("a server that is not there answered")
			}
			v, err := down.Put(ctx, none, nil, time.Hour)
			mustNotBe(e, err, nil, lockcore.ErrUnknown, lockcore.ErrConflict)
			if v.String() != none.String() {
				e.Errorf("nothing was sent, and the version is %v", v)
			}
		}
		must(e, c.Close(ctx))
		_, err = r.Get(ctx)
		mustIs(e, err, lockcore.ErrClosed)
	})
}

// A user with exactly the documented rights can do everything, and needs each.
func TestRecordACL(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	rights := []string{"evalsha", "eval", "get", "set"}
	for _, without := range append(slices.Clone(rights), "") {
		must(e, e.raw.ScriptFlush(e.Context()).Err())
		must(e, e.raw.Del(e.Context(), e.key("board", "record")).Err())
		rules := []string{"reset", "on", ">secret", "~noonlock:*", "-@all"}
		for _, right := range rights {
			if right != without {
				rules = append(rules, "+"+right)
			}
		}
		must(e, e.raw.ACLSetUser(e.Context(), "user"+without, rules...).Err())
		opt := e.direct()
		opt.Username, opt.Password = "user"+without, "secret"
		r := e.record(e.clientWith(opt, lockcore.Config{}), lockcore.RecordConfig{})
		v, err := r.Put(e.Context(), lockcore.RecordVersion{}, []byte("x"), time.Hour)
		if err == nil {
			_, err = r.Put(e.Context(), v, []byte("y"), time.Hour)
		}
		if err == nil {
			_, err = r.Get(e.Context())
		}
		if (err == nil) != (without == "") {
			t.Errorf("without %q: %v", without, err)
		}
		if err != nil && e.exists(e.key("board", "record")) && without != "get" {
			t.Errorf("without %q: something was written", without)
		}
	}
}
