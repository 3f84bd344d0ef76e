package lockcore_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

const (
	me       = "nl1:ALIVE.1.t/me"
	living   = "nl1:ALIVE.2.t/living"
	deaf     = "nl1:DEAD.1.t/deaf"     // known to have no subscription
	unknown  = "nl1:NOBODY.1.u/maybe"  // not known to have no subscription
	lapsed   = "nl1:ALIVE.3.t/lapsed"  // without a recent sign of life
	rival    = "ns1:ALIVE.4.t.w/o id"  // of another kind of lock
	nonsense = "someone else entirely" // not of this library
	stranger = "a foreign client"
)

// A mutexState is one state of a name's keys.
type mutexState struct {
	lock  string // the holder; "wrong": a key of another kind
	queue []string
	tomb  bool
	fence bool
}

func (s mutexState) String() string {
	return fmt.Sprintf("lock %q, queue %q, tomb %v, fence %v", s.lock, s.queue, s.tomb, s.fence)
}

func mutexStates() []mutexState {
	var all []mutexState
	for _, lock := range []string{"", me, living, stranger, "wrong"} {
		for _, queue := range [][]string{
			nil,
			{me},
			{living},
			{living, me},
			{me, living},
			{deaf, lapsed, me},
			{deaf, lapsed, nonsense},
			{lapsed, unknown, living, me},
			{me, deaf, rival, living},
			{lapsed, rival},
		} {
			if lock == me && slices.Contains(queue, me) {
				continue // a granted attempt leaves the queue in the same script
			}
			for _, tomb := range []bool{false, true} {
				all = append(all, mutexState{lock, queue, tomb, true})
			}
			if lock == "" || lock == me {
				all = append(all, mutexState{lock, queue, false, false})
			}
		}
	}
	return all
}

// scriptKeys are the keys of a name in the order in which scripts get them.
func (e *env) scriptKeys(name string) []string {
	return []string{e.key(name, "lock"), e.key(name, "fence"), e.key(name, "queue"), e.key(name, "seen"), e.key(name, "tomb:ALIVE.1")}
}

// argv returns the arguments of a script. It adds the defaults of those that are left out, and the prefix of the
// channels. The arguments are for acquire: me, ttl, mode, keep, extends; for leave: me, the TTL of the tombstone or
// 0, keep, last.
func argv(script string, args ...any) []any {
	const keep, extends, channels = 604800000, "", "noonlock:ch:"
	all, ok := map[string][]any{
		"mutex_acquire": {nil, nil, nil, keep}, "mutex_leave": {nil, nil, keep, 0},
		"owned_acquire": {nil, nil, nil, keep, extends}, "owned_leave": {nil, nil, keep, 0}, "owned_downgrade": {nil, keep},
		"lock_force": {nil, nil, "op\nwhy"}, "lock_promote": {nil, nil},
	}[script]
	if !ok {
		return args
	}
	all = slices.Concat(args, all[len(args):])
	switch _, what, _ := strings.Cut(script, "_"); what {
	case "acquire":
		return append([]any{all[0], all[1], all[3], fmt.Sprintf("%v %s", all[2], channels)}, all[4:]...)
	case "leave":
		packed := []any{all[0], fmt.Sprintf("%v %v %s", all[2], all[3], channels)}
		if fmt.Sprint(all[1]) != "0" {
			packed = append(packed, all[1])
		}
		return packed
	}
	return append(all, channels)
}

func (e *env) establish(name string, s mutexState) {
	e.Helper()
	k := e.scriptKeys(name)
	now, err := e.Raw.Time(e.Context()).Result()
	must(e, err)
	_, err = e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		p.Del(e.Context(), k...)
		switch s.lock {
		case "":
		case "wrong":
			p.HSet(e.Context(), k[0], "a", "b")
		case stranger:
			p.Set(e.Context(), k[0], s.lock, 0)
		default:
			p.Set(e.Context(), k[0], s.lock, time.Minute)
		}
		for i, id := range s.queue {
			p.ZAdd(e.Context(), k[2], redis.Z{Score: float64(now.UnixMilli() - 10 + int64(i)), Member: id})
			until := now.Add(time.Minute)
			if id == lapsed {
				until = now.Add(-time.Minute)
			}
			p.HSet(e.Context(), k[3], id, until.UnixMilli())
		}
		if s.queue != nil {
			// The queue ends no earlier than the time of its last entry, not even by a
			// millisecond, because a script would repair that.
			p.PExpire(e.Context(), k[2], time.Hour+time.Second)
			p.PExpire(e.Context(), k[3], time.Hour)
		}
		if s.tomb {
			p.Set(e.Context(), k[4], 1, time.Minute)
		}
		if s.fence {
			p.Set(e.Context(), k[1], "1700000000000000", time.Hour)
		}
		return nil
	})
	must(e, err)
}

