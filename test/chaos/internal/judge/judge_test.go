package judge_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

// A past is a history that is written by hand. Times are in ms.
type past struct {
	events []history.Event
	calls  int
}

func begin(rules history.Rules) *past {
	rules.TTL, rules.Slots, rules.Every = time.Second, 2, time.Second
	p := &past{}
	return p.add(0, "harness", history.Event{What: history.Setup, Rules: &rules})
}

func (p *past) add(at int64, process string, e history.Event) *past {
	e.T, e.W = at*1e6+1e9, process
	if e.Until > 0 {
		e.Until = e.Until*1e6 + 1e9
	}
	p.events = append(p.events, e)
	return p
}

// A leased is a lease of a history.
type leased struct {
	kind, mode       string
	token            uint64
	slot             int
	ask, from, until int64
	release          int64  // when its release begins and returns; 0: the process died
	err              string // of the release
}

func (p *past) lease(process string, l leased) *past {
	p.calls++
	e := history.Event{
		Kind: cmp.Or(l.kind, history.Mutex), Name: "orders", Mode: l.mode, ID: p.calls, Token: l.token, Slot: l.slot,
		What: history.Ask,
	}
	p.add(cmp.Or(l.ask, l.from-1), process, e)
	e.What, e.Until = history.Granted, l.until
	p.add(l.from, process, e)
	if l.release > 0 {
		e.What = history.Release
		p.add(l.release, process, e)
		e.What, e.Err = history.Released, l.err
		p.add(l.release+1, process, e)
	}
	return p
}

func (p *past) fault(name, class, target string, from, to int64) *past {
	p.calls++
	e := history.Event{What: history.Begin, Fault: name, Class: class, Target: target, ID: p.calls}
	p.add(from, "harness", e)
	e.What = history.End
	return p.add(to, "harness", e)
}

func (p *past) stall(from, to int64) *past {
	return p.add(from, "harness", history.Event{What: history.Stall, Until: to})
}

// call is a call that returns no lease.
func (p *past) call(process, mode string, from, deadline, to int64) *past {
	p.calls++
	e := history.Event{What: history.Ask, Kind: history.Mutex, Name: "orders", Mode: mode, ID: p.calls, Until: deadline}
	p.add(from, process, e)
	e.What = history.Failed
	return p.add(to, process, e)
}

func (p *past) write(process string, token uint64, at int64) *past {
	return p.add(at, process, history.Event{What: history.Accepted, Name: "mutex/orders/0", Token: token})
}

func (p *past) tick(tick int64, count int, outcome string) *past {
	return p.add(9000, "harness", history.Event{What: history.Run, Tick: tick, Count: count, Outcome: outcome})
}

