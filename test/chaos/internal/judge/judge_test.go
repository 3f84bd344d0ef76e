package judge_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

// parse reads a history that is written by hand. Its lines are
//
//	lease PROCESS FROM-UNTIL [ask=] [release=] [kind=] [mode=] [token=] [slot=]   without release, the process dies
//	call PROCESS FROM-END [mode=] [deadline=]   returns no lease
//	write PROCESS AT [token=] [id=]   accepted by the resource; id is the number of the lease's line
//	fault NAME FROM-TO class= target=
//	tick TICK outcome= [count=], row TICK, stall FROM-TO, exit PROCESS AT, left SERVER AT
//
// Times are in ms.
func parse(t *testing.T, rules history.Rules, text string) (all []history.Event) {
	t.Helper()
	rules.TTL, rules.Slots, rules.Every = time.Second, 2, time.Second
	instant := func(ms int64) int64 { return ms*1e6 + 1e9 }
	add := func(ms int64, what string, e history.Event) {
		e.T, e.What = instant(ms), what
		all = append(all, e)
	}
	add(0, history.Setup, history.Event{W: "harness", Rules: &rules})
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Fields(line)
		e := history.Event{W: words[1], ID: i + 1}
		var from, to int64
		_, _ = fmt.Sscanf(words[2], "%d-%d", &from, &to)
		more := map[string]int64{}
		for _, word := range words[3:] {
			key, value, _ := strings.Cut(word, "=")
			more[key], _ = strconv.ParseInt(value, 10, 64)
			switch key {
			case "kind":
				e.Kind = value
			case "mode":
				e.Mode = value
			case "outcome":
				e.Outcome = value
			case "class":
				e.Class = value
			case "target":
				e.Target = value
			}
		}
		e.Token, e.Slot, e.Count = uint64(more["token"]), int(more["slot"]), int(more["count"]) //nolint:gosec // small
		switch words[0] {
		case "lease":
			e.Kind, e.Name = cmp.Or(e.Kind, history.Mutex), "orders"
			add(cmp.Or(more["ask"], from-1), history.Ask, e)
			e.Until = instant(to)
			add(from, history.Granted, e)
			if release := more["release"]; release > 0 {
				add(release, history.Release, e)
				add(release+1, history.Released, e)
			}
		case "call":
			e.Kind, e.Name = history.Mutex, "orders"
			if more["deadline"] > 0 {
				e.Until = instant(more["deadline"])
			}
			add(from, history.Ask, e)
			add(to, history.Failed, e)
		case "write":
			e.Name, e.ID = "orders", int(more["id"])
			add(from, history.Accepted, e)
		case "fault":
			e.W, e.Fault = "harness", words[1]
			add(from, history.Begin, e)
			add(to, history.End, e)
		case "tick", "row":
			e.W, e.Tick = "harness", from
			add(9000, map[string]string{"tick": history.Run, "row": history.Row}[words[0]], e)
		case "stall":
			e.Until = instant(to)
			add(from, history.Stall, e)
		case "exit", "left":
			e.Err = "panic"
			add(from, words[0], e)
		default:
			t.Fatalf("no event is %q", line)
		}
	}
	slices.SortStableFunc(all, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	return all
}