// A snapshot is the keys of a name without the parts that depend on the time of day.
type snapshot struct {
	lock, fence string
	queue       []string
	seen        []string
	tomb        bool
	ends        [5]bool // has a TTL
	left        time.Duration
}

func (e *env) snapshot(name string) snapshot {
	e.Helper()
	k := e.scriptKeys(name)
	var s snapshot
	var lock, fence *redis.StringCmd
	var queue *redis.StringSliceCmd
	var seen *redis.StringSliceCmd
	var tomb *redis.IntCmd
	var ttls [5]*redis.DurationCmd
	_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		lock, fence = p.Get(e.Context(), k[0]), p.Get(e.Context(), k[1])
		queue, seen = p.ZRange(e.Context(), k[2], 0, -1), p.HKeys(e.Context(), k[3])
		tomb = p.Exists(e.Context(), k[4])
		for i := range k {
			ttls[i] = p.PTTL(e.Context(), k[i])
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		e.Fatal(err)
	}
	s.lock, s.fence, s.queue, s.tomb = lock.Val(), fence.Val(), queue.Val(), tomb.Val() == 1
	if redis.HasErrorPrefix(lock.Err(), "WRONGTYPE") {
		s.lock = "wrong"
	}
	// Notes on processes that have to confirm a grant end with any request of the process.
	s.seen = slices.DeleteFunc(seen.Val(), func(field string) bool { return field[0] == '!' })
	slices.Sort(s.seen)
	for i := range k {
		s.ends[i] = ttls[i].Val() > 0
	}
	s.ends[3] = s.ends[3] && len(s.seen) > 0
	s.left = ttls[0].Val()
	return s
}

func (s snapshot) same(o snapshot) bool {
	return s.lock == o.lock && s.fence == o.fence && s.tomb == o.tomb && s.ends == o.ends &&
		slices.Equal(s.queue, o.queue) && slices.Equal(s.seen, o.seen)
}

// Every script runs twice in every state of a name. The second answer is equal to the first, and the state stays.
// Each single run also keeps the guarantees that checkRun asserts.
func TestScriptsTwiceInEveryState(t *testing.T) {
	onOneServer(t, func(e *env) {
		listener := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
		defer listener.Close()
		if _, err := listener.Receive(e.Context()); err != nil {
			e.Fatal(err)
		}
		type run struct {
			script string
			args   []any
		}
		runs := []run{
			{"mutex_acquire", []any{me, 60000, "try"}},
			{"mutex_acquire", []any{me, 60000, "join"}},
			{"mutex_acquire", []any{me, 60000, "look"}},
			{"mutex_acquire", []any{me, 60000, "1000"}},
			{"mutex_leave", []any{me, 0}},
			{"mutex_leave", []any{me, 300000}},
			{"mutex_renew", []any{me, 60000, 60000}},
		}
		sha := map[string]string{}
		for _, r := range runs {
			source, err := lockcore.ScriptSource(r.script)
			must(e, err)
			sha[r.script] = e.Raw.ScriptLoad(e.Context(), source).Val()
		}
		user := e.Narrowed("narrow", e.scriptKeys("orders")) // every key that a script uses is among its KEYS
		for _, state := range mutexStates() {
			for _, r := range runs {
				keys := e.scriptKeys("orders")
				if r.script == "mutex_renew" {
					keys = keys[:2]
				}
				var before, middle, after snapshot
				var first, second any
				var err1, err2 error
				e.promptly(func() {
					e.establish("orders", state)
					before = e.snapshot("orders")
					first, err1 = user.EvalSha(e.Context(), sha[r.script], keys, argv(r.script, r.args...)...).Result()
					middle = e.snapshot("orders")
					second, err2 = user.EvalSha(e.Context(), sha[r.script], keys, argv(r.script, r.args...)...).Result()
					after = e.snapshot("orders")
				})
				where := fmt.Sprintf("%s %v with %v", r.script, r.args, state)
				if err1 != nil || err2 != nil {
					e.Errorf("%s: %v, %v", where, err1, err2)
					continue
				}
				one, two := timeless(first), timeless(second)
				if n, _ := leaveReply(second); r.script == "mutex_leave" && n == 0 {
					two = one // the second time it is not mine any more: as declared
				}
				if one != two {
					e.Errorf("%s: answers %v, then %v", where, first, second)
				}
				if !middle.same(after) {
					e.Errorf("%s: twice changed %+v to %+v", where, middle, after)
				}
				checkRun(e, where, r.script, r.args, state, before, middle, first)
			}
		}
	})
}

