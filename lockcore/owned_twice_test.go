package lockcore_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// An ownedEntry is an entry of a lock with owners. Its attempt contains its owner.
type ownedEntry struct {
	mode, attempt string
	lasts         time.Duration // from now on
}

func ownerOf(attempt string) string {
	_, rest, _ := strings.Cut(attempt, "/")
	owner, _, _ := strings.Cut(rest, " ")
	return owner
}

// An ownedState is one state of a name's keys.
type ownedState struct {
	kind    string
	entries []ownedEntry // of the lock; nil: it is free, or foreign
	foreign string       // "", "string", "hash", or the kind of another lock
	queue   []string
	tomb    bool
}

func (s ownedState) String() string {
	return fmt.Sprintf("%s %v%s, queue %q, tomb %v", s.kind, s.entries, s.foreign, s.queue, s.tomb)
}

// ownedStates are the states in which an attempt of owner `me` may find a name.
func ownedStates(mine string) []ownedState {
	attempt := func(process, number, mode, owner string) string {
		return "ns1:" + process + "." + number + ".t." + mode + "/" + owner + " id"
	}
	minute := time.Minute
	entry := func(a string) ownedEntry { return ownedEntry{a[strings.Index(a, "/")-1:][:1], a, minute} }
	sibling, other := attempt("ALIVE", "2", "w", "me"), attempt("ALIVE", "3", "w", "other")
	locks := [][]ownedEntry{
		nil,
		{entry(mine)},
		{entry(sibling)},
		{entry(mine), entry(sibling)},
		{entry(other)},
		{{"w", mine, -time.Second}, entry(sibling)},
		{{"w", mine, minute / 2}, {"w", sibling, time.Hour}},
		{{"w", mine, time.Hour}, {"w", sibling, minute / 2}},
	}
	reader, reads := attempt("ALIVE", "2", "r", "me"), attempt("ALIVE", "3", "r", "other")
	gone := ownedEntry{"w", attempt("ALIVE", "9", "w", "gone"), -time.Second}
	locks = append(locks,
		[]ownedEntry{entry(reader)},
		[]ownedEntry{entry(sibling), entry(reader)},
		[]ownedEntry{entry(reads)},
		[]ownedEntry{entry(reader), entry(reads)},
		[]ownedEntry{gone, entry(reads)},
		[]ownedEntry{gone, entry(reader)},
		[]ownedEntry{gone, entry(mine)},
		[]ownedEntry{entry(other), entry(reads)},
	)
	if strings.Contains(mine, ".r/") {
		locks = append(locks,
			[]ownedEntry{entry(mine), entry(reads)},
			[]ownedEntry{{"r", mine, time.Hour}, entry(reads)},
			[]ownedEntry{{"r", mine, minute / 2}, entry(reads)})
	}
	living := []string{attempt("ALIVE", "4", "w", "living"), attempt("ALIVE", "5", "r", "alive")}
	dead := []string{attempt("DEAD", "1", "w", "deaf"), strings.Replace(attempt("ALIVE", "6", "w", "lapsed"), " id", " lapsed", 1)}
	queues := [][]string{
		nil,
		{mine},
		living,
		{living[0], mine},
		{mine, living[0]},
		append(slices.Clone(dead), mine), append(slices.Clone(dead), nonsense, lapsed, deaf),
		{dead[1], me},
		append(slices.Clone(dead), living...),
		{living[len(living)-1], mine, living[0]},
	}
	var all []ownedState
	for _, queue := range queues {
		for _, tomb := range []bool{false, true} {
			for _, lock := range locks {
				holds := slices.ContainsFunc(lock, func(x ownedEntry) bool { return x.attempt == mine })
				if holds && slices.Contains(queue, mine) {
					continue // a granted attempt leaves the queue in the same script
				}
				all = append(all, ownedState{kind: "ns1", entries: lock, queue: queue, tomb: tomb})
			}
			for _, foreign := range []string{"string", "hash"} {
				all = append(all, ownedState{kind: "ns1", foreign: foreign, queue: queue, tomb: tomb})
			}
		}
	}
	return all
}

