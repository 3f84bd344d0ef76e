package lockcore_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

const (
	me       = "nl1:ALIVE.1/me"
	living   = "nl1:ALIVE.2/living"
	passed   = "nl1:DEAD.1/passed"     // of a process that did not confirm a grant
	unknown  = "nl1:NOBODY.1/maybe"    // of a process that was not granted anything yet
	lapsed   = "nl1:ALIVE.3/lapsed"    // without a recent sign of life
	rival    = "ns1:ALIVE.4.w/o id"    // of another kind of lock
	nonsense = "someone else entirely" // not of this library
	stranger = "a foreign client"
)

// An ownedEntry is an entry of a lock with owners. Its attempt contains its owner.
type ownedEntry struct {
	mode, attempt string
	lasts         time.Duration // from now on
}

// entryOf returns the entry of an attempt.
func entryOf(attempt string, lasts time.Duration) ownedEntry {
	return ownedEntry{attempt[strings.Index(attempt, "/")-1:][:1], attempt, lasts}
}

func ownerOf(attempt string) string {
	_, rest, _ := strings.Cut(attempt, "/")
	owner, _, _ := strings.Cut(rest, " ")
	return owner
}

// A keyState is one state of a name's keys.
type keyState struct {
	holder  string       // of a mutex
	entries []ownedEntry // of a lock with owners
	other   string       // the type of a key that another program left
	queue   []string
	tomb    bool
	unused  bool // no token was given
}

// slotAttempt returns an attempt of a Semaphore.
func slotAttempt(process, number, identity string) string {
	return "np1:" + process + "." + number + ".p/- " + identity
}

// heldBy returns the state in which an attempt of any kind holds the lock for a minute.
func heldBy(attempt string, queue ...string) keyState {
	if strings.HasPrefix(attempt, "ns1:") {
		return keyState{entries: []ownedEntry{entryOf(attempt, time.Minute)}, queue: queue}
	}
	return keyState{holder: attempt, queue: queue}
}

// A twiceKind is how an attempt of one kind may find a name. A word of its locks is an attempt, and after a colon how
// many seconds its entry lasts; a word of its queues is an attempt. The attempts are those of names, or constants of
// this file. A bar ends a lock or a queue.
type twiceKind struct {
	mine          string
	names         map[string]string
	locks, queues string
	last          string // a request that only this kind has
}

// twiceKinds are the kinds. A Semaphore has two slots.
func twiceKinds() map[string]twiceKind {
	names := func(format string, attempts ...string) map[string]string {
		all := map[string]string{}
		for i := 0; i < len(attempts); i += 2 {
			all[attempts[i]] = fmt.Sprintf(format, attempts[i+1])
		}
		return all
	}
	owners := names("ns1:%s", "sibling", "ALIVE.2.w/me id", "other", "ALIVE.3.w/other id", "reader", "ALIVE.2.r/me id",
		"reads", "ALIVE.3.r/other id", "gone", "ALIVE.9.w/gone id", "living", "ALIVE.4.w/living id",
		"alive", "ALIVE.5.r/alive id", "dead", "DEAD.1.w/passed id", "late", "ALIVE.6.w/lapsed lapsed")
	slots := names("np1:%s", "one", "ALIVE.2.p/- one", "two", "ALIVE.3.p/- two", "three", "ALIVE.9.p/- three",
		"living", "ALIVE.4.p/- living", "alive", "ALIVE.5.p/- alive", "dead", "DEAD.1.p/- passed", "late", "ALIVE.6.p/- lapsed")
	const locks = "stranger|hash||mine|sibling|mine sibling|other|mine:-1 sibling|mine:30 sibling:3600|mine:3600 sibling:30|" +
		"reader|sibling reader|reads|reader reads|gone:-1 reads|gone:-1 reader|gone:-1 mine|other reads"
	const queues = "|mine|living alive|living mine|mine living|dead late mine nonsense lapsed passed|late me|dead late living alive"
	return map[string]twiceKind{
		"mutex": {
			mine:  me,
			names: map[string]string{"holder": "nl1:ALIVE.9/holder"},
			locks: "|mine|holder|stranger|hash",
			queues: "|mine|living|living mine|mine living|passed lapsed mine|passed lapsed nonsense|lapsed unknown living mine|" +
				"mine passed rival living|lapsed rival",
			last: "promotes to=living",
		},
		"write": {"ns1:ALIVE.1.w/me id", owners, locks, queues + "|alive mine living", "downgrades"},
		"read":  {"ns1:ALIVE.1.r/me id", owners, locks + "|mine reads|mine:3600 reads|mine:30 reads", queues + "|alive mine living", "downgrades"},
		"slot": {
			mine:  slotAttempt("ALIVE", "1", "id"),
			names: slots,
			locks: "stranger|hash|rival||mine|one|one mine|one two|one:-1 two|one:-1 two three|mine:-1 one|one two three|" +
				"one mine three|mine:30 one:3600|mine:3600 one:30",
			queues: queues,
			last:   "resizes to=3",
		},
	}
}

