package ledger_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// Runs wait for their instants among the open ones, and their ids stay known.
func TestInstants(t *testing.T) {
	playAll(t, []scenario{
		{"life of an id", true, `
			a is ttl=1m; o is because=order; o plans x 70 p => no-ledger; keys * =>
			a looks => open=
			o plans x 70 p; o plans x 70 p; o plans x 71 p => conflict; o plans x 70 q => conflict; o plans w 80; o plans y 60.5 q
			a looks => y.attempt=0 y.asked=trigger:o@host:order@60 y.due=60.5 y.left=500ms y.held=false x.due=70 w.due=80 count=3; acts =>
			pass 499ms; a claims y => busy open=y left=1ms attempt=0; pass 1ms
			a claims y => attempt=1 payload=q asked=trigger:o@host:order; redis hlen payloads => 2; a completes y; redis hlen payloads => 1
			entry => attempt=1 end=60.5 error= holder=a id=y outcome=succeeded start=60.5 tick=-946684800002 token=a/1
			o plans y 60.5 q; a looks => count=2; o reruns y => succeeded
			pass 9500ms; a claims x => payload=p; a completes x failed boom; redis hlen payloads => 0
			o reruns x; a looks => x.attempt=0 x.due=60; ttl payloads => 720h0m0s
			a claims x => payload=p; a completes x failed boom; o reruns x; a claims x => payload=p; a completes x; o reruns x => succeeded
			history => x:succeeded x:failed:boom x:failed:boom y:succeeded`},
		{"how long an id is known", true, `
			a looks; o plans x 70; ttl tomb:id:x => 24h0m0s
			o cancels-id x; pass 24h; pass 9999ms; o plans x 70; a looks => open=; pass 1ms; o plans x 70; a looks => open=x
			o plans y 1; o cancels-id y; pass 24h; o plans y 1; a looks => open=y,x`},
		{"an id is known while its run is open", true, `
			a looks; o pauses; o plans x 61 p; o plans y 61; pass 25h; o plans x 61 p; o plans x 61 q => conflict; o plans x 62 p => conflict
			o plans y 61; a looks => open=x,y; o cancels-id x; o reruns x; o plans x 62 p; o plans x 62 q => conflict; a looks => open=x,y`},
		{"a past instant", true, `
			a looks; o plans x 1; pass 1ms; o plans y 1; a looks => open=x,y; a cancels-id y
			entry => count=1 error=canceled id=y last=-946684800001 outcome=skipped tick=-946684800001
			o plans y 1; a looks => open=x; a claims x; a cancels-id x; a looks => x.canceled=cancel:a@60.001`},
		// Replicas look at an instant that is later than their next check.
		{"announcements of instants", true, `
			a looks; a watches; o plans x 94.999; a hears => change; o plans y 95.04; a hears =>; o plans x 94.999; a hears =>`},
		{"the order is that of the instants", true, `
			a looks; pass 1s; o plans x 61.5; o plans y 61; b looks => open=y,x
			a claims 61; a completes 61 # a tick does not wait for a later instant
			pass 1s; a claims 62 => earlier open=y; a runs y; a claims 62 => earlier open=x; a runs x; a runs 62`},
		{"beside a tick", true, `
			a is overlap; a looks; pass 1s; a claims 61; o plans x 1; b looks => open=x,61; a claims x`},
		{"a retry before its instant", true, `
			a is ttl=2s; a looks; o plans x 60.5; pass 1s; a claims x; a abandons x 5s; b looks => open=x x.left=5s x.due=60.5
			a claims 61 => earlier open=x; a claims x => busy`},
		{"a payload is lost", true, `
			a is ttl=1m; a looks; o plans x 60 p; redis del payloads; a claims x => recorded
			history => x:unknown:the_server_lost_its_payload; a reruns x => no-run; a looks => open=`},
		// Nothing is half done if the key has another type.
		{"payloads are spoilt", true, `
			a looks; o plans x 60 p; redis copy payloads saved; redis set payloads spoilt
			o cancels-id x => WRONGTYPE; redis exists acts => 0
			redis copy saved payloads replace; a claims x => payload=p
			redis set payloads spoilt; a completes x => WRONGTYPE; a looks => open=x
			redis copy saved payloads replace; a completes x failed boom; redis hlen payloads => 0
			redis set payloads spoilt; o reruns x => WRONGTYPE; a looks => open=; redis exists acts => 0
			redis del payloads; o reruns x; a claims x => payload=p`},
		{"the payloads of a lost job", true, `
			a looks; o plans x 70 p; redis del job; a looks => open=; redis exists payloads => 0`},
		{"a payload is lost after an attempt", true, `
			a is ttl=10s dead; b is ttl=10s dead; a looks; o plans x 60 p; a claims x => payload=p; pass 20s
			b looks; b claims x => attempt=2 payload=p; redis del payloads; pass 20s; a looks; a claims x => recorded
			a asks => ran=60-100`},
		{"canceled before", true, `
			o is because=error; a looks; o plans x 70 p; o cancels-id x; redis exists payloads => 0
			history => x-60*1:skipped:canceled; acts => cancel:x:o@host:error@60; a looks => open= outcome=
			o plans x 70 p; a looks => open=; o cancels-id x => not-open; a claims 1; o cancels-id z => not-open; a completes 1
			o reruns x; a claims x => payload=p; a cancels-id x; a looks => x.canceled=cancel:a@60`},
		{"paused", true, `
			a looks; o pauses; o plans x 61 p; redis pttl job => -1; redis pttl payloads => -1; pass 2s; a claims x => paused
			o triggers y; a runs y; o resumes; redis pttl payloads => 2592000000; a claims x; a abandons x 1s
			o pauses; pass 1s; a runs x # an attempt was made before
			o reruns x => succeeded; o plans z 1; o cancels-id z; o reruns z; a runs z`},
		{"how long they are kept", true, `
			a looks; o plans x 86460 p; ttl job => 744h0m0s; ttl payloads => 744h0m0s
			redis pexpire job 5000; a looks; ttl job => 744h0m0s
			a runs 1; redis persist runs; redis persist acts; o pauses; o resumes; ttl runs => 744h0m0s; ttl acts => 744h0m0s
			o cancels-id x; a looks; ttl job => 720h0m0s; o reruns x; ttl payloads => 720h0m0s`},
		// A hundred may be open, beside those of Trigger and Rerun.
		{"they are bounded", true, `
			redis lpush runs {"tick":"@1","outcome":"failed"} {"tick":"@2","outcome":"failed"}; a looks
			100x o plans at-# 3660
			o plans more 3660 => triggers; o reruns 1
			99x o triggers y
			o reruns 2 => triggers; o triggers y; o triggers y => triggers; o cancels-id at-50; o plans more 3660`},
	})
}

// A job may have more open runs than the arguments that a Lua function takes.
func TestManyOpenRuns(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	l := e.jobLedger(e.Client("a"), ledger.Config{AllowOverlap: true})
	st := e.opened(l)
	var ticks strings.Builder
	fields := []any{"open", ""}
	for i := range 9000 {
		tick := strconv.FormatInt(st.Last.Add(-time.Duration(i)*time.Second).UnixMilli(), 10)
		ticks.WriteString(" " + tick)
		fields = append(fields, "open:"+tick, `{"run":"","holder":"h","attempt":"1","token":"5","start":"1","til":"0"}`)
	}
	fields[1] = ticks.String()
	testenv.Must(e, e.Raw.HSet(e.Context(), e.key("job/draw", "job"), fields...).Err())
	st, err := l.Open(e.Context(), ledger.State{})
	testenv.Must(e, err)
	if len(st.Open) != 9000 {
		e.Errorf("%d runs are open", len(st.Open))
	}
	run, err := l.Claim(e.Context(), st.Open[8999].RunID, st, time.Time{})
	testenv.Must(e, err)
	testenv.Must(e, run.Complete(e.Context(), ledger.OutcomeSucceeded, ""))
}