// leaveReply splits the reply of a release into its number and the time (ms) after which the caller has to check; -1
// if there is nothing to check.
func leaveReply(answer any) (n, check int64) {
	list, ok := answer.([]any)
	if !ok || len(list) != 2 {
		list = []any{answer, int64(-1)}
	}
	n, _ = list[0].(int64)
	check, _ = list[1].(int64)
	return n, check
}

// promptly repeats a function until it took less than half of the second that a grant lasts. On a busy machine a
// grant can end between two steps.
func (e *env) promptly(do func()) {
	e.Helper()
	e.Until("the machine is quick enough", func() bool {
		begun := time.Now()
		do()
		return time.Since(begun) < time.Second/2
	})
}

// listed returns an answer of an acquire as a list, also if it is a token: then {1, token}.
func listed(answer any) (list []any, ok bool) {
	if token, isText := answer.(string); isText {
		return []any{int64(1), token}, true
	}
	list, ok = answer.([]any)
	return list, ok
}

// timeless returns an answer without the remaining ms of the lock.
func timeless(answer any) string {
	list, ok := answer.([]any)
	if !ok {
		return fmt.Sprint(answer)
	}
	list = slices.Clone(list)
	if len(list) >= 3 {
		if left, ok := list[1].(int64); ok && left > 0 {
			list[1] = "left"
		}
	}
	return fmt.Sprint(list)
}