// states returns all states of the lock and of its queue.
func (c twiceKind) states() (all []keyState) {
	attempts := map[string]string{
		"me": me, "living": living, "passed": passed, "unknown": unknown, "lapsed": lapsed, "rival": rival, "nonsense": nonsense, "mine": c.mine,
	}
	maps.Copy(attempts, c.names)
	for lock := range strings.SplitSeq(c.locks, "|") {
		var s keyState
		for word := range strings.FieldsSeq(lock) {
			name, seconds, _ := strings.Cut(word, ":")
			switch lasts, err := time.ParseDuration(seconds + "s"); {
			case word == "hash":
				s.other = word
			case word == "stranger":
				s.holder = stranger
			case strings.HasPrefix(attempts[name], "nl1:"):
				s.holder = attempts[name]
			case err != nil:
				s.entries = append(s.entries, entryOf(attempts[name], time.Minute))
			default:
				s.entries = append(s.entries, entryOf(attempts[name], lasts))
			}
		}
		for queue := range strings.SplitSeq(c.queues, "|") {
			s.queue = nil
			for name := range strings.FieldsSeq(queue) {
				s.queue = append(s.queue, attempts[name])
			}
			all = append(all, s.variants(c.mine)...)
		}
	}
	return all
}

// variants returns the state, also with a tombstone and without a token that was given. A granted attempt leaves the
// queue in the same script.
func (s keyState) variants(mine string) (all []keyState) {
	holds := s.holder == mine || slices.ContainsFunc(s.entries, func(x ownedEntry) bool { return x.attempt == mine })
	if holds && slices.Contains(s.queue, mine) {
		return nil
	}
	buried, unused := s, s
	buried.tomb, unused.unused = true, true
	if all = []keyState{s, buried}; s.entries == nil && s.other == "" && s.holder != stranger {
		all = append(all, unused)
	}
	return all
}

// scriptKeys are the keys of a name in the order in which scripts get them.
func (e *env) scriptKeys(name string) []string {
	return []string{e.key(name, "lock"), e.key(name, "fence"), e.key(name, "queue"), e.key(name, "seen"), e.key(name, "tomb:ALIVE.1")}
}

// slotKeys are scriptKeys of a Semaphore.
func (e *env) slotKeys(name string) []string { return append(e.scriptKeys(name), e.key(name, "size")) }

// argv returns the arguments of a script. It adds the defaults of those that are left out, and the prefix of the
// channels. The arguments are for acquire: me, ttl, mode, keep, extends; for leave: me, the TTL of the tombstone or
// 0, keep, last. A Semaphore has two slots. keep is false if the counter of a mutex keeps its TTL.
func argv(script string, args ...any) []any {
	const keep, extends, channels = 604800000, "", "noonlock:ch:"
	all, ok := map[string][]any{
		"mutex_acquire": {nil, nil, nil, keep}, "mutex_leave": {nil, nil, keep, 0},
		"owned_acquire": {nil, nil, nil, keep, extends, 2}, "owned_resize": {nil, keep}, "owned_leave": {nil, nil, keep, 0}, "owned_downgrade": {nil, keep},
		"lock_force": {nil, nil, "op\nwhy"}, "lock_promote": {nil, nil},
	}[script]
	if !ok {
		return args
	}
	all = slices.Concat(args, all[len(args):])
	switch _, what, _ := strings.Cut(script, "_"); what {
	case "acquire":
		rest := fmt.Sprintf("%v %s", all[2], channels)
		if script == "mutex_acquire" {
			packed := []any{all[0], all[1], rest, all[3]}
			if all[3] == false {
				packed = packed[:3]
			}
			return packed
		}
		return append([]any{all[0], all[1], all[3], rest}, all[4:]...)
	case "leave":
		packed := []any{all[0], fmt.Sprintf("%v %v %s", all[2], all[3], channels)}
		if fmt.Sprint(all[1]) != "0" {
			packed = append(packed, all[1])
		}
		return packed
	}
	return append(all, channels)
}

