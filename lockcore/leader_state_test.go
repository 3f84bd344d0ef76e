package lockcore_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	leaderToken = "1700000000000000"
	longAgo     = "1763000000000" // ms
)

// A leaderRun is a script of an election with the keys and arguments it is run with,
// me being the attempt of the same name. The TTL is longer than what is left of a lock.
type leaderRun struct {
	script string
	keys   []string
	args   []any
	line   bool // of the line; the others are of the record
}

func (r leaderRun) String() string { return fmt.Sprint(r.script, " ", r.args) }

func (e *env) leaderRuns() []leaderRun {
	lock, fence, queue := e.key(boardKey, "lock"), e.key(boardKey, "fence"), e.key(boardKey, "queue")
	seen, leader := e.key(boardKey, "seen"), e.key(boardKey, "leader")
	return []leaderRun{
		{"leader_claim", []string{lock, leader}, []any{me, 90000, leaderToken, "me", "{}"}, false},
		{"leader_renew", []string{lock, leader}, []any{me, 90000, leaderToken, "me", "{}", 7, longAgo}, false},
		{"leader_vacate", []string{lock, leader}, []any{leaderToken}, false},
		{"leader_look", []string{lock, fence, leader}, nil, false},
		{"leader_line", []string{queue, seen}, nil, true},
		{"leader_transfer", []string{lock, queue, seen}, []any{me, "living"}, true},
		{"leader_transfer", []string{lock, queue, seen}, []any{me, "lapsed"}, true},
		{"leader_transfer", []string{lock, queue, seen}, []any{me, "nobody"}, true},
	}
}

// leaderRecords are the states of the record, by name.
func leaderRecords() map[string]map[string]any {
	record := func(token, holder string, more ...any) map[string]any {
		r := map[string]any{
			"v": "1", "holder": holder, "token": token, "term": "7", "acquired": longAgo,
			"renewed": longAgo, "lease": "60000", "metadata": "{}",
		}
		for i := 0; i < len(more); i += 2 {
			r[fmt.Sprint(more[i])] = more[i+1]
		}
		return r
	}
	return map[string]map[string]any{
		"none":         nil,
		"mine":         record(leaderToken, "me"),
		"older":        record("1600000000000000", "older"),
		"greater":      record("1800000000000000", "greater"),
		"resigned":     record(leaderToken, "", "released", longAgo),
		"older's end":  record("1600000000000000", "", "released", longAgo),
		"newer":        {"v": "2", "holder": "newer"},
		"newer's mine": record(leaderToken, "newer", "v", "2"),
		"unreadable":   record(leaderToken, "newer", "v", "x"),
		"broken":       {"term": "x"},
		"wrong":        nil, // a key of another type
	}
}

// A leaderState is one state of an election's keys.
type leaderState struct {
	lineState
	record    string // among leaderRecords
	forgotten bool   // nobody in line was heard of
	moved     int64  // 0, or when the head of the line was moved there, ms
}

// aheadOfTime is a time at which a head was moved, by a clock that was set back since.
const aheadOfTime = 9000000000001 // ms

func (s leaderState) String() string {
	return fmt.Sprintf("%v, record %s, forgotten %v, moved %d", s.lineState, s.record, s.forgotten, s.moved)
}

// leaderStates are the states of the keys that a script has.
func leaderStates(ofLine bool) []leaderState {
	var all []leaderState
	for _, s := range lineStates() {
		switch {
		case s.tomb: // nothing to these scripts
		case ofLine && s.fence:
			all = append(all, leaderState{lineState: s, record: "none"}, leaderState{lineState: s, record: "mine", forgotten: s.queue != nil})
		case !ofLine && (len(s.queue) == 0 || slices.Equal(s.queue, []string{living})):
			for name := range leaderRecords() {
				all = append(all, leaderState{lineState: s, record: name})
			}
		}
	}
	for _, queue := range [][]string{{lapsed, living}, {deaf, unknown, living, nonsense}} {
		if ofLine { // a leader with a candidate that is not the head
			all = append(all, leaderState{lineState: lineState{lock: me, queue: queue, fence: true}, record: "mine"})
		}
	}
	for _, queue := range [][]string{{living}, {living, deaf}, {deaf, living}, {lapsed, unknown, living}} {
		for _, moved := range []int64{1763000000001, aheadOfTime} {
			if ofLine { // whose head was moved there
				all = append(all, leaderState{lineState: lineState{lock: me, queue: queue, fence: true}, record: "mine", moved: moved})
			}
		}
	}
	return all
}

func (e *env) establishLeader(s leaderState) {
	e.Helper()
	key := e.key(boardKey, "leader")
	e.establish(boardKey, s.lineState)
	must(e, e.raw.Del(e.Context(), key).Err())
	if rec := leaderRecords()[s.record]; rec != nil {
		must(e, e.raw.HSet(e.Context(), key, rec).Err())
		must(e, e.raw.PExpire(e.Context(), key, time.Hour).Err())
	}
	if s.record == "wrong" {
		must(e, e.raw.Set(e.Context(), key, "x", time.Hour).Err())
	}
	if s.moved != 0 {
		must(e, e.raw.ZAdd(e.Context(), e.key(boardKey, "queue"), redis.Z{Score: -float64(s.moved), Member: s.queue[0]}).Err())
	}
	if s.forgotten {
		must(e, e.raw.Del(e.Context(), e.key(boardKey, "seen")).Err())
	}
}

// A leaderSnapshot is an election's keys, and what was told to those who listen
// since the one before.
type leaderSnapshot struct {
	snapshot
	record map[string]string
	kept   time.Duration // the record's TTL
	places []redis.Z
	told   []string
}

func (e *env) leaderSnapshot(heard *redis.PubSub) leaderSnapshot {
	e.Helper()
	key := e.key(boardKey, "leader")
	s := leaderSnapshot{
		snapshot: e.snapshot(boardKey),
		record:   e.raw.HGetAll(e.Context(), key).Val(), // none of a key of another type
		kept:     e.raw.PTTL(e.Context(), key).Val(),
		places:   e.raw.ZRangeWithScores(e.Context(), e.key(boardKey, "queue"), 0, -1).Val(),
	}
	s.told = e.told(heard, "noonlock:leader:board")
	return s
}

func (s leaderSnapshot) same(o leaderSnapshot) bool {
	return s.snapshot.same(o.snapshot) && maps.Equal(s.record, o.record) && slices.Equal(s.places, o.places)
}
