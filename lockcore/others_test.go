package lockcore_test

import (
	"fmt"
	"testing"
	"time"
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
