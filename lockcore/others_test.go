package lockcore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A process that is granted a lock also has the next waiters, or a third process has the
// next one. One waiter of yet another process is notified of the end of the grant: the last
// one, or else the first one that is examined.
func TestWaitersOfOtherProcessesAreNotifiedOfAGrant(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		ear := e.Raw.Subscribe(e.Context(), "noonlock:ch:OTHER")
		defer ear.Close()
		_, err := ear.Receive(e.Context())
		must(e.env, err)
		k := e.scriptKeys("orders")
		for _, row := range []struct {
			name     string
			length   int   // of the queue after the grant
			others   []int // ranks of waiters of another process
			spoilt   int   // rank of a malformed member; -1: none
			lapsed   int   // rank of one of the others that has lapsed; 0: none
			messages int   // 0: none
		}{
			{"no other process", 40, nil, -1, 0, 0},
			{"the last one", 40, []int{1, 39}, -1, 0, 39},
			{"the last one has lapsed", 40, []int{5, 39}, -1, 39, 5},
			{"all have lapsed", 40, []int{39}, -1, 39, 0},
			{"the last one is no attempt", 40, []int{5}, 39, 0, 5},
			{"the first of two", 40, []int{1, 2}, -1, 0, 1},
			{"the last of the first ones", 40, []int{31}, -1, 0, 31},
			{"behind it", 40, []int{32, 33, 34, 35, 36, 37, 38}, -1, 0, 0},
			{"the next waiter is of a third process", 40, []int{0, 39}, -1, 0, 39},
			{"and there is no other", 40, []int{0}, -1, 0, 0},
			{"the next waiter is no attempt", 40, []int{39}, 0, 0, 39},
			{"the last one is of the process that is granted", 40, []int{0, 5}, -1, 0, 5},
		} {
			for kind, form := range map[string]string{"mutex": "nl1:%s.%d.u/id", "owned": "ns1:%[1]s.%[2]d.u.w/owner%[2]d id"} {
				process := map[int]string{}
				for _, rank := range row.others {
					process[rank] = "OTHER"
					if rank == 0 {
						process[rank] = "THIRD"
					}
				}
				var queue []any
				for i := range row.length + 1 {
					rank, of := i-1, "ALIVE"
					if process[rank] != "" {
						of = process[rank]
					}
					attempt, until := fmt.Sprintf(form, of, i), minute
					if rank >= 0 && rank == row.spoilt {
						attempt = nonsense
					}
					if rank > 0 && rank == row.lapsed {
						until = 0
					}
					queue = append(queue, attempt, time.Duration(i)*time.Millisecond, until)
				}
				script, holder, left := "mutex_leave", "nl1:HOLDER.1.u/id", "1000"
				if kind == "mutex" {
					must(e.env, e.Raw.Set(e.Context(), k[0], holder, minute).Err())
				} else {
					script, holder, left = "owned_leave", "ns1:HOLDER.1.u.w/holder id", "1001"
					e.establishOwned("orders", ownedState{kind: "ns1", entries: []ownedEntry{{"w", holder, minute}}})
				}
				e.fillQueue("orders", queue...)
				e.wants(kind+", "+row.name, e.run(script, k, holder, 0, keep.Milliseconds()), "[1 1000]")
				want := "[]"
				if row.messages != 0 {
					want = "[noonlock:ch:OTHER h noonlock:{orders}:lock " + left + " " + fmt.Sprintf(form, "OTHER", row.messages+1) + "]"
				}
				e.wants(kind+", "+row.name+": messages", fmt.Sprint(e.messages(ear, "noonlock:ch:OTHER")), want)
			}
		}
	})
}

// The token of an owner whose leases have ended in its process is kept if another process
// may have an entry of it that ends in this millisecond or later.
func TestEntriesOfOtherProcesses(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const own, read, other, stranger = "ns1:ALIVE.2.t.w/me id", "ns1:ALIVE.2.t.r/me id", "ns1:OTHER.3.t.%s/me id", "ns1:OTHER.4.t.r/you id"
		writes, reads := fmt.Sprintf(other, "w"), fmt.Sprintf(other, "r")
		k := e.scriptKeys("orders")
		for _, row := range []struct {
			name    string
			entries []ownedEntry
			more    int // entries of this process
			kept    bool
		}{
			{"its own", []ownedEntry{{"w", own, minute}}, 0, false},
			{"its own, and one of another owner", []ownedEntry{{"r", read, minute}, {"r", stranger, minute}}, 0, false},
			{"another process writes", []ownedEntry{{"w", own, minute}, {"w", writes, minute}}, 0, true},
			{"another process reads", []ownedEntry{{"r", read, minute}, {"r", reads, minute}}, 0, true},
			{"another process writes for this millisecond", []ownedEntry{{"w", own, minute}, {"w", writes, 0}}, 0, true},
			{"another process reads for this millisecond", []ownedEntry{{"r", read, minute}, {"r", reads, 0}}, 0, true},
			{"another process has read, and this one writes", []ownedEntry{{"w", own, minute}, {"r", reads, -time.Millisecond}}, 0, false},
			{"another process has written", []ownedEntry{{"w", own, minute}, {"w", writes, -time.Millisecond}}, 0, false},
			{"another process has read", []ownedEntry{{"r", read, minute}, {"r", reads, -time.Millisecond}}, 0, false},
			{"behind many", []ownedEntry{{"r", read, minute}, {"r", reads, time.Hour}}, 1500, true},
			{"fewer than are looked at", []ownedEntry{{"r", read, minute}}, 9998, false},
			{"as many", []ownedEntry{{"r", read, minute}}, 9999, true},
			{"more", []ownedEntry{{"r", read, minute}}, 10000, true},
		} {
			e.establishOwned("orders", ownedState{kind: "ns1", entries: row.entries})
			if row.more > 0 {
				members := []redis.Z{{Score: float64(countScore + row.more + len(row.entries)), Member: "n:me"}}
				for i := range row.more {
					members = append(members, redis.Z{Score: float64(e.now.Add(2 * minute).UnixMilli()), Member: fmt.Sprintf("ns1:ALIVE.%d.u.r/me id", 100+i)})
				}
				must(e.env, e.Raw.ZAdd(e.Context(), k[0], members...).Err())
				must(e.env, e.Raw.PExpire(e.Context(), k[0], time.Hour).Err())
			}
			before := e.Raw.ZScore(e.Context(), k[0], "t:me").Val()
			mode := row.entries[0].mode
			answer := e.run("owned_acquire", k, strings.Replace("ns1:ALIVE.1.t.X/me id", "X", mode, 1), 60000, "try", keep.Milliseconds(), "9000000000000000")
			if kept := answer == fmt.Sprintf("[1 %.0f]", -before); kept != row.kept || !strings.HasPrefix(answer, "[1 ") {
				e.Errorf("%s: answered %s at token %.0f, want that it is kept: %v", row.name, answer, -before, row.kept)
			}
		}
	})
}
