package lockcore_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/lockcore"
)

// A cost is what one run of a script does in one state of a name, down to each message and command. So the loss of a
// shortcut is noticed, and so is a more expensive command.
type cost struct {
	name     string
	script   string
	args     []any
	state    keyState
	answer   string   // times to come in whole minutes, tokens as T
	queue    []string // after it
	owners   []string // owners of a lock, after it; nil: not looked at
	messages []string // messages to ALIVE and OTHER, in order
	sends    int      // messages in total
	calls    int      // commands, messages among them; 0: not counted
	meddle   func(e *env)
}

const (
	minuteAfter = "nl1:ALIVE.7/late"
	neighbour   = "nl1:OTHER.1/neighbour" // receives messages, in another process
	passed2     = "nl1:DEAD.2/passed"     // in the same process as passed
	malformed   = "nl1:someone else"      // of no process
)

func mutexCosts() []cost {
	held := func(queue ...string) keyState { return heldBy(living, queue...) }
	free := func(queue ...string) keyState { return keyState{queue: queue} }
	mine := func(queue ...string) keyState { return heldBy(me, queue...) }
	acquire := func(ask string) []any { return []any{me, 60000, ask} }
	leave := []any{me, 0}
	return []cost{
		{name: "a free lock", script: "mutex_acquire", args: acquire("try"), state: free(), answer: "[1 T]", calls: 4},
		{name: "a free lock, for a caller that waits", script: "mutex_acquire", args: acquire("join"), state: free(), answer: "[1 T]", calls: 4},
		{name: "a lock that is held", script: "mutex_acquire", args: acquire("join"), state: held(), answer: "[2 1m P " + living + "]", queue: []string{me}, calls: 10},
		{name: "a try for a lock that is held", script: "mutex_acquire", args: acquire("try"), state: held(), answer: "[4 1m " + living + "]", calls: 3},
		{name: "a lock for which others wait", script: "mutex_acquire", args: acquire("join"), state: held(neighbour, minuteAfter), answer: "[2 1m P " + living + "]", queue: []string{neighbour, minuteAfter, me}, calls: 13},
		{name: "a free lock, by a client that believes that it waits", script: "mutex_acquire", args: acquire("look"), state: free(), answer: "[5]", calls: 5},
		{name: "a free lock, behind a queue of dead waiters", script: "mutex_acquire", args: acquire("try"), state: free(passed, lapsed), answer: "[1 T]", calls: 19},
		{name: "a release without a queue", script: "mutex_leave", args: leave, state: mine(), answer: "1", calls: 3},

		{name: "a look notifies a new head", script: "mutex_acquire", args: acquire("look"), state: held(lapsed, neighbour, me), answer: "[2 1m P " + living + "]", queue: []string{neighbour, me}, messages: []string{"OTHER h orders 1m " + neighbour}, sends: 1},
		{name: "the old head is not notified", script: "mutex_acquire", args: acquire("look"), state: held(neighbour, me), answer: "[2 1m P " + living + "]", queue: []string{neighbour, me}, calls: 11},
		{name: "a look that makes the caller the head does not notify it", script: "mutex_acquire", args: acquire("look"), state: held(lapsed, me), answer: "[2 1m P " + living + "]", queue: []string{me}, calls: 14},
		{name: "the third waiter has a timer", script: "mutex_acquire", args: acquire("look"), state: held(neighbour, minuteAfter, me), answer: "[2 1m P " + living + "]", queue: []string{neighbour, minuteAfter, me}},
		{name: "the fourth has none", script: "mutex_acquire", args: acquire("look"), state: held(neighbour, minuteAfter, unknown, me), answer: "[3 1m P " + living + "]", queue: []string{neighbour, minuteAfter, unknown, me}},
		{name: "the fourth has one, if it served the lock", script: "mutex_acquire", args: acquire("look"), state: free(neighbour, minuteAfter, unknown, malformed, me), answer: "[2 0m P " + neighbour + "]", queue: []string{minuteAfter, unknown, malformed, me}, messages: []string{"OTHER g orders " + neighbour, "ALIVE h orders 0m " + minuteAfter}, sends: 3},
		{name: "a malformed member is the head of a lock that is held", script: "mutex_acquire", args: acquire("try"), state: held(malformed), answer: "[4 1m " + living + "]", queue: []string{malformed}},

		{name: "the head leaves, and the next is notified", script: "mutex_leave", args: leave, state: held(me, neighbour), answer: "0", queue: []string{neighbour}, messages: []string{"OTHER h orders 1m " + neighbour}, sends: 1},
		{name: "another waiter leaves, and the head is not notified", script: "mutex_leave", args: leave, state: held(neighbour, me), answer: "0", queue: []string{neighbour}},
		{name: "a release grants to the first, and notifies the second", script: "mutex_leave", args: leave, state: mine(minuteAfter, neighbour), answer: "[1 0m]", queue: []string{neighbour}, messages: []string{"ALIVE g orders " + minuteAfter, "OTHER h orders 0m " + neighbour}, sends: 2, calls: 16},
		{name: "a process that did not confirm a grant is passed over", script: "mutex_leave", args: leave, state: mine(passed, passed2, neighbour), answer: "[1 0m]", messages: []string{"OTHER g orders " + neighbour}, sends: 1},
		{name: "a malformed head is passed over", script: "mutex_leave", args: leave, state: mine(nonsense, malformed, neighbour), answer: "[1 0m]", messages: []string{"OTHER g orders " + neighbour}, sends: 1, calls: 19},
		{name: "a malformed head is not notified", script: "mutex_leave", args: leave, state: held(me, malformed), answer: "0", queue: []string{malformed}},
		{name: "a waiter that acquires by itself notifies the next", script: "mutex_acquire", args: acquire("look"), state: free(me, neighbour), answer: "[1 T]", queue: []string{neighbour}, messages: []string{"OTHER h orders 1m " + neighbour}, sends: 1, calls: 15},
	}
}

