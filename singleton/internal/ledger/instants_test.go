package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Runs wait for their instants, are opened once, and their ids stay known.
func TestInstants(t *testing.T) {
	playAll(t, []scenario{
		{"life of an id", true, `
			a is ttl=1m; o is because=order; o plans x 70 p => no-ledger; keys * =>
			a looks => soon=- coming=0
			o plans x 70 p; o plans x 70 p; o plans x 71 p => conflict; o plans x 70 q => conflict; o plans w 80; o plans y 60.5 q
			a looks => soon=60.5 open=; o asks => soon=- coming=3
			pass 499ms; a looks => open=; pass 1ms; a looks => open=y soon=70 y.attempt=0 y.asked=trigger:o@host:order@60
			redis pttl due => 2592019500
			a claims y => attempt=1 payload=q asked=trigger:o@host:order; a completes y
			entry; o plans y 60.5 q; a looks => open=; o reruns y => succeeded
			pass 9499ms; a looks => open=; pass 1ms; a looks => open=x soon=80
			a claims x => payload=p; a completes x failed boom
			history => x:failed:boom y:succeeded; a reruns x; a looks => open=x
			a claims x => payload=p; a completes x; o reruns x => succeeded
			redis hdel payloads w; pass 10s; a looks => open= soon=-
			history 1 => 80-80*1:skipped:payload_lost; entry => count=1 error=payload_lost id=w last=-946684820000 outcome=skipped tick=-946684820000; redis zcard due => 2`},
		{"a past instant", true, `
			a looks; o plans x 1; o plans y 1; a looks => count=2 open=x,y; a cancels-id y; history 1 => y-60.001*1:skipped:canceled; entry => count=1 error=canceled id=y last=-946684800001 outcome=skipped tick=-946684800001
			o plans y 1; a claims x; a cancels-id x; a looks => x.canceled=cancel:a@60`},
		{"announcements of instants", true, `
			a looks; a watches; o plans x 70; a hears => change; o plans x 70; o plans y 80; a hears =>
			o plans v 69; a hears => change; o plans z 1; a hears => change; o plans zz 1; a hears =>`},
		{"what is said when they are opened", true, `
			a looks; o plans x 60.5; pass 1s; a watches; b looks => open=x; a hears => change
			o plans y 1; a hears => change; redis hdel payloads y; b looks; a hears => -946684801060:false`},
		{"beside a tick", true, `
			a is overlap; a looks; pass 1s; a claims 61; o plans x 1; b looks => open=61,x`},
		{"what waits", true, `
			o is because=order; a looks; pass 1s; o plans x 70 pp; pass 1s; o plans y 80; o asks => pending=x@70:o@host:order:61:2,y@80:o@host:order:62:0`},
		{"a payload is lost", true, `
			a is ttl=1m; a looks; o plans x 60 p; a looks => open=x; redis del payloads; a claims x => recorded
			history => x:unknown:the_server_lost_its_payload; a reruns x => no-run; a looks => open=`},
		{"a payload is lost after an attempt", true, `
			a is ttl=10s dead; b is ttl=10s dead; a looks; o plans x 60 p; a looks => open=x; a claims x => payload=p; pass 20s
			b looks; b claims x => attempt=2 payload=p; redis hdel payloads x; pass 20s; a looks; a claims x => recorded
			a asks => ran=60-100`},
		{"a payload is dropped", true, `
			a looks; o plans x 1 pppp; a looks; redis hstrlen payloads x => 147; a claims x; a completes x; redis hstrlen payloads x => 143`},
		{"canceled before", true, `
			o is because=error; a looks; o plans x 70; o cancels-id x
			history => 60-60*1:skipped:canceled; acts => cancel:60:o@host:error@60; a looks => soon=- open=
			o plans x 70 => canceled; o cancels-id x => not-open; o cancels-id z => not-open`},
		{"paused", true, `
			a looks; o pauses; o plans x 61; redis pttl due => -1; redis pttl payloads => -1; pass 2s
			a looks => open= soon=61; o resumes; redis pttl payloads => 2592000000; a looks => open=x soon=-`},
		{"how long they are kept", true, `
			a looks; redis persist acts; o pauses; o resumes; redis persist acts; o plans x 86460
			ttl job => 744h0m0s; ttl due => 744h0m0s; ttl payloads => 744h0m0s; ttl acts => 744h0m0s
			redis pexpire job 5000; a looks; ttl job => 744h0m0s
			a runs 1; redis persist runs; o plans y 61; ttl runs => 744h0m0s
			o is retains=12000h; o plans v 61 123; ttl job => 744h0m0s; o asks => sizes=3,0,0`},
	})
}