const firstToken = 1700000000000000

func (e *env) establishOwned(name string, s ownedState) {
	e.Helper()
	k := e.scriptKeys(name)
	now, err := e.Raw.Time(e.Context()).Result()
	must(e, err)
	var entries []storedEntry
	tokens := map[string]int64{}
	end := int64(0)
	for i, x := range s.entries {
		until := now.Add(x.lasts).UnixMilli()
		tokens[x.attempt] = firstToken + int64(i)
		entries = append(entries, storedEntry{x.attempt, x.mode, until})
		end = max(end, until)
	}
	_, err = e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		p.Del(e.Context(), k...)
		switch {
		case s.foreign == "string":
			p.Set(e.Context(), k[0], stranger, time.Hour)
		case s.foreign == "hash":
			p.HSet(e.Context(), k[0], "a", "b")
		case s.entries != nil:
			p.ZAdd(e.Context(), k[0], zOwned(s.kind, entries, tokens)...)
			p.PExpireAt(e.Context(), k[0], time.UnixMilli(end))
		}
		for i, id := range s.queue {
			p.ZAdd(e.Context(), k[2], redis.Z{Score: float64(now.UnixMilli() - 10 + int64(i)), Member: id})
			until := now.Add(time.Minute)
			if strings.HasSuffix(id, "lapsed") {
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
		p.Set(e.Context(), k[1], strconv.Itoa(firstToken+99), time.Hour)
		return nil
	})
	must(e, err)
}

// An ownedSnapshot is the keys of a name: entries by attempt, without the parts that depend on the time of day.
type ownedSnapshot struct {
	snapshot
	entries map[string]string // attempt -> mode, token, and until when in whole seconds
	tokens  map[string]string // attempt -> token
	until   map[string]int64
	end     int64 // ms; 0: free, -1: foreign
	keyEnd  int64 // of a real server's key
}

func (e *env) ownedSnapshot(name string) ownedSnapshot {
	e.Helper()
	s := ownedSnapshot{snapshot: e.snapshot(name), entries: map[string]string{}, tokens: map[string]string{}, until: map[string]int64{}}
	now, err := e.Raw.Time(e.Context()).Result()
	must(e, err)
	if s.lock != "wrong" { // what is a hash
		if s.lock != "" {
			s.end = -1
		}
		return s
	}
	if e.Raw.Type(e.Context(), e.key(name, "lock")).Val() != "zset" {
		s.end, s.lock = -1, "hash"
		return s
	}
	stored := e.storedOwned(name)
	s.lock, s.end = "zset", stored.end
	if e.Bubble == nil {
		s.keyEnd = e.expireTime(e.key(name, "lock"), stored.end)
	}
	counts := map[string]int64{}
	for _, x := range stored.entries {
		owner := ownerOf(x.attempt)
		counts[owner]++
		if x.until < now.UnixMilli() {
			continue
		}
		s.entries[x.attempt] = fmt.Sprintf("%s %s %.0fs", x.mode, stored.tokens[x.attempt], time.UnixMilli(x.until).Sub(now).Round(10*time.Second).Seconds())
		s.tokens[x.attempt], s.until[x.attempt] = stored.tokens[x.attempt], x.until
	}
	if !maps.Equal(counts, stored.counts) || len(stored.tokens) != len(stored.entries) || stored.kind == "" {
		e.Errorf("the counted entries of owners are %v; stored are %v, tokens %v, kind %q", counts, stored.counts, stored.tokens, stored.kind)
	}
	return s
}

func (s ownedSnapshot) same(o ownedSnapshot) bool {
	return s.snapshot.same(o.snapshot) && maps.Equal(s.entries, o.entries)
}

