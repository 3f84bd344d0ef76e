package lockcore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

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

// A queueSnapshot is the keys of a lock, and the messages to waiters since the last
// snapshot.
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

// The election uses the script that promotes a waiter. In every state of the keys, it runs twice: the
// second answer is equal to the first, the state stays, no message is repeated, and other keys are
// not touched. It runs as a user with access to its own keys only.
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