// At most fifty triggered runs are opened for their instants. 10,000 may wait. Ids are forgotten when 10,000 later
// ones were opened, but not within five minutes, nor while their runs are open.
func TestInstantsAreBounded(t *testing.T) {
	inBubble(t, func(e *env) {
		l := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
		open := func() ledger.State {
			e.Helper()
			st, err := l.Open(e.Context(), ledger.State{})
			testenv.Must(e, err)
			st.Open = slices.DeleteFunc(st.Open, func(run ledger.OpenRun) bool { return !run.Triggered })
			return st
		}
		plan := func(id string, in time.Duration) error { return l.TriggerAt(e.Context(), id, open().Now.Add(in), "") }
		st := open()
		e.Pass(time.Second)
		_, err := l.Claim(e.Context(), ledger.RunID{Tick: st.Now.Truncate(time.Second).Add(time.Second)}, st, ledger.ClaimConfig{})
		testenv.Must(e, err)
		for i := range 60 {
			testenv.Must(e, plan(fmt.Sprint("at-", i), 0))
			e.Pass(time.Millisecond)
		}
		st = open()
		if len(st.Open) != 50 || st.Soon.IsZero() {
			e.Fatalf("%d are open, and the next one waits for %v", len(st.Open), st.Soon)
		}
		_, err = l.Trigger(e.Context())
		testenv.Must(e, err)
		for _, run := range st.Open[:2] {
			_, err := l.Cancel(e.Context(), run.RunID)
			testenv.Must(e, err)
		}
		if st = open(); len(st.Open) != 50 {
			e.Errorf("%d are open after two ends and a trigger", len(st.Open))
		}
		due, payloads := e.key(jobName, "due"), e.key(jobName, "payloads")
		fill := func(score string, n int64) {
			e.Helper()
			script := "for i = 1, tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], ARGV[1], 'full-' .. i) end"
			testenv.Must(e, e.Raw.Eval(e.Context(), script+" return 1", []string{due}, score, n).Err())
		}
		waiting := e.Raw.ZCount(e.Context(), due, "0", "+inf").Val()
		fill("1500000000000", 9990)
		for i := range 10 - waiting {
			testenv.Must(e, plan(fmt.Sprint("last-", i), time.Hour))
		}
		testenv.MustIs(e, plan("more", time.Hour), ledger.ErrTriggers)
		status, err := l.Status(e.Context())
		testenv.Must(e, err)
		if c := status.Coming; c.Count != 10_000 || len(c.Runs) != 100 {
			e.Errorf("%d wait, and %d are shown", c.Count, len(c.Runs))
		}
		testenv.Must(e, e.Raw.ZRemRangeByScore(e.Context(), due, "1400000000000", "+inf").Err())
		known := func(id string) bool { return e.Raw.HExists(e.Context(), payloads, id).Val() }
		raise := func(id string, victim int) {
			e.Helper()
			_, err := l.Cancel(e.Context(), st.Open[victim].RunID)
			testenv.Must(e, err)
			testenv.Must(e, plan(id, 0))
			open()
		}
		testenv.Must(e, e.Raw.ZAdd(e.Context(), due, redis.Z{Score: -1, Member: "without a payload"}).Err())
		e.Pass(4 * time.Minute)
		opened := e.Raw.ZCount(e.Context(), due, "-inf", "(0").Val()
		fill("-1500000000000", 10_000-opened-1) // opened later than all others
		e.Pass(2 * time.Minute)
		raise("last", 4)
		if !known("at-0") {
			e.Error("an id is forgotten although 10,000 are known")
		}
		fill("-1500000000000", 10_000)
		raise("late", 6)
		left := e.Raw.ZMScore(e.Context(), due, "at-0", "without a payload").Val()
		if known("at-0") || !known("at-20") || !known("last") || !known("late") || left[0] != 0 || left[1] != 0 {
			e.Error("want the ids of ended runs forgotten, and those of open ones known")
		}
	})
}