// The entries of these states, and the waiters: number n of process p, of owner o.
func ownedCosts() []cost {
	attempt := func(kind, process, number, mode, owner string) string {
		return kind + ":" + process + "." + number + "." + mode + "/" + owner + " id"
	}
	const mine, reads = "ns1:ALIVE.1.w/me id", "ns1:ALIVE.1.r/me id"
	sibling, siblingReads := attempt("ns1", "ALIVE", "2", "w", "me"), attempt("ns1", "ALIVE", "2", "r", "me")
	other, otherReads := attempt("ns1", "OTHER", "3", "w", "other"), attempt("ns1", "OTHER", "3", "r", "other")
	third := attempt("ns1", "OTHER", "4", "w", "third")
	thirdReads := attempt("ns1", "OTHER", "4", "r", "third")
	fourth := attempt("ns1", "OTHER", "5", "w", "fourth")
	passed, passedToo := attempt("ns1", "DEAD", "1", "w", "passed"), attempt("ns1", "DEAD", "2", "w", "too")
	state := func(entries []ownedEntry, queue ...string) keyState {
		return keyState{entries: entries, queue: queue}
	}
	held := func(entries ...ownedEntry) []ownedEntry { return entries }
	acquire := func(a, ask string) []any { return []any{a, 60000, ask} }
	leave := func(a string) []any { return []any{a, 0} }
	const minute, hour = time.Minute, time.Hour
	return []cost{
		{name: "a free lock", script: "owned_acquire", args: acquire(mine, "try"), state: state(nil), answer: "[1 T]", owners: []string{"me"}, calls: 5},
		{name: "a free lock, for a caller that waits", script: "owned_acquire", args: acquire(mine, "join"), state: state(nil), answer: "[1 T]", owners: []string{"me"}, calls: 5},
		{name: "a free lock, by a client that believes that it waits", script: "owned_acquire", args: acquire(mine, "look"), state: state(nil), answer: "[5]"},
		{name: "a free lock, behind a queue of dead waiters", script: "owned_acquire", args: acquire(mine, "try"), state: state(nil, passed, passedToo), answer: "[1 T]", owners: []string{"me"}},
		{name: "a free lock, behind a queue of its owner", script: "owned_acquire", args: acquire(reads, "try"), state: state(nil, siblingReads), answer: "[1 T]", messages: []string{"ALIVE g orders " + siblingReads}, sends: 1, calls: 28},
		{name: "a free lock, behind a waiter of its owner", script: "owned_acquire", args: acquire(reads, "look"), state: state(nil, siblingReads, reads), answer: "[1 T]", messages: []string{"ALIVE g orders " + siblingReads}, sends: 1, calls: 34},
		{name: "a lock whose last entry ended a moment before its key", script: "owned_acquire", args: acquire(mine, "try"), state: state(held(entryOf(other, minute))), meddle: func(e *env) {
			// The key and the last entry end at the same time. But a script may read the
			// clock a millisecond after the server has decided that a key still exists.
			e.Helper()
			must(e, e.Raw.ZAdd(e.Context(), e.key("orders", "lock"), redis.Z{Score: writesScore + 1, Member: other}).Err())
		}, answer: "[1 T]", calls: 16},
		{name: "in again", script: "owned_acquire", args: acquire(mine, "try"), state: state(held(entryOf(sibling, minute))), answer: "[1 T]", calls: 8},
		{name: "in again, beside an entry that it names", script: "owned_acquire", args: append(acquire(mine, "try"), 604800000, sibling), state: state(held(entryOf(sibling, minute))), meddle: func(e *env) {
			must(e, e.Raw.Set(e.Context(), e.key("orders", "fence"), firstToken, hour).Err())
		}, answer: "[1 T]", calls: 9},
		{name: "in with another reader, without a queue", script: "owned_acquire", args: acquire(reads, "try"), state: state(held(entryOf(otherReads, minute))), answer: "[1 T]", owners: []string{"me", "other"}, calls: 9},
		{name: "renewed, the only entry", script: "owned_renew", args: []any{mine, 60000}, state: state(held(entryOf(mine, time.Second))), answer: "1", owners: []string{"me"}, calls: 5},
		{name: "renewed, the only slot", script: "owned_renew", args: []any{slotAttempt("ALIVE", "1", "id"), 60000}, state: state(held(entryOf(slotAttempt("ALIVE", "1", "id"), time.Second))), answer: "1", owners: []string{"-"}, calls: 5},
		{name: "renewed, and its end comes forward", script: "owned_renew", args: []any{mine, 60000}, state: state(held(entryOf(mine, hour))), answer: "1", owners: []string{"me"}, calls: 10},
		{name: "out, the last", script: "owned_leave", args: leave(mine), state: state(held(entryOf(mine, minute))), answer: "1", owners: []string{}, calls: 5},
		{name: "out of the last slot", script: "owned_leave", args: leave(slotAttempt("ALIVE", "1", "id")), state: state(held(entryOf(slotAttempt("ALIVE", "1", "id"), minute))), answer: "1", owners: []string{}, calls: 5},
		{name: "out of a slot, and the others are still too many", script: "owned_leave", args: leave(slotAttempt("ALIVE", "1", "id")), state: state(held(entryOf(slotAttempt("ALIVE", "1", "id"), minute), entryOf(slotAttempt("OTHER", "2", "id"), hour), entryOf(slotAttempt("OTHER", "3", "id"), hour)), slotAttempt("OTHER", "4", "id")), answer: "3", queue: []string{slotAttempt("OTHER", "4", "id")}},
		{name: "out, the last reader", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, minute))), answer: "1", owners: []string{}, calls: 5},
		{name: "out, and the other's entry is over", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, minute), entryOf(otherReads, -time.Second))), answer: "1", owners: []string{}, calls: 18},
		{name: "out, and another reads for longer", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, minute), entryOf(otherReads, hour))), answer: "1", owners: []string{"other"}, calls: 9},
		{name: "out, and another reads as long", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, minute), entryOf(otherReads, minute))), answer: "1", owners: []string{"other"}, calls: 11},

		{name: "the waiters behind an attempt that passes the queue follow it", script: "owned_acquire", args: acquire(reads, "look"), state: state(held(entryOf(siblingReads, minute)), reads, thirdReads), answer: "[1 T]", owners: []string{"me", "third"}, messages: []string{"OTHER g orders " + thirdReads}, sends: 1},
		{name: "again, past the queue", script: "owned_acquire", args: acquire(mine, "join"), state: state(held(entryOf(sibling, minute)), third), answer: "[1 T]", queue: []string{third}},
		{name: "the answer reports that the caller cannot write", script: "owned_acquire", args: acquire(mine, "look"), state: state(nil, siblingReads, thirdReads, mine), answer: "[8]", owners: []string{"me", "third"}, messages: []string{"ALIVE g orders " + siblingReads, "OTHER g orders " + thirdReads}, sends: 2},
		{name: "a release grants to the first, and notifies the second", script: "owned_leave", args: leave(mine), state: state(held(entryOf(mine, minute)), third, fourth), answer: "[1 0m]", queue: []string{fourth}, messages: []string{"OTHER g orders " + third, "OTHER h orders 0m " + fourth}, sends: 2},
		{name: "a release that changes nothing for the head", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, minute), entryOf(otherReads, hour)), third), answer: "1", queue: []string{third}},
		{name: "a release that brings the end forward, by an owner that stays", script: "owned_leave", args: leave(mine), state: state(held(entryOf(mine, hour), entryOf(sibling, minute)), third), answer: "2", queue: []string{third}, messages: []string{"OTHER h orders 1m " + third}, sends: 1},
		{name: "a release that brings the end forward, by an owner that goes", script: "owned_leave", args: leave(reads), state: state(held(entryOf(reads, hour), entryOf(otherReads, minute)), third), answer: "1", queue: []string{third}, messages: []string{"OTHER h orders 1m " + third}, sends: 1},
		{name: "a downgrade serves the readers", script: "owned_downgrade", args: []any{mine}, state: state(held(entryOf(mine, minute)), thirdReads, fourth), answer: "1", queue: []string{fourth}, owners: []string{"me", "third"}, messages: []string{"OTHER g orders " + thirdReads, "OTHER h orders 1m " + fourth}, sends: 2},
		{name: "a downgrade that changes nothing for the head", script: "owned_downgrade", args: []any{mine}, state: state(held(entryOf(mine, minute), entryOf(sibling, minute)), third), answer: "1", queue: []string{third}},
		{name: "the head leaves the queue of another kind's lock", script: "owned_leave", args: leave(mine), state: keyState{holder: living, queue: []string{mine, neighbour}}, answer: "0", queue: []string{neighbour}, messages: []string{"OTHER h orders 1m " + neighbour}, sends: 1},
		{name: "a process that did not confirm a grant is passed over", script: "owned_leave", args: leave(mine), state: state(held(entryOf(mine, minute)), passed, passedToo, third), answer: "[1 0m]", messages: []string{"OTHER g orders " + third}, sends: 1},
		{name: "it is passed over, and the next one is notified", script: "owned_acquire", args: acquire(reads, "join"), state: state(held(entryOf(other, minute)), passed, passedToo, third), answer: "[2 1m P " + other + "]", queue: []string{third, reads}, messages: []string{"OTHER h orders 1m " + third}, sends: 1},
		{name: "the caller is not notified as head", script: "owned_acquire", args: acquire(mine, "look"), state: state(held(entryOf(other, minute)), mine), answer: "[2 1m P " + other + "]", queue: []string{mine}},
		{name: "a head with a timer is not notified", script: "owned_acquire", args: acquire(mine, "join"), state: state(held(entryOf(other, minute)), third), answer: "[2 1m P " + other + "]", queue: []string{third, mine}},
		{name: "the head that reads has a timer, too", script: "owned_acquire", args: acquire(reads, "join"), state: state(held(entryOf(other, minute)), thirdReads), answer: "[2 1m P " + other + "]", queue: []string{thirdReads, reads}},
		{name: "a try reports when the lock ends", script: "owned_acquire", args: acquire(reads, "try"), state: state(held(entryOf(other, minute), entryOf(thirdReads[:len("ns1:OTHER.")]+"6.r/other id", hour))), answer: "[4 60m " + other + "]"},
		{name: "a waiter learns when the writer ends", script: "owned_acquire", args: acquire(reads, "join"), state: state(held(entryOf(other, minute), entryOf(thirdReads[:len("ns1:OTHER.")]+"6.r/other id", hour))), answer: "[2 1m P " + other + "]", queue: []string{reads}},
		{name: "a lock without an end is reported as one", script: "owned_acquire", args: acquire(reads, "join"), state: state(held(entryOf(other, minute))), meddle: func(e *env) {
			e.Helper()
			must(e, e.Raw.Persist(e.Context(), e.key("orders", "lock")).Err())
		}, answer: "[2 -1 P " + other + "]", queue: []string{reads}},
		{name: "a writer learns of the reader whose entry ends last", script: "owned_acquire", args: acquire(mine, "join"), state: state(held(entryOf(otherReads, hour), entryOf(thirdReads, minute))), answer: "[2 60m P " + otherReads + "]", queue: []string{mine}},
		{name: "a reader waits for the last of a writer's entries", script: "owned_acquire", args: acquire(reads, "join"), state: state(held(entryOf(other, hour), entryOf(third[:len("ns1:OTHER.")]+"6.w/other id", minute))), answer: "[2 60m P " + other + "]", queue: []string{reads}},
	}
}