// Every script of the locks with owners runs twice in every state of a name. The second answer is equal to the
// first, and the state stays. Each single run also keeps the guarantees that checkOwned asserts.
func TestOwnedScriptsTwiceInEveryState(t *testing.T) {
	for _, mine := range []string{"ns1:ALIVE.1.t.w/me id", "ns1:ALIVE.1.t.r/me id"} {
		t.Run(mine[strings.Index(mine, "/")-1:][:1], func(t *testing.T) {
			onOneServer(t, func(e *env) { ownedTwice(e, mine) })
		})
	}
}

func ownedTwice(e *env, mine string) {
	e.Helper()
	listener := e.Raw.Subscribe(e.Context(), "noonlock:ch:ALIVE")
	defer listener.Close()
	_, err := listener.Receive(e.Context())
	must(e, err)
	user := e.Narrowed("narrow", e.scriptKeys("orders")) // every key that a script uses is among its KEYS
	states, step := ownedStates(mine), 1
	if e.Bubble == nil {
		step = testenv.Size(5, 1) // a real server gets another fifth of the states for each request
	}
	for n, r := range []struct {
		script string
		args   []any
	}{
		{"owned_acquire", []any{mine, 60000, "try"}},
		{"owned_acquire", []any{mine, 60000, "join"}},
		{"owned_acquire", []any{mine, 60000, "look"}},
		{"owned_acquire", []any{mine, 60000, "1000"}},
		{"owned_leave", []any{mine, 0}},
		{"owned_leave", []any{mine, 300000}},
		{"owned_renew", []any{mine, 60000}},
		{"owned_downgrade", []any{mine}},
	} {
		source, err := lockcore.ScriptSource(r.script)
		must(e, err)
		sha := e.Raw.ScriptLoad(e.Context(), source).Val()
		keys := e.scriptKeys("orders")
		switch r.script {
		case "owned_renew":
			keys = keys[:1]
		case "owned_downgrade":
			keys = keys[:4]
		}
		for i := n % step; i < len(states); i += step {
			state := states[i]
			var before, middle, after ownedSnapshot
			var first, second any
			var err1, err2 error
			e.promptly(func() {
				e.establishOwned("orders", state)
				before = e.ownedSnapshot("orders")
				first, err1 = user.EvalSha(e.Context(), sha, keys, argv(r.script, r.args...)...).Result()
				middle = e.ownedSnapshot("orders")
				second, err2 = user.EvalSha(e.Context(), sha, keys, argv(r.script, r.args...)...).Result()
				after = e.ownedSnapshot("orders")
			})
			where := fmt.Sprintf("%s %v with %v", r.script, r.args, state)
			if err1 != nil || err2 != nil {
				e.Errorf("%s: %v, %v", where, err1, err2)
				continue
			}
			one, two := timeless(first), timeless(second)
			if n, _ := leaveReply(first); r.script == "owned_leave" {
				one = strconv.FormatInt(min(n, 1-n), 10) // the second time it is not mine any more, and nothing is free: as declared
			}
			if one == "[8]" && r.args[2] == "look" {
				two = strings.Replace(two, "[5]", one, 1) // it has left the queue; it joins again to get this answer
			}
			if one != two {
				e.Errorf("%s: answers %v, then %v", where, first, second)
			}
			if !middle.same(after) {
				e.Errorf("%s: twice changed %+v to %+v", where, middle, after)
			}
			checkOwned(e, where, r.script, mine, r.args, state, before, middle, first)
		}
	}
}