const firstToken = 1700000000000000

func (e *env) establish(name string, s keyState) {
	e.Helper()
	k := e.scriptKeys(name)
	now := call(e.Raw.Time(e.Context()).Result()).Must(e)
	var lock, queue []string
	if s.holder != "" {
		lock = []string{s.holder}
	}
	for i, x := range s.entries {
		lock = append(lock, fmt.Sprintf("%s:%d:%d:%s", x.attempt, x.lasts.Milliseconds(), firstToken+i, x.mode))
	}
	for i, id := range s.queue {
		until := now.Add(time.Minute)
		if strings.HasSuffix(id, "lapsed") {
			until = now.Add(-time.Minute)
		}
		queue = append(queue, fmt.Sprintf("%s:%d:%d", id, now.UnixMilli()-10+int64(i), until.UnixMilli()))
	}
	play := &scriptPlay{timed: &timed{env: e, now: now}}
	call(e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		p.Del(e.Context(), e.slotKeys(name)...)
		play.set(p, "lock", lock)
		switch s.other {
		case "hash":
			p.HSet(e.Context(), k[0], "a", "b")
		case "list":
			p.RPush(e.Context(), k[0], "x")
		case "string": // an empty one
			p.Set(e.Context(), k[0], "", time.Minute)
		}
		play.set(p, "queue", queue)
		if strings.Contains(strings.Join(queue, " "), "DEAD") {
			play.set(p, "notes", []string{"DEAD:-17"})
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
		if !s.unused {
			p.Set(e.Context(), k[1], strconv.Itoa(firstToken+99), time.Hour)
			p.Set(e.Context(), e.key(name, "size"), 2, time.Hour)
		}
		return nil
	})).Must(e)
}

// A snapshot is the keys of a name.
type snapshot struct {
	now     int64             // ms
	kind    string            // type of the lock's key
	tag     string            // of a lock with owners
	slots   map[string]int64  // of the entries of a Semaphore
	size    string            // of a Semaphore
	entries map[string]string // attempt -> mode, token, and until when in about ten seconds
	tokens  map[string]string // attempt -> token
	until   map[string]int64  // attempt -> ms
	end     int64             // of a lock with owners: its last entry, ms
	keyEnd  int64             // of a real server's key
	fence   string
	queue   []string
	seen    []string
	tomb    bool
	ends    [5]bool // has a TTL
}