func (p *past) row(tick int64) *past {
	return p.add(9000, "harness", history.Event{What: history.Row, Tick: tick})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	none := history.Rules{}
	queue := history.Rules{Queue: true}
	two := func(a, b leased) *past { return begin(none).lease("w1.1", a).lease("w2.1", b) }
	for name, c := range map[string]struct {
		past *past
		want []string // class and rule
	}{
		"one after the other": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 500},
				leased{token: 2, from: 501, until: 1400, release: 600},
			),
		},
		"two holders": {
			past: two(leased{token: 1, from: 10, until: 900}, leased{token: 2, from: 899, until: 1400, release: 1300}),
			want: []string{"S not linearizable", "S two holders"},
		},
		"the first holder has stopped": {
			past: two(leased{token: 1, from: 10, until: 900}, leased{token: 2, from: 901, until: 1400, release: 1300}),
		},
		"a lease that is over when its process learns of it": {
			past: two(leased{token: 2, from: 10, until: 900, release: 800}, leased{token: 1, ask: 1, from: 850, until: 700}),
		},
		"two holders after a loss of data": {
			past: two(
				leased{token: 1, from: 10, until: 900},
				leased{token: 2, from: 600, until: 1400, release: 1300},
			).fault("flush", "D", "s0", 500, 500),
			want: []string{"D not linearizable", "D two holders"},
		},
		"a loss of data that is not reported": {
			past: two(
				leased{token: 1, from: 10, until: 3900},
				leased{token: 2, from: 600, until: 4400, release: 4300},
			).fault("flush", "D", "s0", 500, 500),
			want: []string{"D not linearizable", "S a loss was not reported"},
		},
		"two holders in spite of LockDelay": {
			past: begin(history.Rules{Delay: time.Second}).lease("w1.1", leased{token: 1, from: 10, until: 900}).
				lease("w2.1", leased{token: 2, from: 600, until: 1400, release: 1300}).fault("failover", "D", "s0", 500, 500),
			want: []string{"D not linearizable", "S two holders"},
		},
		"two readers": {
			past: two(
				leased{kind: history.RW, mode: "r", token: 2, from: 10, until: 900},
				leased{kind: history.RW, mode: "r", token: 1, from: 20, until: 900},
			),
		},
		"a writer beside a reader": {
			past: two(
				leased{kind: history.RW, mode: "r", token: 1, from: 10, until: 900},
				leased{kind: history.RW, mode: "w", token: 2, from: 20, until: 900},
			),
			want: []string{"S two holders"},
		},
		"two leaders": {
			past: two(
				leased{kind: history.Election, token: 1, from: 10, until: 900},
				leased{kind: history.Election, token: 2, from: 20, until: 900},
			),
			want: []string{"S not linearizable", "S two holders"},
		},
		"two partitions": {
			past: two(
				leased{kind: history.Partitions, token: 1, from: 10, until: 900},
				leased{kind: history.Partitions, slot: 1, token: 1, from: 20, until: 900},
			),
		},
		"a slot twice": {
			past: two(
				leased{kind: history.Semaphore, slot: 1, token: 1, from: 10, until: 900},
				leased{kind: history.Semaphore, slot: 1, token: 2, from: 20, until: 900},
			),
			want: []string{"S two holders"},
		},
		"too many slots": {
			past: two(
				leased{kind: history.Semaphore, token: 1, from: 10, until: 900},
				leased{kind: history.Semaphore, slot: 1, token: 2, from: 20, until: 900},
			).
				lease("w3.1", leased{kind: history.Semaphore, slot: 2, token: 3, from: 30, until: 900}),
			want: []string{"S too many holders"},
		},
		"a token twice": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 1, from: 200, until: 900, release: 300},
			),
			want: []string{"S not linearizable", "S tokens do not grow"},
		},
		"a smaller token of a slot": {
			past: two(
				leased{kind: history.Semaphore, token: 2, from: 10, until: 900},
				leased{kind: history.Semaphore, slot: 1, token: 1, from: 20, until: 900},
			),
			want: []string{"S tokens do not grow"},
		},
		"a stale write": {
			past: begin(none).write("w1.1", 1, 10).write("w2.1", 2, 20).write("w1.1", 1, 30),
			want: []string{"S stale write"},
		},
		"a late write without tokens": {
			past: two(
				leased{from: 10, until: 900},
				leased{from: 1000, until: 1400},
			).add(1100, "w2.1", history.Event{What: history.Accepted, Name: "n", ID: 2}).
				add(1200, "w1.1", history.Event{What: history.Accepted, Name: "n", ID: 1}),
			want: []string{"S stale write"},
		},
		"ticks": {
			past: begin(none).tick(1000, 0, "succeeded").row(1000).tick(2000, 0, "failed").tick(3000, 0, "unknown"),
		},
		"a tick is lost": {
			past: begin(none).tick(1000, 0, "failed").tick(3000, 0, "failed"),
			want: []string{"S a tick is lost"},
		},
		"ticks are skipped": {
			past: begin(none).tick(1000, 0, "failed").tick(2000, 2, "skipped").tick(4000, 0, "failed"),
			want: []string{"S a tick is skipped", "S a tick is skipped"},
		},
		"a tick twice": {
			past: begin(none).tick(1000, 0, "failed").tick(1000, 0, "failed"),
			want: []string{"S a tick twice"},
		},
		"an effect twice": {
			past: begin(none).tick(1000, 0, "succeeded").row(1000).row(1000).fault("flush", "D", "s0", 500, 500),
			want: []string{"S an effect twice"},
		},
		"an effect is lost": {
			past: begin(none).tick(1000, 0, "succeeded"),
			want: []string{"S an effect is lost"},
		},
		"a waiter hangs": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 2, ask: 50, from: 3000, until: 3900, release: 3100},
			),
			want: []string{"S a waiter hangs"},
		},
		"a waiter that waits for a dead holder": {
			past: two(
				leased{token: 1, from: 10, until: 900},
				leased{token: 2, ask: 50, from: 3000, until: 3900, release: 3100},
			).fault("kill", "S", "w1", 20, 1000),
		},
		"a waiter that waits for too long for a dead holder": {
			past: two(
				leased{token: 1, from: 10, until: 900},
				leased{token: 2, ask: 50, from: 5500, until: 6000, release: 5600},
			).fault("kill", "S", "w1", 20, 1000),
			want: []string{"S a waiter hangs"},
		},
		"a waiter for a lock of a request that was withdrawn": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 2, ask: 50, from: 4000, until: 4900, release: 4100},
			).
				fault("connections stuck", "S", "w1", 20, 900).fault("kill", "S", "w9", 2000, 3000),
			want: []string{"S a waiter hangs"},
		},
		"a waiter that is cut off": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 2, ask: 50, from: 5000, until: 5900, release: 5100},
			).fault("cut off", "S", "w2", 200, 4000),
		},
		"a waiter hangs while the machine stalls": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 2, ask: 50, from: 3000, until: 3900, release: 3100},
			).stall(500, 1700),
		},
		"a waiter hangs for longer than the machine stalls": {
			past: two(
				leased{token: 1, from: 10, until: 900, release: 100},
				leased{token: 2, ask: 50, from: 3000, until: 3900, release: 3100},
			).stall(500, 1300).stall(3100, 9000),
			want: []string{"S a waiter hangs"},
		},
		"a call is late while the machine stalls": {
			past: begin(none).call("w1.1", "try", 10, 0, 1700).stall(300, 600),
		},
		"a call is late": {
			past: begin(none).call("w1.1", "try", 10, 0, 1700),
			want: []string{"S a call is late"},
		},
		"a call of a frozen process": {
			past: begin(none).call("w1.1", "try", 10, 0, 1700).fault("freeze", "S", "w1", 20, 900),
		},
		"a wait that does not end with its context": {
			past: begin(none).lease("w2.1", leased{token: 1, from: 5, until: 3000, release: 2800}).
				call("w1.1", "", 10, 1000, 2200),
			want: []string{"S a call is late"},
		},
		"a waiter is passed over": {
			past: begin(queue).lease("w3.1", leased{token: 1, from: 5005, until: 6000, release: 5900}).
				lease("w1.1", leased{token: 3, ask: 5010, from: 6300, until: 6900, release: 6400}).
				lease("w2.1", leased{token: 2, ask: 5800, from: 6000, until: 6900, release: 6100}),
			want: []string{"S a waiter is passed over"},
		},
		"a waiter is passed over during a fault": {
			past: begin(queue).lease("w3.1", leased{token: 1, from: 5005, until: 6000, release: 5900}).
				lease("w1.1", leased{token: 3, ask: 5010, from: 6300, until: 6900, release: 6400}).
				lease("w2.1", leased{token: 2, ask: 5800, from: 6000, until: 6900, release: 6100}).
				fault("freeze", "S", "w1", 5500, 5900),
		},
		"work after its lease": {
			past: begin(none).lease("w1.1", leased{token: 1, from: 10, until: 1800, release: 1700}).
				fault("freeze", "S", "w1", 500, 1600),
			want: []string{"S work after its lease"},
		},
		"a worker fails": {
			past: begin(none).add(10, "w1.1", history.Event{What: history.Exit, Err: "panic"}),
			want: []string{"S a worker failed"},
		},
		"a lock is left": {
			past: begin(none).add(10, "harness", history.Event{What: history.Left, Target: "s0", Err: "a lock"}),
			want: []string{"S something is left"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slices.SortStableFunc(c.past.events, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
			var got []string
			for _, v := range judge.Judge(c.past.events).Violations {
				got = append(got, v.Class+" "+v.Rule)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
