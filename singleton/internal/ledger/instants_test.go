package ledger_test

import (
	"fmt"
	"testing"
	"time"

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
			history 1 => 80-80*1:skipped:payload_lost; redis zcard due => 2`},
		{"a past instant", true, `
			a looks; o plans x 1; o plans y 1; a looks => count=2 open=x,y; a cancels-id y; history 1 => y-60.001*1:skipped:canceled
			o plans y 1; a claims x; a cancels-id x; a looks => x.canceled=cancel:a@60`},
		{"announcements of instants", true, `
			a looks; a watches; o plans x 70; a hears => change; o plans x 70; o plans y 80; a hears =>
			o plans v 69; a hears => change; o plans z 1; a hears => change; o plans zz 1; a hears => change`},
		{"an instant that is now", true, `
			a looks; a watches; o plans x 1; a hears => change; o plans y 60.02; a hears => change`},
		{"a payload is lost", true, `
			a is ttl=1m; a looks; o plans x 60 p; a looks => open=x; redis del payloads; a claims x => recorded
			history => x:unknown:the_server_lost_its_payload; a reruns x => no-run; a looks => open=`},
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
		l := e.jobLedger(e.Client("a"), ledger.Config{})
		open := func() ledger.State {
			e.Helper()
			st, err := l.Open(e.Context(), ledger.State{})
			testenv.Must(e, err)
			return st
		}
		plan := func(id string, in time.Duration) error { return l.TriggerAt(e.Context(), id, open().Now.Add(in), "") }
		open()
		for i := range 60 {
			testenv.Must(e, plan(fmt.Sprint("at-", i), 0))
			e.Pass(time.Millisecond)
		}
		st := open()
		if len(st.Open) != 50 || st.Soon.IsZero() {
			e.Fatalf("%d are open, and the next one waits for %v", len(st.Open), st.Soon)
		}
		_, err := l.Trigger(e.Context())
		testenv.Must(e, err)
		for _, run := range st.Open[:2] {
			_, err := l.Cancel(e.Context(), run.RunID)
			testenv.Must(e, err)
		}
		if st = open(); len(st.Open) != 50 {
			e.Errorf("%d are open after two ends and a trigger", len(st.Open))
		}
		due, payloads := e.key(jobName, "due"), e.key(jobName, "payloads")
		fill := func(score string) {
			e.Helper()
			script := "for i = 1, 9990 do redis.call('ZADD', KEYS[1], ARGV[1], 'full-' .. i) end"
			testenv.Must(e, e.Raw.Eval(e.Context(), script+" return 1", []string{due}, score).Err())
		}
		waiting := e.Raw.ZCount(e.Context(), due, "0", "+inf").Val()
		fill("1500000000000")
		for i := range 10 - waiting {
			testenv.Must(e, plan(fmt.Sprint("last-", i), time.Hour))
		}
		testenv.MustIs(e, plan("more", time.Hour), ledger.ErrTriggers)
		testenv.Must(e, e.Raw.ZRemRangeByScore(e.Context(), due, "1400000000000", "+inf").Err())
		known := func(id string) bool { return e.Raw.HExists(e.Context(), payloads, id).Val() }
		raise := func(id string, victim int) {
			e.Helper()
			_, err := l.Cancel(e.Context(), st.Open[victim].RunID)
			testenv.Must(e, err)
			testenv.Must(e, plan(id, 0))
			open()
		}
		fill("-1500000000000") // opened later than all others
		e.Pass(4 * time.Minute)
		raise("early", 5)
		if !known("at-0") {
			e.Error("an id is forgotten within five minutes")
		}
		e.Pass(2 * time.Minute)
		raise("late", 6)
		if known("at-0") || !known("at-20") || !known("early") || !known("late") {
			e.Error("want the ids of ended runs forgotten, and those of open ones known")
		}
	})
}