func (e *env) snapshot(name string) snapshot {
	e.Helper()
	k := e.scriptKeys(name)
	var kind *redis.StatusCmd
	var lock, fence, size *redis.StringCmd
	var sizeTTL *redis.DurationCmd
	var members *redis.ZSliceCmd
	var queue, seen *redis.StringSliceCmd
	var tomb *redis.IntCmd
	var ttls [5]*redis.DurationCmd
	var now *redis.TimeCmd
	_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		kind, lock, fence = p.Type(e.Context(), k[0]), p.Get(e.Context(), k[0]), p.Get(e.Context(), k[1])
		members = p.ZRangeWithScores(e.Context(), k[0], 0, -1)
		queue, seen = p.ZRange(e.Context(), k[2], 0, -1), p.HKeys(e.Context(), k[3])
		tomb = p.Exists(e.Context(), k[4])
		for i := range k {
			ttls[i] = p.PTTL(e.Context(), k[i])
		}
		size, sizeTTL = p.Get(e.Context(), e.key(name, "size")), p.PTTL(e.Context(), e.key(name, "size"))
		now = p.Time(e.Context())
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
		e.Fatal(err)
	}
	s := snapshot{
		now: now.Val().UnixMilli(), kind: kind.Val(), fence: fence.Val(), queue: queue.Val(), tomb: tomb.Val() == 1, size: size.Val(),
		entries: map[string]string{}, tokens: map[string]string{}, until: map[string]int64{},
	}
	if s.size != "" && sizeTTL.Val() <= 0 {
		e.Errorf("the size has the TTL %v", sizeTTL.Val())
	}
	// Notes on processes that have to confirm a grant end with any request of the process.
	s.seen = slices.DeleteFunc(seen.Val(), func(field string) bool { return field[0] == '!' })
	slices.Sort(s.seen)
	for i := range k {
		s.ends[i] = ttls[i].Val() > 0
	}
	s.ends[3] = s.ends[3] && len(s.seen) > 0
	has := func(attempt, mode, token string, until int64) {
		s.entries[attempt] = fmt.Sprintf("%s %s %.0fs", mode, token, time.UnixMilli(until).Sub(now.Val()).Round(10*time.Second).Seconds())
		s.tokens[attempt], s.until[attempt] = token, until
	}
	switch s.kind {
	case "string":
		has(lock.Val(), "w", s.fence, s.now+ttls[0].Val().Milliseconds())
	case "zset":
		stored := readOwned(members.Val())
		counts := map[string]int64{}
		for _, x := range stored.entries {
			counts[ownerOf(x.attempt)]++
			if x.until >= s.now {
				has(x.attempt, x.mode, stored.tokens[x.attempt], x.until)
			}
		}
		if !maps.Equal(counts, stored.counts) || len(stored.tokens) != len(stored.entries) || stored.kind == "" || stored.kind == "np1" && len(stored.slots) != len(stored.entries) {
			e.Errorf("the counted entries of owners are %v; stored are %v, tokens %v, kind %q", counts, stored.counts, stored.tokens, stored.kind)
		}
		s.tag, s.slots = stored.kind, stored.slots
		if s.end = stored.end; e.Bubble == nil { // miniredis keeps the remaining time, not the instant
			s.keyEnd = e.expireTime(k[0], s.end)
		}
	}
	return s
}

func (s snapshot) same(o snapshot) bool {
	return s.kind == o.kind && maps.Equal(s.slots, o.slots) && s.size == o.size && s.fence == o.fence && s.tomb == o.tomb && s.ends == o.ends &&
		slices.Equal(s.queue, o.queue) && slices.Equal(s.seen, o.seen) && maps.Equal(s.entries, o.entries)
}

// Every script of the locks runs twice in every state of a name. The second answer is equal to the first, and the
// state stays. Each single run also keeps the guarantees that checkRun asserts.
func TestScriptsTwiceInEveryState(t *testing.T) {
	for kind, c := range twiceKinds() {
		t.Run(kind, func(t *testing.T) {
			onOneServer(t, func(e *env) { runTwice(e, c) })
		})
	}
}