// checkOwned compares one run with the guarantees of the scripts.
func checkOwned(e *env, where, script, mine string, args []any, state ownedState, before, after ownedSnapshot, answer any) {
	e.Helper()
	complain := func(format string, v ...any) {
		e.Helper()
		e.Errorf("%s: answer %v, after it %+v: %s", where, answer, after, fmt.Sprintf(format, v...))
	}
	for i, exists := range []bool{after.lock != "" && state.foreign != "hash", after.fence != "", len(after.queue) > 0, len(after.seen) > 0, after.tomb} {
		if exists && !after.ends[i] {
			complain("a key without TTL")
		}
	}
	if state.foreign != "" {
		want := int64(7)
		if state.tomb {
			want = 6
		}
		if list, ok := listed(answer); script == "owned_acquire" && (!ok || list[0] != want) {
			complain("another kind's name was not refused")
		}
		if script != "owned_acquire" && answer != int64(0) {
			complain("another kind's lock is not mine")
		}
		slices.Sort(before.queue)
		rest := slices.DeleteFunc(slices.Clone(before.queue), func(a string) bool { return script == "owned_leave" && a == mine })
		now := slices.Clone(after.queue)
		slices.Sort(now)
		if before.lock != after.lock || !slices.Equal(rest, now) {
			complain("another kind's lock or queue was touched")
		}
		return
	}
	checkHolders(e, complain, after)
	held := before.until[mine] > 0
	isQueued := slices.Contains(after.queue, mine)
	for attempt := range after.entries {
		if strings.Contains(attempt, "DEAD") || strings.HasSuffix(attempt, "lapsed") {
			complain("granted to a process without a subscription")
		}
		if slices.Contains(after.queue, attempt) {
			complain("%s holds the lock and is queued", attempt)
		}
		if before.entries[attempt] == "" && attempt != mine && after.until[attempt] > time.Now().UnixMilli()+1500 && e.Bubble == nil {
			complain("an unconfirmed grant of more than a second")
		}
	}
	for attempt, was := range before.entries {
		if attempt != mine && strings.Fields(was)[0] != strings.Fields(after.entries[attempt] + " -")[0] {
			complain("%s, another's entry, was touched", attempt)
		}
	}
	switch script {
	case "owned_renew":
		if (answer == int64(1)) != held || !slices.Equal(before.queue, after.queue) {
			complain("renewed what is not mine, or not what is")
		}
	case "owned_downgrade":
		if (answer == int64(1)) != held || held && !strings.HasPrefix(after.entries[mine], "r ") {
			complain("downgraded what is not mine, or not what is")
		}
	case "owned_leave":
		left := int64(0)
		for attempt := range after.entries {
			if ownerOf(attempt) == "me" {
				left++
			}
		}
		n, check := leaveReply(answer)
		if (n > 0) != held || held && n != 1+left || !held && n != -left {
			complain("%d are left", left)
		}
		granted := false
		for attempt := range after.entries {
			granted = granted || before.entries[attempt] == ""
		}
		if granted != (check == 1000) || !granted && check != -1 {
			complain("granted: %v, to be checked in %d ms", granted, check)
		}
		if after.entries[mine] != "" || isQueued {
			complain("not left")
		}
		if args[1] != 0 && !after.tomb {
			complain("no tombstone")
		}
		if len(after.entries) == 0 && len(after.queue) > 0 && after.queue[0] != me {
			complain("the lock is free, and the queue was not served")
		}
	case "owned_acquire":
		list, ok := listed(answer)
		if !ok {
			complain("not a list")
			return
		}
		if state.tomb != (list[0] == int64(6)) {
			complain("a tombstone was passed, or is none")
		}
		switch code := list[0].(int64); code {
		case 1:
			if list[1] != after.tokens[mine] || isQueued {
				complain("held, but not so")
			}
		case 2, 3:
			if after.entries[mine] != "" || after.entries[fmt.Sprint(list[3])] == "" || (code == 2) != slices.Contains(after.queue[:min(3, len(after.queue))], mine) {
				complain("queued, but at the wrong place")
			}
		case 4:
			if args[2] != "try" || isQueued || after.entries[mine] != "" || after.entries[fmt.Sprint(list[2])] == "" {
				complain("busy, but not so")
			}
		case 5:
			if args[2] != "look" || isQueued || slices.Contains(before.queue, mine) {
				complain("gone, but not so")
			}
		case 6:
			if !before.same(after) {
				complain("buried: it must change nothing")
			}
		case 7:
			if len(before.entries) > 0 || isQueued || len(after.entries) > 0 || after.queue[0] != me {
				complain("wrong kind, but not so")
			}
		case 8:
			others := false
			for attempt := range before.entries {
				others = others || ownerOf(attempt) != "me"
			}
			if !others || isQueued {
				complain("an upgrade, but not so")
			}
		default:
			complain("unknown code")
		}
		if (args[2] == "try" || args[2] == "look") && isQueued && !slices.Contains(state.queue, mine) {
			complain("it queued unasked")
		}
	}
}