func TestJudge(t *testing.T) {
	t.Parallel()
	none := history.Rules{}
	for name, c := range map[string]struct {
		rules history.Rules
		past  string
		want  string // classes and rules
	}{
		"one after the other": {none, `
			lease w1 10-900 token=1 release=500
			lease w2 501-1400 token=2 release=600`, ""},
		"two holders": {none, `
			lease w1 10-900 token=1
			lease w2 899-1400 token=2 release=1300`, "S not linearizable, S two holders"},
		"the first holder has stopped": {none, `
			lease w1 10-900 token=1
			lease w2 901-1400 token=2 release=1300`, ""},
		"a lease that is over when its process learns of it": {none, `
			lease w1 10-900 token=2 release=800
			lease w2 850-700 token=1 ask=1`, ""},
		"two holders after a loss of data": {none, `
			lease w1 10-900 token=1
			lease w2 600-1400 token=2 release=1300
			fault flush 500-500 class=D target=s0`, "D not linearizable, D two holders"},
		"a loss of data that is not reported": {none, `
			lease w1 10-3900 token=1
			lease w2 600-4400 token=2 release=4300
			fault flush 500-500 class=D target=s0`, "D not linearizable, S a loss was not reported"},
		"two holders in spite of LockDelay": {history.Rules{Delay: time.Second}, `
			lease w1 10-900 token=1
			lease w2 600-1400 token=2 release=1300
			fault failover 500-500 class=D target=s0`, "D not linearizable, S two holders"},
		"two readers": {none, `
			lease w1 10-900 kind=rw mode=r token=2
			lease w2 20-900 kind=rw mode=r token=1`, ""},
		"a writer beside a reader": {none, `
			lease w1 10-900 kind=rw mode=r token=1
			lease w2 20-900 kind=rw mode=w token=2`, "S two holders"},
		"two leaders": {none, `
			lease w1 10-900 kind=election token=1
			lease w2 20-900 kind=election token=2`, "S not linearizable, S two holders"},
		"two partitions": {none, `
			lease w1 10-900 kind=partitions token=1
			lease w2 20-900 kind=partitions slot=1 token=1`, ""},
		"a slot twice": {none, `
			lease w1 10-900 kind=semaphore slot=1 token=1
			lease w2 20-900 kind=semaphore slot=1 token=2`, "S two holders"},
		"too many slots": {none, `
			lease w1 10-900 kind=semaphore token=1
			lease w2 20-900 kind=semaphore slot=1 token=2
			lease w3 30-900 kind=semaphore slot=2 token=3`, "S too many holders"},
		"a token twice": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 200-900 token=1 release=300`, "S not linearizable, S tokens do not grow"},
		"a smaller token of a slot": {none, `
			lease w1 10-900 kind=semaphore token=2
			lease w2 20-900 kind=semaphore slot=1 token=1`, "S tokens do not grow"},
		"a stale write": {none, `
			write w1 10 token=1
			write w2 20 token=2
			write w1 30 token=1`, "S stale write"},
		"a late write without tokens": {none, `
			lease w1 10-900
			lease w2 1000-1400
			write w2 1100 id=2
			write w1 1200 id=1`, "S stale write"},
		"ticks": {none, `
			tick job 1000 outcome=succeeded
			row job 1000
			tick job 2000 outcome=failed
			tick job 3000 outcome=unknown`, ""},
		"a tick is lost": {none, `
			tick job 1000 outcome=failed
			tick job 3000 outcome=failed`, "S a tick is lost"},
		"ticks are skipped": {none, `
			tick job 1000 outcome=failed
			tick job 2000 outcome=skipped count=2
			tick job 4000 outcome=failed`, "S a tick is skipped, S a tick is skipped"},
		"a tick twice": {none, `
			tick job 1000 outcome=failed
			tick job 1000 outcome=failed`, "S a tick twice"},
		"an effect twice": {none, `
			tick job 1000 outcome=succeeded
			row job 1000
			row job 1000
			fault flush 500-500 class=D target=s0`, "S an effect twice"},
		"an effect is lost": {none, `
			tick job 1000 outcome=succeeded`, "S an effect is lost"},
		"a waiter hangs": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 3000-3900 ask=50 token=2 release=3100`, "S a waiter hangs"},
		"a waiter that waits for a dead holder": {none, `
			lease w1 10-900 token=1
			lease w2 3000-3900 ask=50 token=2 release=3100
			fault kill 20-1000 class=S target=w1`, ""},
		"a waiter that waits for too long for a dead holder": {none, `
			lease w1 10-900 token=1
			lease w2 5500-6000 ask=50 token=2 release=5600
			fault kill 20-1000 class=S target=w1`, "S a waiter hangs"},
		"a waiter for a lock of a request that was withdrawn": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 4000-4900 ask=50 token=2 release=4100
			fault stuck 20-900 class=S target=w1
			fault kill 2000-3000 class=S target=w9`, "S a waiter hangs"},
		"a waiter that is cut off": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 5000-5900 ask=50 token=2 release=5100
			fault cut 200-4000 class=S target=w2`, ""},
		"a waiter hangs while the machine stalls": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 3000-3900 ask=50 token=2 release=3100
			stall machine 500-1700`, ""},
		"a waiter hangs for longer than the machine stalls": {none, `
			lease w1 10-900 token=1 release=100
			lease w2 3000-3900 ask=50 token=2 release=3100
			stall machine 500-1300
			stall machine 3100-9000`, "S a waiter hangs"},
		"a waiter of a library that polls": {history.Rules{Peers: true}, `
			lease w1 10-900 token=1 release=100
			lease w2 3000-3900 ask=50 token=2 release=3100`, ""},
		"a call is late": {none, `
			call w1 10-1700 mode=try`, "S a call is late"},
		"a call is late while the machine stalls": {none, `
			call w1 10-1700 mode=try
			stall machine 300-600`, ""},
		"a call of a frozen process": {none, `
			call w1 10-1700 mode=try
			fault freeze 20-900 class=S target=w1`, ""},
		"a wait that does not end with its context": {none, `
			lease w2 5-3000 token=1 release=2800
			call w1 10-2200 deadline=1000`, "S a call is late"},
		"a waiter is passed over": {history.Rules{Queue: true}, `
			lease w3 5005-6000 token=1 release=5900
			lease w1 6300-6900 ask=5010 token=3 release=6400
			lease w2 6000-6900 ask=5800 token=2 release=6100`, "S a waiter is passed over"},
		"a waiter is passed over during a fault": {history.Rules{Queue: true}, `
			lease w3 5005-6000 token=1 release=5900
			lease w1 6300-6900 ask=5010 token=3 release=6400
			lease w2 6000-6900 ask=5800 token=2 release=6100
			fault freeze 5500-5900 class=S target=w1`, ""},
		"work after its lease": {none, `
			lease w1 10-1800 token=1 release=1700
			fault freeze 500-1600 class=S target=w1`, "S work after its lease"},
		"a worker fails": {none, `
			exit w1 10`, "S a worker failed"},
		"a lock is left": {none, `
			left s0 10`, "S something is left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, v := range judge.Judge(parse(t, c.rules, c.past)).Violations {
				got = append(got, v.Class+" "+v.Rule)
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
