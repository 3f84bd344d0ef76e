package election

import (
	"crypto/sha1"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testing/testenv"
)

const (
	me       = "nl1:ALIVE.1/me"
	living   = "nl1:ALIVE.2/a/living\none"
	stranger = "a foreign client"

	leaderToken   = "1700000000000000"
	leaderRequest = `{"id":"1"}`
	longAgo       = "1763000000000" // ms
)

// A leaderRun is a script of an election with its keys and arguments; me is the attempt of
// that name. The TTL is longer than the remaining time of a lock.
type leaderRun struct {
	script string
	keys   []string
	args   []any
}

func (r leaderRun) String() string { return fmt.Sprint(r.script, " ", r.args) }

func leaderRuns() []leaderRun {
	keys, channel := []string{key("lock"), key("leader")}, "noonlock:leader:0:board"
	return []leaderRun{
		{"leader_renew", append(keys, key("terms")), []any{me, 90000, leaderToken, "me", "{}", 7000, channel}},
		{"leader_read", keys, nil},
		{"leader_resign", keys, []any{leaderToken, leaderRequest, channel}},
	}
}

// hash returns what a record has of an attempt.
func hash(attempt string) string { return fmt.Sprintf("%x", sha1.Sum([]byte(attempt))) } //nolint:gosec // as in the script

// leaderRecords are the states of the record, by name.
func leaderRecords() map[string]map[string]any {
	record := func(token, holder string, more ...any) map[string]any {
		by := "nl1:DEAD.1/" + holder
		if token == leaderToken {
			by = me
		}
		r := map[string]any{
			"v": "1", "by": hash(by), "holder": holder, "token": token, "acquired": longAgo,
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
		"asked":        record(leaderToken, "me", "asked", leaderToken, "request", leaderRequest),
		"asked again":  record(leaderToken, "me", "asked", leaderToken, "request", `{"id":"2"}`),
		"older asked":  record("1600000000000000", "older", "asked", "1600000000000000", "request", leaderRequest),
		"asked before": record(leaderToken, "me", "asked", "1600000000000000", "request", leaderRequest),
		"newer":        {"v": "2", "holder": "newer"},
		"newer's mine": record(leaderToken, "newer", "v", "2"),
		"unreadable":   record(leaderToken, "newer", "v", "x"),
		"without by":   {"v": "1", "holder": "me", "token": leaderToken},
		"broken":       {"token": "x"},
		"wrong":        nil, // a key of another type
	}
}

// A leaderState is one state of an election's keys.
type leaderState struct {
	lock   string // the holder; "wrong": a key of another kind
	waits  bool   // a candidate is queued
	fence  bool
	record string // among leaderRecords
}

func (s leaderState) String() string {
	return fmt.Sprintf("lock %q, waits %v, fence %v, record %s", s.lock, s.waits, s.fence, s.record)
}

func leaderStates() []leaderState {
	var all []leaderState
	for _, lock := range []string{"", me, living, stranger, "wrong"} {
		for _, waits := range []bool{false, true} {
			for _, fence := range []bool{true, false} {
				if !fence && lock != "" && lock != me {
					continue
				}
				for name := range leaderRecords() {
					all = append(all, leaderState{lock, waits, fence, name})
				}
			}
		}
	}
	return all
}

func establish(e *testenv.Env, s leaderState) {
	e.Helper()
	_, err := e.Raw.Pipelined(e.Context(), func(p redis.Pipeliner) error {
		ctx := e.Context()
		p.Del(ctx, key("lock"), key("fence"), key("queue"), key("seen"), key("leader"), key("terms"))
		switch s.lock {
		case "":
		case "wrong":
			p.HSet(ctx, key("lock"), "a", "b")
		case stranger:
			p.Set(ctx, key("lock"), s.lock, 0)
		default:
			p.Set(ctx, key("lock"), s.lock, time.Minute)
		}
		if s.waits {
			p.ZAdd(ctx, key("queue"), redis.Z{Score: 1763000000001, Member: living})
			p.HSet(ctx, key("seen"), living, 9000000000001)
		}
		if s.fence {
			p.Set(ctx, key("fence"), "1700000000000000", time.Hour)
		}
		if rec := leaderRecords()[s.record]; rec != nil {
			p.HSet(ctx, key("leader"), rec)
			p.PExpire(ctx, key("leader"), time.Hour)
		}
		if s.record == "wrong" {
			p.Set(ctx, key("leader"), "x", time.Hour)
		}
		return nil
	})
	testenv.Must(e, err)
}

// A snapshot is an election's keys, and the announcements since the last snapshot.
type snapshot struct {
	lock, fence, queue, seen string
	ends                     [4]bool           // which of them have a TTL
	left                     time.Duration     // the lock's
	record                   map[string]string // none of a key of another type
	kept                     time.Duration     // the record's TTL
	terms                    string
	told                     []string
}

func snap(e *testenv.Env, heard *redis.PubSub) snapshot {
	e.Helper()
	lock, err := e.Raw.Get(e.Context(), key("lock")).Result()
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		lock = "wrong"
	}
	s := snapshot{
		lock:   lock,
		fence:  e.Raw.Get(e.Context(), key("fence")).Val(),
		queue:  fmt.Sprint(e.Raw.ZRangeWithScores(e.Context(), key("queue"), 0, -1).Val()),
		seen:   fmt.Sprint(e.Raw.HGetAll(e.Context(), key("seen")).Val()),
		left:   e.PTTL(key("lock")),
		record: e.Raw.HGetAll(e.Context(), key("leader")).Val(),
		kept:   e.PTTL(key("leader")),
		terms:  fmt.Sprint(e.Raw.LRange(e.Context(), key("terms"), 0, -1).Val()),
		told:   e.Received(heard, "noonlock:leader:0:board"),
	}
	for i, part := range []string{"lock", "fence", "queue", "seen"} {
		s.ends[i] = e.PTTL(key(part)) > 0
	}
	return s
}

// sameLock reports whether only the time of the lock has changed.
func (s snapshot) sameLock(o snapshot) bool {
	return s.lock == o.lock && s.fence == o.fence && s.queue == o.queue && s.seen == o.seen && s.ends == o.ends
}

func (s snapshot) same(o snapshot) bool {
	return s.sameLock(o) && s.terms == o.terms && maps.Equal(s.record, o.record)
}