// checkHolders compares the entries of a lock with the guarantees: a writer's owner is alone, each owner has its own
// token, and the key ends with the last entry.
func checkHolders(e *env, complain func(string, ...any), s ownedSnapshot) {
	e.Helper()
	owners, writers := map[string]string{}, map[string]bool{}
	last := int64(0)
	for attempt, text := range s.entries {
		owner := ownerOf(attempt)
		owners[owner] = s.tokens[attempt]
		if strings.HasPrefix(text, "w ") {
			writers[owner] = true
		}
		last = max(last, s.until[attempt])
	}
	if len(writers) > 0 && len(owners) > 1 {
		complain("a writer is not alone")
	}
	if len(slices.Compact(slices.Sorted(maps.Values(owners)))) < len(owners) {
		complain("two owners have one token")
	}
	if s.end != last {
		complain("the lock ends at %d, its last entry at %d", s.end, last)
	}
	if e.Bubble == nil && s.end > 0 && s.keyEnd != s.end { // miniredis keeps the remaining time, not the instant
		complain("the key ends at %d, the lock at %d", s.keyEnd, s.end)
	}
}

// The scores of a lock with owners; see part_owned.lua.
const (
	writesScore = 1 << 51
	countScore  = 1 << 52
)

// A storedOwned is the stored value of a lock with owners, including ended entries.
type storedOwned struct {
	kind    string
	entries []storedEntry      // by mode and end
	tokens  map[string]string  // of entries
	counts  map[string]int64   // of owners
	end     int64              // of the last entry, ms
	members map[string]float64 // all
}

type storedEntry struct {
	attempt, mode string
	until         int64
}

func (e *env) storedOwned(name string) storedOwned {
	e.Helper()
	all, err := e.Raw.ZRangeWithScores(e.Context(), e.key(name, "lock"), 0, -1).Result()
	must(e, err)
	s := storedOwned{tokens: map[string]string{}, counts: map[string]int64{}, members: map[string]float64{}}
	for _, z := range all {
		member, _ := z.Member.(string)
		s.members[member] = z.Score
		score := int64(z.Score)
		sort, rest, _ := strings.Cut(member, ":")
		switch {
		case sort == "t":
			s.tokens[rest] = strconv.FormatInt(-score, 10)
		case sort == "n":
			s.counts[rest] = score - countScore
		case rest == "":
			s.kind = member
		default:
			x := storedEntry{member, "r", score}
			if score >= writesScore {
				x.mode, x.until = "w", score-writesScore
			}
			s.entries = append(s.entries, x)
			s.end = max(s.end, x.until)
		}
	}
	return s
}

// zOwned returns the members of a lock that has these entries.
func zOwned(kind string, entries []storedEntry, tokens map[string]int64) []redis.Z {
	all := []redis.Z{{Score: countScore, Member: kind}}
	counts := map[string]int{}
	for _, x := range entries {
		counts[ownerOf(x.attempt)]++
		score := float64(x.until)
		if x.mode == "w" {
			score += writesScore
		}
		all = append(all, redis.Z{Score: score, Member: x.attempt}, redis.Z{Score: -float64(tokens[x.attempt]), Member: "t:" + x.attempt})
	}
	for owner, n := range counts {
		all = append(all, redis.Z{Score: float64(countScore + n), Member: "n:" + owner})
	}
	return all
}