// Each row is compared with the counts of the server.
func TestCostOfScripts(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	ear := e.hears("noonlock:ch:ALIVE", "noonlock:ch:OTHER")
	for _, row := range append(mutexCosts(), ownedCosts()...) {
		source := call(lockcore.ScriptSource(row.script)).Must(e)
		sha := e.Raw.ScriptLoad(e.Context(), source).Val()
		keys := e.scriptKeys("orders")
		if strings.HasPrefix(fmt.Sprint(row.args...), "np1:") {
			keys = e.slotKeys("orders")
		}
		e.establish("orders", row.state)
		if row.meddle != nil {
			row.meddle(e)
		}
		must(e, e.Raw.ConfigResetStat(e.Context()).Err())
		answer := call(e.Raw.EvalSha(e.Context(), sha, keys, argv(row.script, row.args...)...).Result()).Must(e)
		calls := e.allCalls()
		sends := calls["publish"]
		total := 0
		for name, n := range calls {
			if name != "evalsha" && !slices.Contains(administration, name) {
				total += n
			}
		}
		messages := e.Received(ear, "noonlock:ch:ALIVE")
		for i, m := range messages {
			messages[i] = minutes(strings.TrimPrefix(strings.Replace(m, " noonlock:{orders}:lock ", " orders ", 1), "noonlock:ch:"))
		}
		queue := call(e.Raw.ZRange(e.Context(), e.key("orders", "queue"), 0, -1).Result()).Must(e)
		if got := plain(answer); got != row.answer {
			e.Errorf("%s: answers %s (%v), want %s", row.name, got, answer, row.answer)
		}
		if !slices.Equal(queue, row.queue) {
			e.Errorf("%s: the queue is %q, want %q", row.name, queue, row.queue)
		}
		if row.owners != nil {
			s := e.storedOwned("orders")
			if got := slices.Sorted(maps.Keys(s.counts)); !slices.Equal(got, row.owners) || len(got) == 0 && len(s.members) > 0 {
				e.Errorf("%s: the lock has %v, want the owners %q", row.name, s.members, row.owners)
			}
		}
		if !slices.Equal(messages, row.messages) || sends != row.sends {
			e.Errorf("%s: %d messages, received %q, want %d and %q", row.name, sends, messages, row.sends, row.messages)
		}
		if row.calls != 0 && total != row.calls {
			e.Errorf("%s: %d commands, want %d: %v", row.name, total, row.calls, calls)
		}
	}
}