// checkRun compares one run with the guarantees of the scripts.
func checkRun(t testing.TB, where, script string, args []any, state mutexState, before, after snapshot, answer any) {
	t.Helper()
	complain := func(format string, v ...any) {
		t.Helper()
		t.Errorf("%s: answer %v, after it %+v: %s", where, answer, after, fmt.Sprintf(format, v...))
	}
	if state.lock != "" && state.lock != me && after.lock != state.lock {
		complain("another's lock was touched")
	}
	if after.lock != "" && after.lock != stranger && after.lock != "wrong" && !after.ends[0] {
		complain("a lock without TTL")
	}
	if after.lock == lapsed || after.lock == deaf || after.lock == nonsense || after.lock == rival {
		complain("granted to a process without a subscription")
	}
	for i, exists := range []bool{after.fence != "", len(after.queue) > 0, len(after.seen) > 0, after.tomb} {
		if exists && !after.ends[i+1] {
			complain("a key without TTL")
		}
	}
	switch script {
	case "mutex_renew":
		if (answer == int64(1)) != (state.lock == me) {
			complain("renewed what is not mine, or not what is")
		}
		if before.left = after.left; !before.same(after) {
			complain("renew changed something")
		}
	case "mutex_leave":
		n, check := leaveReply(answer)
		if granted := after.lock != "" && after.lock != before.lock; granted != (check == 1000) || !granted && check != -1 {
			complain("granted: %v, to be checked in %d ms", granted, check)
		}
		if (n == 1) != (state.lock == me) || after.lock == me || slices.Contains(after.queue, me) {
			complain("not left")
		}
		if args[1] != 0 && !after.tomb {
			complain("no tombstone")
		}
		if after.lock == "" && slices.Contains(after.queue, living) && after.queue[0] != rival {
			complain("the lock is free and a living waiter was not served")
		}
	case "mutex_acquire":
		list, ok := listed(answer)
		if !ok {
			complain("not a list")
			return
		}
		queued := slices.Contains(after.queue, me)
		switch code := list[0].(int64); code {
		case 1:
			token, err := strconv.ParseUint(fmt.Sprint(list[1]), 10, 64)
			if after.lock != me || queued || err != nil || list[1] != after.fence {
				complain("held, but not by me under the newest token")
			}
			if state.fence && token < 1700000000000000 || !state.fence && token < 900000000000000 {
				complain("token %d", token)
			}
			if after.left < 59*time.Second {
				complain("held, but not for the full TTL: %v", after.left)
			}
			if args[2] != "1000" && state.lock == "" && len(state.queue) > 0 && state.queue[0] == living {
				complain("it passed the queue") // except for an attempt that resumes an older place
			}
		case 2, 3:
			if !queued || after.lock == me || after.lock == "" || list[3] != after.lock {
				complain("queued, but at the wrong place")
			}
			if (code == 2) != slices.Contains(after.queue[:min(3, len(after.queue))], me) {
				complain("near the head or not")
			}
		case 4:
			if queued || after.lock == me || after.lock == "" || list[2] != after.lock {
				complain("busy, but not so")
			}
		case 5:
			if args[2] != "look" || queued {
				complain("gone, but not so")
			}
		case 6:
			if !state.tomb || !before.same(after) {
				complain("buried: it must change nothing")
			}
		case 7:
			if refused := state.lock == "" && !queued && after.lock == "" && after.queue[0] == rival; !refused && (state.lock != "wrong" || !before.same(after)) {
				complain("wrong kind, but not so")
			}
		default:
			complain("unknown code")
		}
		if state.tomb && list[0] != int64(6) {
			complain("a tombstone was passed")
		}
		if (args[2] == "try" || args[2] == "look") && queued && !slices.Contains(state.queue, me) {
			complain("it queued unasked")
		}
		if after.lock == living && state.lock == "" && after.left > time.Second {
			complain("an unconfirmed grant lasts %v", after.left)
		}
	}
}

// A queueState is one state of the keys of a mutex with a queue.
type queueState struct {
	mutexState
	forgotten bool  // no waiter has given a sign of life
	moved     int64 // 0, or when the head of the queue was moved there, ms
}

// aheadOfTime is a time at which a head was moved, by a clock that was set back since.
const aheadOfTime = 9000000000001 // ms

func (s queueState) String() string {
	return fmt.Sprintf("%v, forgotten %v, moved %d", s.mutexState, s.forgotten, s.moved)
}

func queueStates() []queueState {
	var all []queueState
	for _, s := range mutexStates() {
		if !s.tomb && s.fence {
			all = append(all, queueState{mutexState: s}, queueState{mutexState: s, forgotten: s.queue != nil})
		}
	}
	for _, queue := range [][]string{{lapsed, living}, {deaf, unknown, living, nonsense}} { // a waiter that is not the head
		all = append(all, queueState{mutexState: mutexState{lock: me, queue: queue, fence: true}})
	}
	for _, queue := range [][]string{{living}, {living, deaf}, {deaf, living}, {lapsed, unknown, living}} {
		for _, moved := range []int64{1763000000001, aheadOfTime} { // whose head was moved there
			all = append(all, queueState{mutexState: mutexState{lock: me, queue: queue, fence: true}, moved: moved})
		}
	}
	return all
}

func (e *env) establishQueue(s queueState) {
	e.Helper()
	e.establish("orders", s.mutexState)
	if s.moved != 0 {
		must(e, e.Raw.ZAdd(e.Context(), e.key("orders", "queue"), redis.Z{Score: -float64(s.moved), Member: s.queue[0]}).Err())
	}
	if s.forgotten {
		must(e, e.Raw.Del(e.Context(), e.key("orders", "seen")).Err())
	}
}

// A queueSnapshot is the keys of a lock, and the messages to waiters since the last snapshot.
type queueSnapshot struct {
	snapshot
	places   []redis.Z
	messages []string
}