func runTwice(e *env, c twiceKind) {
	e.Helper()
	mine, states, k, step := c.mine, c.states(), e.scriptKeys("orders"), 1
	hasSlots := strings.HasPrefix(mine, "np1:")
	if hasSlots {
		k = e.slotKeys("orders")
	}
	user := e.Narrowed("narrow", k) // every key that a script uses is among its KEYS
	if mine != me && e.Bubble == nil {
		step = testenv.Size(5, 1) // a real server gets another fifth of the states for each request
	}
	play := &scriptPlay{timed: &timed{env: e}}
	for n, asks := range []string{"tries", "joins", "looks", "resumes at=1000", "leaves", "leaves tomb=300000", "renews keeps", c.last} {
		words := strings.Fields(asks)
		script, keys, args := play.request(mine, words[0], words[1:])
		source := call(lockcore.ScriptSource(script)).Must(e)
		sha := e.Raw.ScriptLoad(e.Context(), source).Val()
		for i := n % step; i < len(states); i += step {
			state := states[i]
			var before, middle, after snapshot
			var first, second any
			var err1, err2 error
			// On a busy machine a grant, which lasts a second, can end between two steps.
			e.Until("the machine is quick enough", func() bool {
				begun := time.Now()
				e.establish("orders", state)
				before = e.snapshot("orders")
				first, err1 = user.EvalSha(e.Context(), sha, keys, args...).Result()
				middle = e.snapshot("orders")
				second, err2 = user.EvalSha(e.Context(), sha, keys, args...).Result()
				after = e.snapshot("orders")
				return time.Since(begun) < time.Second/2
			})
			where := fmt.Sprintf("%s with %+v", asks, state)
			if err1 != nil || err2 != nil {
				e.Errorf("%s: %v, %v", where, err1, err2)
				continue
			}
			one, two := remaining.ReplaceAllString(fmt.Sprint(first), "[$1 left "), remaining.ReplaceAllString(fmt.Sprint(second), "[$1 left ")
			if n, _ := leaveReply(first); words[0] == "leaves" {
				if one = strconv.FormatInt(min(n, 1-n), 10); hasSlots && strings.HasPrefix(two, "-") {
					one = two // it may also count those that were granted slots
				}
				// The second time it is not mine any more, and nothing is free: as declared.
			}
			if one == "[8]" && asks == "looks" {
				two = strings.Replace(two, "[5]", one, 1) // it has left the queue; it joins again to get this answer
			}
			if words[0] == "resizes" && one != "-1" {
				one = "3" // the size before
			}
			if one != two {
				e.Errorf("%s: answers %v, then %v", where, first, second)
			}
			if !middle.same(after) {
				e.Errorf("%s: twice changed %+v to %+v", where, middle, after)
			}
			checkRun(e, where, mine, asks, state, before, middle, first)
		}
	}
}

// leaveReply splits the reply of a release into its number and the time (ms) after which the caller has to check; -1
// if there is nothing to check.
func leaveReply(answer any) (n, check int64) {
	check = -1
	_, _ = fmt.Sscan(strings.Trim(fmt.Sprint(answer), "[]"), &n, &check)
	return n, check
}

// listed returns an answer of an acquire as a list, also if it is a token: then {1, token}.
func listed(answer any) (list []any, ok bool) {
	if token, isText := answer.(string); isText {
		return []any{int64(1), token}, true
	}
	list, ok = answer.([]any)
	if ok && len(list) == 4 && list[0] == int64(9) {
		list = append([]any{int64(1)}, list[1:]...)
	}
	return list, ok
}

// remaining is how long (ms) the lock lasts in the answer to a waiter.
var remaining = regexp.MustCompile(`^\[([234]) \d+ `)