var wholeNumber = regexp.MustCompile(`\b\d+\b`)

// minutes replaces milliseconds by minutes in a text.
func minutes(text string) string {
	return wholeNumber.ReplaceAllStringFunc(text, func(ms string) string {
		d, err := time.ParseDuration(ms + "ms")
		if err != nil || len(ms) < 2 {
			return ms
		}
		return fmt.Sprintf("%.0fm", d.Minutes())
	})
}

// plain returns an answer without the parts that depend on the time of day.
func plain(answer any) string {
	list, ok := listed(answer)
	if !ok {
		return fmt.Sprint(answer)
	}
	list = slices.Clone(list)
	for i, v := range list {
		switch v := v.(type) {
		case int64:
			if i > 0 {
				list[i] = minutes(strconv.FormatInt(v, 10))
			}
		case string:
			if len(v) == 16 && wholeNumber.FindString(v) == v {
				list[i] = "T" // a token
			} else if len(v) == 13 && wholeNumber.FindString(v) == v {
				list[i] = "P" // a place
			}
		}
	}
	return fmt.Sprint(list)
}

// administration contains the commands of counting; Redis 6.2 reports no subcommands.
var administration = []string{"config", "config|resetstat", "info"}

// allCalls returns how often the real server has executed each command.
func (e *env) allCalls() map[string]int {
	e.Helper()
	text := call(e.Raw.Info(e.Context(), "commandstats").Result()).Must(e)
	calls := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(text, -1) {
		var n int
		call(fmt.Sscan(m[2], &n)).Must(e)
		calls[m[1]] += n // of each primary of a cluster
	}
	return calls
}