func (e *env) queueSnapshot(heard *redis.PubSub) queueSnapshot {
	e.Helper()
	return queueSnapshot{
		snapshot: e.snapshot("orders"),
		places:   e.Raw.ZRangeWithScores(e.Context(), e.key("orders", "queue"), 0, -1).Val(),
		messages: e.messages(heard, "noonlock:ch:ALIVE"),
	}
}

func (s queueSnapshot) same(o queueSnapshot) bool {
	return s.snapshot.same(o.snapshot) && slices.Equal(s.places, o.places)
}

// The election uses the script that promotes a waiter. In every state of the keys, it runs twice: the second answer
// is equal to the first, the state stays, no message is repeated, and other keys are not touched. It runs as a user
// with access to its own keys only.
func TestPromotionsTwiceInEveryState(t *testing.T) { onOneServer(t, promoteTwice) }

func promoteTwice(e *env) {
	e.Helper()
	heard := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
	defer heard.Close()
	_, err := heard.Receive(e.Context())
	must(e, err)
	source, err := lockcore.ScriptSource("lock_promote")
	must(e, err)
	began := e.Raw.Time(e.Context()).Val().UnixMilli()
	lock, queue, seen := e.key("orders", "lock"), e.key("orders", "queue"), e.key("orders", "seen")
	runs := 0
	for _, identity := range []string{"living", "lapsed", "absent"} {
		keys, args := []string{lock, queue, seen}, []any{me, identity}
		user := e.Narrowed(fmt.Sprint("user", len(keys)), keys)
		for _, state := range queueStates() {
			e.establishQueue(state)
			before := e.queueSnapshot(heard)
			first, err1 := user.Eval(e.Context(), source, keys, argv("lock_promote", args...)...).Result()
			middle := e.queueSnapshot(heard)
			second, err2 := user.Eval(e.Context(), source, keys, argv("lock_promote", args...)...).Result()
			after := e.queueSnapshot(heard)
			runs++
			where := fmt.Sprintf("%v with %v", args, state)
			if err1 != nil || err2 != nil {
				e.Errorf("%s: %v, %v", where, err1, err2)
				continue
			}
			if one, two := fmt.Sprint(first), fmt.Sprint(second); one != two {
				e.Errorf("%s: answers %v, then %v", where, first, second)
			}
			if !middle.same(after) || after.messages != nil {
				e.Errorf("%s: twice changed %+v to %+v", where, middle, after)
			}
			checkPromote(e, where, identity, state, began, before, middle, first)
		}
	}
	if runs < 80 {
		e.Errorf("%d runs", runs)
	}
}

func checkPromote(e *env, where, identity string, state queueState, began int64, before, after queueSnapshot, answer any) {
	e.Helper()
	complain := func(format string, v ...any) {
		e.Helper()
		e.Errorf("%s: answer %v, after it %+v: %s", where, answer, after, fmt.Sprintf(format, v...))
	}
	queued := slices.Contains(state.queue, living) && identity == "living" && !state.forgotten
	want := int64(0)
	switch {
	case state.lock != me:
		want = -1
	case queued:
		want = 1
	}
	if answer != want {
		complain("want %d", want)
	}
	queueStays := before.same(after)
	var messages []string
	if want == 1 {
		if at := -after.places[0].Score; after.queue[0] != living || len(before.queue) != len(after.queue) || at < float64(began) && (state.moved == 0 || state.queue[0] != living) {
			complain("not moved to the head, past all that could come back")
		}
		if before.queue[0] == living {
			// A head that was not moved there needs no message.
			queueStays = queueStays || state.moved == 0 && slices.Equal(before.queue, after.queue)
		} else {
			if len(after.messages) != 1 || !strings.HasPrefix(after.messages[0], "noonlock:ch:ALIVE h noonlock:{orders}:lock ") || !strings.HasSuffix(after.messages[0], living) {
				complain("the new head was not notified")
			}
			if at := -after.places[0].Score; at <= float64(state.moved) {
				complain("not moved past the one that was moved before")
			}
			queueStays, messages = true, after.messages
		}
	}
	if !queueStays || before.left < after.left {
		complain("the lock or the queue was %+v", before)
	}
	if !slices.Equal(messages, after.messages) {
		complain("messages %q, want %q", after.messages, messages)
	}
}