// checkRun compares one run with the guarantees of the scripts.
func checkRun(e *env, where, mine, asks string, state keyState, before, after snapshot, answer any) {
	e.Helper()
	complain := func(format string, v ...any) {
		e.Helper()
		e.Errorf("%s: answer %v, after it %+v: %s", where, answer, after, fmt.Sprintf(format, v...))
	}
	foreign := before.kind != "none" && (before.kind == "string") != (mine == me) || state.other != "" || before.tag != "" && before.tag != mine[:3]
	for i, exists := range []bool{after.kind != "none" && state.other == "" && state.holder != stranger, after.fence != "", len(after.queue) > 0, len(after.seen) > 0, after.tomb} {
		if exists && !after.ends[i] {
			complain("a key without TTL")
		}
	}
	verb, _, _ := strings.Cut(asks, " ")
	acquires := slices.Contains([]string{"tries", "joins", "looks", "resumes"}, verb)
	list, isList := listed(answer)
	if acquires && !isList {
		complain("not a list")
		return
	}
	if acquires && state.tomb != (list[0] == int64(6)) {
		complain("a tombstone was passed, or is none")
	}
	if strings.Contains(asks, "tomb=") && !after.tomb {
		complain("no tombstone")
	}
	if foreign {
		if acquires && !state.tomb && list[0] != int64(7) {
			complain("another kind's name was not refused")
		}
		if !acquires && answer != int64(0) && answer != int64(-1) {
			complain("another kind's lock is not mine")
		}
		rest := slices.DeleteFunc(slices.Clone(before.queue), func(a string) bool { return verb == "leaves" && a == mine })
		if before.kind != after.kind || !maps.Equal(before.entries, after.entries) || !slices.Equal(rest, after.queue) {
			complain("another kind's lock or queue was touched")
		}
		return
	}
	checkHolders(e, complain, after)
	checkSlots(complain, mine, before, after, list)
	held, isQueued := before.until[mine] > 0, slices.Contains(after.queue, mine)
	granted, left := false, int64(0)
	for attempt := range after.entries {
		if ownerOf(attempt) == ownerOf(mine) {
			left++
		}
		if slices.Contains(after.queue, attempt) {
			complain("%s holds the lock and is queued", attempt)
		}
		if before.entries[attempt] != "" || attempt == mine {
			continue
		}
		granted = true
		if strings.Contains(attempt, "DEAD") || strings.HasSuffix(attempt, "lapsed") || attempt[:4] != mine[:4] {
			complain("granted to a dead process, or of another kind")
		}
		if after.until[attempt] > after.now+1500 {
			complain("an unconfirmed grant of more than a second")
		}
	}
	for attempt, was := range before.entries {
		if attempt != mine && strings.Fields(was)[0] != strings.Fields(after.entries[attempt] + " -")[0] {
			complain("%s, another's entry, was touched", attempt)
		}
	}
	switch verb {
	case "renews":
		if (answer == int64(1)) != held || !slices.Equal(before.queue, after.queue) || !slices.Equal(before.seen, after.seen) || before.fence != after.fence {
			complain("renewed what is not mine, or not what is, or changed more")
		}
	case "promotes":
		want := int64(-1)
		if held && slices.Contains(state.queue, living) {
			want = 1
		} else if held {
			want = 0
		}
		if answer != want || !maps.Equal(before.entries, after.entries) || want == 1 && after.queue[0] != living || len(before.queue) != len(after.queue) {
			complain("want %d, and the same lock", want)
		}
	case "downgrades":
		if (answer == int64(1)) != held || held && !strings.HasPrefix(after.entries[mine], "r ") {
			complain("downgraded what is not mine, or not what is")
		}
	case "leaves":
		n, check := leaveReply(answer)
		if hasSlots := mine[:3] == "np1"; (n > 0) != held || !hasSlots && (held && n != 1+left || !held && n != -left) {
			complain("%d are left", left)
		}
		if granted != (check == 1000) || !granted && check != -1 {
			complain("granted: %v, to be checked in %d ms", granted, check)
		}
		if after.entries[mine] != "" || isQueued {
			complain("not left")
		}
		unsized := mine[:3] == "np1" && state.unused // the head serves with its own size
		if len(after.entries) == 0 && len(after.queue) > 0 && after.queue[0] != me && after.queue[0] != rival && !unsized {
			complain("the lock is free, and the queue was not served")
		}
	case "tries", "joins", "looks", "resumes":
		checkAcquire(complain, mine, verb, state, before, after, list)
	}
}

// checkSlots compares the slots of a Semaphore with the guarantees: an entry keeps its slot, has it alone, and no grant
// exceeds the size.
func checkSlots(complain func(string, ...any), mine string, before, after snapshot, answer []any) {
	taken := map[int64]bool{}
	size, _ := strconv.ParseInt(after.size, 10, 64)
	for attempt, slot := range after.slots {
		was, had := before.slots[attempt]
		had = had && before.entries[attempt] != ""
		if taken[slot] || had && was != slot || !had && (slot >= size || int64(len(after.entries)) > size) {
			complain("%s has the slot %d of %d", attempt, slot, size)
		}
		taken[slot] = true
		if attempt == mine && len(answer) == 4 && answer[0] == int64(1) && (answer[2] != slot || answer[3] != size) {
			complain("it was told another slot")
		}
	}
}

func checkAcquire(complain func(string, ...any), mine, verb string, state keyState, before, after snapshot, list []any) {
	held, isQueued := after.entries[mine] != "", slices.Contains(after.queue, mine)
	switch code, _ := list[0].(int64); code {
	case 1:
		token, err := strconv.ParseUint(fmt.Sprint(list[1]), 10, 64)
		if list[1] != after.tokens[mine] || isQueued || err != nil || token < firstToken && !state.unused || token < 900000000000000 {
			complain("held, but not so")
		}
		if after.until[mine] < after.now+59000 {
			complain("held, but not for the full TTL")
		}
		first, places := append(slices.Clone(state.queue), "")[0], 1
		if mine[:3] == "np1" {
			places = 2
		}
		if isAlive := strings.Contains(first, "living") || strings.Contains(first, "alive"); isAlive && verb != "resumes" && before.entries[mine] == "" && len(before.entries) < places && after.entries[first] == "" {
			complain("it passed the queue") // except for an attempt that resumes an older place
		}
	case 2, 3:
		if held || !isQueued || after.entries[fmt.Sprint(list[3])] == "" || (code == 2) != slices.Contains(after.queue[:min(3, len(after.queue))], mine) {
			complain("queued, but at the wrong place")
		}
	case 4:
		if verb != "tries" || isQueued || held || after.entries[fmt.Sprint(list[2])] == "" {
			complain("busy, but not so")
		}
	case 5:
		if verb != "looks" || isQueued || slices.Contains(before.queue, mine) {
			complain("gone, but not so")
		}
	case 6:
		if !before.same(after) {
			complain("buried: it must change nothing")
		}
	case 7:
		if len(before.entries) > 0 || isQueued || len(after.entries) > 0 || after.queue[0] != me && after.queue[0] != rival {
			complain("wrong kind, but not so")
		}
	case 8:
		others := slices.ContainsFunc(slices.Collect(maps.Keys(before.entries)), func(a string) bool { return ownerOf(a) != "me" })
		if !others || isQueued {
			complain("an upgrade, but not so")
		}
	default:
		complain("unknown code")
	}
	if (verb == "tries" || verb == "looks") && isQueued && !slices.Contains(state.queue, mine) {
		complain("it queued unasked")
	}
}

// checkHolders compares the entries of a lock with the guarantees: a writer's owner is alone, each owner has its own
// token, and the key ends with the last entry.
func checkHolders(e *env, complain func(string, ...any), s snapshot) {
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
	if s.kind == "zset" && s.end != last {
		complain("the lock ends at %d, its last entry at %d", s.end, last)
	}
	if e.Bubble == nil && s.end > 0 && s.keyEnd != s.end {
		complain("the key ends at %d, the lock at %d", s.keyEnd, s.end)
	}
}

// The scores of a lock with owners; see part_entry.lua.
const (
	writesScore = 1 << 51
	countScore  = 1 << 52
	slotScore   = countScore + writesScore
)

// A storedOwned is the stored value of a lock with owners, including ended entries.
type storedOwned struct {
	kind    string
	entries []storedEntry      // by mode and end
	tokens  map[string]string  // of entries
	counts  map[string]int64   // of owners
	slots   map[string]int64   // of the entries of a Semaphore
	end     int64              // of the last entry, ms
	members map[string]float64 // all
}

type storedEntry struct {
	attempt, mode string
	until         int64
}

func (e *env) storedOwned(name string) storedOwned {
	e.Helper()
	all := call(e.Raw.ZRangeWithScores(e.Context(), e.key(name, "lock"), 0, -1).Result()).Must(e)
	return readOwned(all)
}

func readOwned(all []redis.Z) storedOwned {
	s := storedOwned{tokens: map[string]string{}, counts: map[string]int64{}, slots: map[string]int64{}, members: map[string]float64{}}
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
		case sort == "s":
			s.slots[rest] = score - slotScore
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
func zOwned(entries []storedEntry, tokens map[string]int64) []redis.Z {
	all := []redis.Z{{Score: countScore, Member: entries[0].attempt[:3]}}
	counts := map[string]int{}
	for i, x := range entries {
		if x.attempt[:3] == "np1" {
			all = append(all, redis.Z{Score: float64(slotScore + i), Member: "s:" + x.attempt})
		}
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
