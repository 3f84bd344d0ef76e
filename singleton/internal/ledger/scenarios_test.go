package ledger_test

import (
	"fmt"
	"strings"
	"testing"
)

// Ticks and triggers are claimed, retried, abandoned, completed and skipped.
func TestRuns(t *testing.T) {
	playAll(t, []scenario{
		{"life of a tick", true, `
			a is ttl=3s; b is ttl=3s; b looks
			a claims 1 => attempt=1 unsure=false ok=- asked=
			b claims 1 => busy open=1 holder=a attempt=1 left=3s
			b claims 2 after 1 => busy open=1
			b claims 3660 => early left=1h0m0s
			pass 4500ms
			a looks => last=1 open=1 1.holder=a/1 1.attempt=1 1.held=true
			a completes 1; a notices 1 => released=true
			a completes 1; a abandons 1 => not-held
			b claims 1 => done; b claims 3 => stale last=1
			keys tomb:* =>
			b looks => last=1 ok=1 open= ran=60-64.5 outcome=succeeded
			b skips 2-4 missed; b claims 5 => ok=1; b completes 5 failed boom
			history => 5:failed:boom 2-4*3:skipped:missed 1:succeeded`},
		// Skips with one reason are one entry, unless a run is between them.
		{"skips", false, `
			a skips 1-3 missed; a skips 1-3 missed after 0 => done; a looks => rescheduled=-
			a skips 4 missed; a skips 5 overlap; a skips 6 overlap
			a claims 7; a skips 8-9 overlap; a completes 7
			a skips 4-12 missed after 3 => stale; a skips 4-7200 missed after 9 => early
			history => 7:succeeded 8-9*2:skipped:overlap 5-6*2:skipped:overlap 1-4*4:skipped:missed`},
		{"refusals of no ledger, of a paused job and after skips", false, `
			b looks; a skips 1 missed; b claims 1 => done last=1; a pauses; a skips 2 missed => paused; a resumes
			a is overlap; a looks; a claims 2; a claims 3; a completes 2; b claims 2 => done last=-; a completes 3; b claims 3 => done last=3
			redis hset job id 7; b claims 3 => done last=-
			flush; a claims 3 => no-ledger; a skips 3 missed => no-ledger`},
		{"a tombstone ends", true, `a claims 1; a abandons 1; ttl tomb:* => 5m0s`},
		{"skips up to now", true, `a skips 1-60 missed`},
		{"a skip whose reply is lost", true, `a looks; a loses job_skip 1; a skips 1-3 missed; history => 1-3*3:skipped:missed`},
		{"history is bounded", false, `
			a is keeps=3
			a runs 1; a runs 2; a runs 3; history => 3:succeeded 2:succeeded 1:succeeded
			a runs 4; a runs 5; a runs 6; history => 6:succeeded 5:succeeded 4:succeeded`},
		{"early to the microsecond", true, `
			a looks; pass 59s
			a claims 120 => early left=1s; a skips 119-120 missed => early left=1s
			pass 999ms
			a claims 120 => early left=1ms; a skips 119-120 missed => early left=1ms
			pass 1us
			a claims 120 => early left=999µs; a skips 119-120 missed => early left=999µs
			pass 998us
			a claims 120 => early left=1µs; a skips 119-120 missed => early left=1µs
			pass 1us
			a runs 120`},
		{"tick and trigger of one instant", true, `
			a triggers x
			2x a claims 60; a abandons 60; a claims x; a abandons x`},
		// A tick that began in time can be taken over later.
		{"last instant", true, `
			a claims 1 until 59.999 => late
			a claims 1 until 60; a abandons 1
			pass 1s
			a claims 1 until 60; a completes 1`},
		// The ledger was set back behind the runs.
		{"triggers are no ticks", false, `
			a triggers x; a claims x; a asks => last=0 ok=-
			a completes x; a asks => last=0 ok=-
			a runs 1`},
		{"triggers are bounded", true, `
			a claims 1
			100x a triggers x
			a looks => count=101; a triggers x => triggers`},
		// A run keeps every attempt with its error and its end, whether its holder retried, released or died.
		{"attempts", true, `
			a is ttl=1s dead attempts=9; b is ttl=1s dead attempts=9; c is ttl=1s dead attempts=9
			a claims 1; tries =>
			pass 100ms; a fails 1 boom1; pass 50ms; a retries 1; tries => 1:a/1:60-60.1:boom1
			pass 100ms; a fails 1 boom2; pass 100ms; a retries 1; tries => 1:a/1:60-60.1:boom1 2:a/2:60.15-60.25:boom2
			pass 100ms; a fails 1 boom3; a abandons 1
			b claims 1; pass 2s; c claims 1; c unlocks 1
			c claims 1; c withdraws 1; c claims 1; pass 10ms; c completes 1
			attempts => 1:a/1:60-60.1:boom1 2:a/2:60.15-60.25:boom2 3:a/3:60.35-60.45:boom3 4:b/4:60.45-61.45:its_holder_died 5:c/5:62.45-62.45:its_holder_released_the_run_without_an_outcome 6:c/7:62.45-62.46`},
		{"attempts are bounded", true, `
			a is attempts=14
			a claims 1
			13x a fails 1 x; a retries 1
			a completes 1 failed y
			attempts => 1:a/1:60-60:x 5:a/5:60-60:x 6:a/6:60-60:x 7:a/7:60-60:x 8:a/8:60-60:x 9:a/9:60-60:x 10:a/10:60-60:x 11:a/11:60-60:x 12:a/12:60-60:x 13:a/13:60-60:x 14:a/14:60-60:y`},
		// Between two attempts nobody holds a run. It blocks later ticks, and no earlier ones.
		{"pauses between attempts", true, `
			a is attempts=3; one is attempts=1; all is overlap
			a claims 2; pass 100ms; a fails 2 boom; a abandons 2 5s; a abandons 2 5s => not-held
			record 2 => attempt=1 holder=a run= start=60 til=65.1 token=a/1 ttl=5000
			b looks => open=2 2.held=false 2.left=5s; b claims 2 => busy left=5s; b claims 3 => earlier open=2; all runs 4
			redis lpush runs {"tick":"@1","outcome":"failed"}; b reruns 1; b runs 1 => attempt=1 asked=rerun:b
			clock -1h; b claims 2 => busy left=5s; pass 4999ms; b claims 2 => busy left=1ms
			pass 1ms; b claims 2 => attempt=2 unsure=false; b fails 2 bang; b abandons 2 1s; pass 1s; one claims 2 => recorded
			clock 1h; history 1 => 2:failed:bang
			b looks; b claims 5; b doubts 5; b fails 5 boom; b abandons 5; o cancels all => canceled=5
			history 1 => 5:unknown:canceled_its_holder_died_or_released_it
			b looks; b claims 6; b fails 6 boom; b abandons 6 1h; o cancels all => canceled=6
			pass 1s; history 1 => 6:failed:canceled_boom; b asks => ran=66.1-66.1`},
		// A failure is unknown if a holder died before. The replies to the claims are lost.
		{"failures after a crash", true, `
			dead is ttl=2s dead; b is ttl=6s
			a claims 1; a abandons 1
			b loses job_claim 1; b claims 1 => attempt=2 unsure=false; b retries 1; b abandons 1; b claims 1 => unsure=false
			2x b completes 1 failed boom
			dead claims 2; pass 2100ms
			b loses job_claim 1; b claims 2 => attempt=2 unsure=true dead=dead
			2x b completes 2 failed boom
			dead claims 3; pass 2100ms
			b claims 3 => unsure=true; b retries 3; b completes 3 failed boom
			dead claims 4; pass 2100ms
			b claims 4 => unsure=true; b abandons 4; b claims 4 => unsure=true; b completes 4 failed boom
			dead claims 5; pass 2100ms
			b claims 5 => unsure=true; b retries 5; b abandons 5; b claims 5 => attempt=4 unsure=true; b completes 5
			history => 5:succeeded 4:unknown:boom 3:unknown:boom 2:unknown:boom 1:failed:boom`},
		// A failure is unknown if an earlier holder may have had its effect.
		{"who leaves doubt", false, `
			a claims 1; a withdraws 1
			2x b claims 1 => unsure=false; b abandons 1
			b runs 1 failed boom
			a claims 2; a abandons 2
			2x b claims 2 => unsure=false; b abandons 2
			b runs 2 failed boom
			a claims 3; a retries 3; a abandons 3
			2x b claims 3 => unsure=false; b abandons 3
			b runs 3 failed boom
			a claims 4; a doubts 4; a abandons 4
			2x b claims 4 => unsure=true; b abandons 4
			b runs 4 failed boom
			a claims 5; a doubts 5; a retries 5; a abandons 5
			2x b claims 5 => unsure=true; b abandons 5
			b runs 5 failed boom
			a claims 6; a unlocks 6
			2x b claims 6 => unsure=true; b abandons 6
			b runs 6 failed boom
			a claims 7; a closes
			2x b claims 7 => unsure=true; b abandons 7
			b runs 7 failed boom
			history => 7:unknown:boom 6:unknown:boom 5:unknown:boom 4:unknown:boom 3:failed:boom 2:failed:boom 1:failed:boom`},
		// A completion is known from the history by its own token, and leaves no key.
		{"repeated completions", true, `
			a runs 1; a completes 1; keys tomb:* =>
			a completes 1 failed boom => superseded
			dead is ttl=2s dead attempts=1; b is attempts=1
			dead claims 2; pass 2100ms
			a claims 2; a completes 2; dead completes 2 => superseded; a completes 2
			dead claims 3; pass 2100ms
			b claims 3 => recorded; dead completes 3 => superseded; dead completes 3 failed late => superseded
			history => 3:unknown:its_holder_died_or_released_it 2:succeeded 1:succeeded`},
		{"completions of two ticks", false, `
			a is overlap
			a claims 1; a claims 2; a completes 1 failed $2
			redis hdel job open open:@2; a completes 2 failed => superseded; a completes 1 failed $2`},
		{"damaged history", false, `
			a runs 1; redis lpush runs nonsense; a completes 1
			redis lpush runs nonsense; a looks; a skips 2 missed; redis llen runs => 4
			redis lpush runs 5; a looks; a skips 3 missed; redis llen runs => 6
			redis lpush runs ''; a looks; a skips 4 missed; redis llen runs => 8`},
		// An older schema is upgraded, the next one keeps its fields, and a later one is refused.
		{"schemas", false, `
			a claims 1; redis hset job v 0; a looks; redis hget job v => 1
			redis hset job v 2 later kept; a completes 1; a looks; a runs 2
			redis hmget job v later => 2 kept
			redis hset job v 3
			a looks => newer-schema; a asks => newer-schema; a claims 3 => newer-schema; a skips 3 missed => newer-schema
			a pauses => newer-schema; a resumes => newer-schema; a triggers x => newer-schema
			a cancels 1 => newer-schema; a reruns 1 scheduled => newer-schema`},
		{"records", true, `
			a triggers x
			record x => attempt=0 holder= run= start=60 til=0 token=
			r is ttl=3s; r claims 1; redis hget job ttl => 3000
			record 1 => attempt=1 def=d holder=r run=* start=60 til=63 token=r/1 ttl=3000
			pass 1s; record 1 => attempt=1 def=d holder=r run=* start=60 til=64 token=r/1 ttl=3000
			r completes 1 failed boom
			entry => attempt=1 end=61 error=boom holder=r outcome=failed start=60 tick=1 token=r/1
			a reruns 1; record 1 => attempt=0 holder= run= start=61 til=0 token=
			a claims 1; a doubts 1; a completes 1 failed boom
			a reruns 1; record 1 => attempt=0 holder= run= start=61 til=0 token= unsure=1
			anew; pass 700ms; r claims 1; pass 1s
			record 1 => attempt=1 def=d holder=r run=* start=60.7 til=64.7 token=r/3 ttl=3000`},
		// A run ends when its work has returned, unless the clock was set back.
		{"ends of work", true, `
			a claims 1; pass 300ms; a returns 1; pass 700ms; a completes 1; a asks => ran=60-60.3 outcome=succeeded
			anew; a claims 1; a returns 1; pass 1s; a completes 1; a asks => ran=60-60
			anew; a claims 1; pass 1s; clock -1ms; a returns 1; a completes 1; a asks => ran=60-60.999
			anew; a claims 1; pass 300ms; a returns 1; pass 700ms; clock 1h; a completes 1; a asks => ran=60-60.3
			anew; a claims 1; pass 300ms; a returns 1; pass 700ms; clock -1h; a completes 1; a asks => ran=60-60`},
		// The keys of a job do not outlive it in its last millisecond.
		{"last millisecond of a ledger", true, `
			a claims 1; redis pexpire job 1; pass 500us; a completes 1
			pass 1m; redis exists job runs => 0`},
		// Replicas need not look when an attempt begins.
		{"announcements", false, `
			w watches
			a claims 1; w hears => change begin
			a retries 1; w hears => change begin
			a abandons 1; w hears => change
			a runs 1; w hears => begin 1:true
			a runs 2 failed boom; w hears => begin 2:false
			a skips 3 missed; w hears => 3:false
			a pauses; w hears => change
			a resumes; w hears => change
			a triggers x; w hears => change
			a runs x; w hears => begin x:true
			a triggers y; w hears => change
			a cancels y; w hears => y:false
			a claims 4; w hears => begin
			a cancels 4; w hears => change
			a abandons 4; w hears => change
			a claims 4 => recorded; w hears => 4:false
			a looks; a claims 5; a abandons 5; w hears => begin change
			a cancels 5; w hears => 5:false
			a pauses; a looks; w hears => change
			redis hdel job paused control; a looks => paused=true; w hears => change`},
		{"the end of a dead run is announced", true, `
			dead is ttl=2s dead; b is attempts=1
			w watches; dead claims 1; w hears => change begin
			pass 3s; b claims 1 => recorded; w hears => 1:false`},
		{"refusal by a rerun", false, `
			b looks; a runs 1 failed boom; a reruns 1; a looks; a claims 1; b claims 1 => busy; b learns 0s => all=false`},
		{"refusals by other runs", true, `
			a runs 1; b looks; a claims 2; b claims 3 => busy open=2 last=2
			o is overlap; o claims 4; b claims 5 => busy last=-
			anew; a looks; b looks; a claims 1; b claims 2 => busy open=1 last=1; redis hset job id 7; b claims 2 => busy open=1 last=-`},
		{"a claim whose answer is lost has the whole lease", true, `a looks; b looks; a loses job_claim 1; a claims 1; a breaks; pass 9s; b claims 1 => busy`},
		// A refusal tells a replica the state of the job if nothing else has changed.
		{"refusals", false, `
			a is overlap; b is overlap
			b looks; a claims 1
			b claims 1 => busy; b learns 1m => all=true last=1 fresh=false open=1 1.attempt=1
			a completes 1; b claims 1 => done; b learns 0s => all=true last=1 open= ok=1
			b claims 2; a looks
			a claims 3; b claims 1 => done; b learns 0s => all=false; a completes 3 failed boom
			a looks; a claims 4; b claims 2 => busy; b learns 0s => all=false; a completes 4 failed boom
			b completes 2
			ann reruns 4; a looks; a claims 4; b looks; b claims 4 => busy; b learns 0s => all=true
			a completes 4; c knows 4; c claims 1 after 4 => done; c learns 0s => all=false`},
		// It lasts from the begin of its first attempt. Entries of skipped ticks are passed over, but not many.
		{"the newest run", true, `
			a is attempts=9; dead is ttl=2s dead; a looks => ran=-
			a claims 1; pass 20ms; a retries 1; pass 20ms; a completes 1; a asks => ran=60-60.04
			pass 1s; a triggers x; a runs x; a looks => ran=61.04-61.04
			a skips 2 missed; a skips 3 overlap; a skips 4 missed; a looks => ran=61.04-61.04
			a skips 5 overlap; a looks => ran=-
			anew; dead claims 1; pass 2100ms; a runs 1; a asks => ran=60-62.1`},
		// A dead holder holds a run until its lease ends, and a released run is held until the last sign of life.
		{"until when runs are held", true, `
			h is ttl=1s dead; r is ttl=1s; one is ttl=1s attempts=1
			h claims 1; pass 1h; one claims 1 => recorded; one asks => ran=60-61
			anew; h claims 1; h abandons 1; pass 1h; one claims 1 => recorded; one asks => ran=60-60
			anew; r claims 1; pass 9900ms; r abandons 1; pass 1h; one claims 1 => recorded; one asks => ran=60-69.9
			anew; r claims 1; pass 9900ms; r breaks; pass 1h; one claims 1 => recorded; one asks => !ran=- !ran=60-61 !ran=60-69.9`},
	})
}

// Operators pause, resume, cancel, trigger and run again.
func TestOperators(t *testing.T) {
	playAll(t, []scenario{
		// A rerun may have taken effect before it began, and still may after it was canceled.
		{"cancel of a rerun of an unknown outcome", true, `
			one is attempts=1 ttl=2s dead; one claims 1; pass 2s; one claims 1 => recorded; one reruns 1; one cancels 1
			history 1 => 1:unknown:canceled_its_holder_died_or_released_it; attempts =>; a asks => ran=62-62
			one reruns 1; one runs 1 failed boom; history 1 => 1:unknown:boom`},
		// Acts that change nothing are not recorded. The acts live as long as the job.
		{"acts", true, `
			a is ttl=1m; ann is because=bug
			a claims 1; acts =>
			ann resumes; redis exists acts => 0
			ann pauses; pass 1s; a pauses; a looks => since=60 by=ann@host:bug
			acts => pause::ann@host:bug@60; ttl acts => 0s; redis pttl acts => -1
			ann resumes; acts => resume::ann@host:bug@61 pause::ann@host:bug@60; ttl acts => 720h0m0s
			a looks => halted=60-61 by=ann@host:bug
			redis persist acts; ann cancels 1 => canceled=1; ann cancels 1 => canceled=1
			acts 2 => cancel:1:ann@host:bug@61 resume::ann@host:bug@61; ttl acts => 720h0m0s
			a asks => 1.canceled=cancel:ann@host:bug@61; a completes 1 failed stopped
			redis persist acts; ann reruns 1; ann reruns 1 => not-ended; a asks => 1.asked=rerun:ann@host:bug@61
			acts 2 => rerun:1:ann@host:bug@61 cancel:1:ann@host:bug@61; ttl acts => 720h0m0s
			redis persist acts; ann triggers x
			acts 2 => trigger:x:ann@host:bug@61 rerun:1:ann@host:bug@61; ttl acts => 720h0m0s
			ann cancels x => canceled=x
			acts 2 => cancel:x:ann@host:bug@61 trigger:x:ann@host:bug@61; redis llen acts => 6
			ann pauses; redis pexpire acts 5000; ann triggers y; redis pttl acts => -1`},
		{"acts are bounded", true, `
			a claims 1
			51x a pauses; a resumes
			redis llen acts => 100; acts 1 => resume::a@60`},
		// The ledger keeps its own retention. What changes nothing creates nothing.
		{"pause and resume", false, `
			o pauses => no-ledger; o resumes => no-ledger; keys * =>
			a is retains=12000h
			a claims 1; o resumes; a looks => halted=-
			o pauses; a looks => paused=true; redis pttl job => -1
			o resumes; ttl job => 12000h0m0s; a looks => paused=false !halted=-
			a completes 1; ttl runs => 12000h0m0s`},
		// A job is forgotten when no replica runs it. Its tokens stay greater, and no earlier tick runs.
		{"forget", true, `
			o forgets => no-ledger; a is def=d ttl=1m; late is def=d; a looks; a pauses; a plans x 400
			o forgets => running; a resumes; a runs 1; a claims 2; o forgets => running on=a; a leaves; o forgets => running; a completes 2
			watch watches; o forgets; watch hears => change; keys * => noonlock:{job/draw}:fence noonlock:{job/draw}:tomb:id:x
			o forgets => no-ledger; late knows nothing; late looks => fresh=true acts=true !last=0; history =>; late claims 2 => done
			a plans x 400; late looks => x.due=400; o cancels-id x
			pass 89s; o forgets => running; pass 1s; o loses job_forget 1; o forgets; o forgets => no-ledger`},
		// A replica that was cut off is not one of the live ones. When it returns, it restores what it knows.
		{"forget beside a replica that returns", true, `
			a is def=d; a looks; a runs 30; a looks; pass 90s; o forgets; a looks => lost=true last=30; a claims 30 => done`},
		{"when a pause began", true, `
			a looks => halted=-
			a pauses; pass 20ms; a pauses; a looks => since=60 halted=-
			a resumes; pass 20ms; a resumes; a asks => halted=60-60.02
			a pauses; pass 20ms; a looks => since=60.04 halted=-
			a resumes; a asks => halted=60.04-60.06`},
		// The holder of a canceled run learns it from a renewal, and keeps the lease.
		{"cancel of a held run", false, `
			a is ttl=12s renewed=100ms; ann is because=bug
			a claims 1; ann cancels all => canceled=1; b cancels 1 => canceled=1
			a notices 1 => canceled=ann@host:bug held=true
			a asks => 1.by=cancel:ann@host:bug 1.held=true
			a completes 1 failed stopped; ann cancels 1 => not-open`},
		// A canceled run does not run again. The operator does not shorten the history.
		{"cancel of a run without holder", true, `
			a is keeps=1000
			110x redis lpush runs {"tick":"1","outcome":"succeeded"}
			a claims 1; o cancels 1; a abandons 1 1h; a claims 1 => recorded
			history 1 => 1:failed:canceled_its_holder_released_the_run_without_an_outcome
			a looks; a claims 2; o cancels 2; a withdraws 2; a claims 2 => recorded; history 1 => 2:failed:canceled_its_holder_released_it
			a looks; a claims 3; a abandons 3; o cancels all => canceled=3; a looks => open=
			history 1 => 3:failed:canceled_its_holder_released_the_run_without_an_outcome
			a triggers x; o cancels all => not-open; o cancels x => canceled=x; a looks => open=; history 1 => x-60*1:skipped:canceled
			redis llen runs => 114; a reruns x`},
		{"cancel after its holder died", true, `
			dead is ttl=2s dead
			dead claims 1; pass 2100ms; o cancels 1
			attempts => 1:dead/1:60-62:its_holder_died; a asks => ran=60-62`},
		// A rerun has its own attempts and a new token, and does not wait for the end of a pause.
		{"rerun", false, `
			a is attempts=2 because=fixed
			a reruns 1 scheduled => no-ledger; a looks; a reruns 1 scheduled => no-run
			a runs 2 failed boom; a pauses
			a reruns 2; a reruns 2 => not-ended; a looks => open=2 2.attempt=0 2.requested=rerun:a@host:fixed
			a claims 2 => attempt=1 asked=rerun:a@host:fixed; a reruns 2 => not-ended
			a abandons 2; a claims 2 => attempt=2 asked=rerun:a@host:fixed
			a completes 2 failed again; a reruns 2; a runs 2; a reruns 2 => succeeded
			history => 2:succeeded 2:failed:again 2:failed:boom`},
		{"rerun of an unknown outcome", false, `
			a claims 1; a doubts 1; a completes 1 failed boom; a reruns 1; a runs 1 failed again => unsure=true
			history => 1:unknown:again 1:unknown:boom; a looks; a runs 2; a reruns 1; a runs 1; a looks => ok=2`},
		// Of ticks that were skipped together, the caller must know which are ticks.
		{"rerun of skipped ticks", false, `
			a is overlap
			a looks; redis lpush runs {"tick":"1","token":"@0.999@999","outcome":"failed"}
			a skips 1-5 missed
			a reruns 0.999 scheduled => no-run; a reruns 5.001 scheduled => no-run; a reruns 3 => no-run
			a reruns 3 scheduled; a reruns 1; a reruns 5; a looks => count=3 last=5`},
		// The history is read in pages of a hundred, from the newest entry on.
		{"reruns in long histories", true, `
			a looks
			250x redis rpush runs {"tick":"@#","outcome":"failed"}
			a reruns 0; a reruns 1; a reruns 99; a reruns 100; a reruns 101; a reruns 199; a reruns 200; a reruns 249; a reruns 250 => no-run
			anew; a looks
			101x redis rpush runs {"tick":"@#","outcome":"failed"}
			a reruns 99; a reruns 100; a reruns 101 => no-run
			anew; a looks
			100x redis rpush runs {"tick":"@#","outcome":"failed"}
			a reruns 99; a reruns 100 => no-run`},
		// A rerun whose reply is lost is one rerun.
		{"reruns are bounded", true, `
			a runs 1 failed boom; a runs 2 failed boom; a runs 3 failed boom
			a loses job_rerun 1; a reruns 1
			a loses job_claim 1; a claims 1 => asked=rerun:a; a withdraws 1
			98x b triggers x
			a reruns 2; a reruns 3 => triggers`},
		// A replica does not end a rerun that it does not know. The lost ledger continues after the newest tick.
		{"rerun and loss", false, `
			a runs 1 failed boom; a runs 2; a looks; b reruns 1; a looks => open=1
			flush; a looks => last=2`},
	})
}

// The server has lost data.
func TestLosses(t *testing.T) {
	playAll(t, []scenario{
		// A replica that repairs the ledger notifies the others.
		{"repairs are announced", false, `
			a claims 1; redis copy job saved; a completes 1; a looks
			w watches
			redis copy saved job replace; a looks => open=; w hears => 1:false
			flush; w knows nothing; w looks; w hears => change
			a looks => last=1; w hears => change`},
		{"a ledger is repaired once", true, `
			a knows nothing; a looks => last=60 begun=60 fresh=true
			b knows 0; b looks => last=0; b runs 60
			c knows 0; c looks => last=60 fresh=false; c claims 60 => done`},
		{"the begin of a ledger is known to be it", true, `
			a knows nothing; a looks => begun=60; b knows 60; b looks => begun=60 last=60`},
		{"little is known of a ledger", true, `
			a looks => ttl=10s; redis hdel job id spec control outcome ttl born def; a asks => schedule= outcome= acting= ttl=0s begun=-`},
		{"begin of a ledger", true, `
			a knows nothing; a looks => last=60 begun=60 fresh=true
			pass 20ms; a runs 60.01; a looks => begun=60 fresh=false
			flush; a looks => last=60.01 begun=- fresh=false settling=3s; pass 1s; a asks => settling=2s`},
		// A ledger that is repaired is another one. What less is known of, or not for sure, repairs nothing.
		{"identity of a ledger", true, `
			a runs 1; b looks; a runs 2; b looks => last=2 lost=false
			a looks => lost=false; n knows 5; n looks => last=2; a looks => lost=false last=2
			pass 1ms; redis hset job last @1; a looks => lost=true last=2; a looks => lost=false`},
		// The server has evicted the state of a job, and nothing else. Its run is attempted again.
		{"ledger without its job", false, `
			a claims 1; a looks; redis del job; a completes 1 => superseded; a looks => last=0.999 open=
			a claims 1 => attempt=1; a completes 1; history => 1:succeeded`},
	})
}

// Replicas of several definitions look, and one definition acts.
func TestDefinitions(t *testing.T) {
	playAll(t, []scenario{
		// A new definition acts when it has waited, and at once when the last replica of the other one leaves.
		{"the newest acts", true, `
			one is def=1; two is def=2; again is def=1
			one looks => acts=true; one runs 0.5; pass 1m; one looks => acts=true
			two looks => acts=false again=5s; two claims 0.5 => acts-no-more; pass 4999ms; two looks => acts=false again=1ms; pass 1ms; two looks => acts=true
			one claims 1 => acts-no-more; one skips 1 missed => acts-no-more; one looks => acts=false
			3x again looks => acts=false; one looks => acts=false; two looks => acts=true; pass 5s
			two runs 1; two leaves
			one looks => acts=true; again looks => acts=true; one looks => replicas=2 others=0`},
		// All replicas were away. Until one of them is proven again, the definition stays.
		{"replicas that were away", true, `
			one is def=1; two is def=2
			one looks => acts=true; pass 1m; two looks => acts=false; pass 5s; two looks => acts=true; one looks => acts=false
			pass 4m; one looks => acts=false acting=2; pass 1s; two looks => acts=true; pass 4s; one looks => acts=true
			pass 1s; two looks => acts=true; one looks => acts=false`},
		{"a start whose answers are lost counts once", true, `
			old is def=1; new is def=2
			old loses job_open 0
			3x old looks => unknown
			old heals; new looks => acts=false; old looks => acts=true replicas=1 others=1`},
		// It keeps its first request.
		{"a replica gets another definition", true, `
			one is def=1; alike is def=1; one looks => acts=true; pass 1m; alike looks => acts=true; alike watches
			one becomes def=2; one looks => acts=true replicas=1 others=1; alike hears => change change; alike looks => acts=false
			alike becomes def=2; alike looks => acts=true replicas=2 others=0; pass 10s
			one becomes def=2 keeps=5; one looks => acts=true replicas=2 others=0; alike leaves
			one loses job_open 1; one becomes def=3; one looks => acts=true; one looks => acts=true replicas=1 others=0
			new is def=4; new looks => acts=false; pass 4s; new becomes def=5; new looks => acts=false; pass 999ms
			new looks => acts=false; pass 1ms; new looks => acts=true; one looks => acts=false
			one becomes def=6; one looks => acts=true; one leaves; new looks => acts=true`},
		// A death makes its definition new, once, if another one is proven, which acts at once.
		{"a holder dies", true, `
			old is def=1 ttl=2s; new is def=2 ttl=2s dead; more is def=2 ttl=2s; old watches
			old looks; pass 1m; old looks => acts=true; new looks => acts=false; pass 5s; new looks => acts=true; old looks => acts=false
			more looks => acts=true; old hears => change change change change
			new claims 1; pass 1999ms; old looks => acts=false acting=2; more claims 1 => busy; pass 1ms
			new claims 1 => acts-no-more; more looks => acts=false acting=1; new claims 1 => acts-no-more
			old looks => acts=true 1.attempt=1; old claims 1 => attempt=2 unsure=true dead=new; old completes 1
			pass 4999ms; new looks => acts=false; more looks => acts=false; old hears => begin change begin 1:true
			old looks; pass 1ms; new looks => acts=true; old looks => acts=false
			new claims 2; pass 1999ms; old looks => acts=false; pass 1ms; old looks => acts=true; old looks => acts=true
			pass 5s; more looks => acts=true; old looks => acts=false; more claims 2 => attempt=2
			more abandons 2; old looks => acts=false; more looks => acts=true; more runs 2 => attempt=3
			new claims 3; pass 2s; new loses job_claim 1; new claims 3 => acts-no-more; more looks => acts=false; old looks => acts=true`},
		{"a holder dies beside replicas that are new", true, `
			one is def=1 ttl=2s dead; two is def=2; none is def=2 ttl=2s dead
			one looks; pass 1m; one claims 1; two looks => acts=false; pass 3s; two looks => acts=false
			one claims 1 => attempt=2; pass 2s; two looks => acts=true; two claims 1 => attempt=3; two completes 1
			one looks => acts=false; one leaves; two leaves
			none claims 2; one looks => acts=false; pass 5s; one looks => acts=true; two looks; pass 5s; two looks => acts=true
			one looks => acts=false; two claims 2 => attempt=2; two completes 2
			two is def=2 ttl=2s dead; two looks => acts=true; pass 6s; two looks; pass 10s; two looks; one looks => acts=false
			two claims 3; pass 2s; one looks => acts=false; two claims 3 => attempt=2; two completes 3; pass 3s; two looks; one looks => acts=false acting=2`},
		// Each run ends, although its work kills its process under both definitions.
		{"deadly work", true, `
			one is def=1 ttl=1s dead; two is def=2 ttl=1s dead; one looks; two looks; pass 5s; one looks; two looks => acts=true
			two claims 1; pass 1s; one looks => acts=true; one claims 1 => attempt=2
			pass 5s; two looks => acts=true; one looks => acts=false; two claims 1 => attempt=3
			pass 5s; one looks => acts=true; one claims 1 => attempt=4; pass 5s; two looks => acts=true; two claims 1 => attempt=5
			pass 5s; one looks => acts=true; two looks => acts=false; one claims 1 => recorded
			history => 1:unknown:its_holder_died_or_released_it`},
		{"announcements", true, `
			one is def=1; alike is def=1; two is def=2
			one looks; one watches
			pass 1s; alike looks => acts=true; one hears =>
			pass 1m; two looks => acts=false; one hears => change
			two looks => acts=false; one hears =>
			pass 5s; two looks => acts=true; one hears => change
			two looks => acts=true; one hears =>
			one asks => acting=2 replicas=1 members=1:alike@61.02,1:one@60,2:two@121.04
			two leaves; one hears => change
			two leaves; one hears =>`},
		// After a loss, the one that asks first acts, until another one is proven.
		{"loss", true, `
			x is def=3; y is def=1; z is def=2
			x looks => acts=true; pass 10s; x looks; y looks => acts=false; pass 10s; y looks => acts=true
			z looks => acts=false; pass 10s; z looks => acts=true; x looks => acts=false; y looks => acts=false
			flush; x looks => acts=true; y looks => acts=false; pass 1s; z looks => acts=false
			pass 4s; y looks => acts=true; x looks => acts=false; z looks => acts=false; pass 1s; z looks => acts=true
			flush; z looks => acts=true; pass 5s; y looks => acts=false; x looks => acts=false; pass 5s; x looks => acts=true`},
		// With another schedule, one entry has the time up to now, or up to the ledger if the clock was set back.
		// No tick of that time runs again, nor one that was between skipped ones. A shared tick is due.
		{"another schedule", true, `
			one is def=1 schedule=s1; two is def=2 schedule=s2; same is def=3 schedule=s1
			one runs 59; one leaves
			redis rpush runs {"tick":"@55","last":"@57","count":"3","outcome":"skipped","error":"missed"}
			same looks; pass 5s; same looks => acts=true rescheduled=- last=59 schedule=s1; same reruns 56 scheduled; same runs 56; same leaves
			two looks => acts=false; pass 5s
			two looks => acts=true rescheduled=59.001 last=70 schedule=s2; two looks => rescheduled=59.001
			history => 59.001-70:skipped:rescheduled 56:succeeded 59:succeeded 55-57*3:skipped:missed
			two reruns 59.001 scheduled => no-run; two reruns 70 scheduled => no-run; two reruns 55.5 scheduled => no-run
			redis hset job last @70.001; two looks => rescheduled=-
			pass 1s; two runs 71; two looks => rescheduled=-
			anew; one runs 60; one leaves; two looks => acts=false; pass 5s; clock -1h; two looks => acts=false; pass 4999ms
			two looks => acts=false; pass 1ms; two looks => acts=true rescheduled=60.001 last=60.001
			anew; one runs 58; one leaves; two looks; pass 5s; two looks shared 60 => acts=true rescheduled=58.001 last=59.999; two runs 60
			anew; one runs 58; one leaves; two looks; pass 5s; two looks shared 66 => acts=true rescheduled=58.001 last=65
			anew; one runs 58; one leaves; two looks; pass 5s; two looks shared 58.001 => acts=true last=58 schedule=s2; history 1 => 58:succeeded
			anew; one runs 58; one leaves; two looks; pass 5s; redis hset job last @59
			two looks shared 60 => acts=false acting=2 last=59 schedule=s1 again=1ms; two looks shared 60 => acts=true rescheduled=59.001 last=59.999
			anew; one runs 58; one leaves; two looks; pass 5s; redis hset job spec s0
			two looks shared 60 => acts=false acting=2 last=58 schedule=s0; two looks => acts=true rescheduled=58.001 last=65`},
		{"nobody", false, `a is def=d; a looks; a leaves; o asks => replicas=0 members=`},
		{"dead replicas are forgotten", true, `
			a is def=d; b is def=d; c is def=d
			b looks; c looks; a looks => replicas=3
			4x pass 30s; a looks
			a asks => members=d:a@60 replicas=1`},
		// The more replicas there are, the less often does each look, and the longer does it count as alive.
		{"how long replicas count", true, `
			13x r# is def=d
			r0 looks => again=30s; r1 looks; r2 looks => again=30s; r3 looks => again=40s; r4 looks; r5 looks; r6 looks; r7 looks; r8 looks; r9 looks
			r10 looks => again=1m50s; r11 looks => again=2m0s; r12 looks => again=2m0s
			pass 89999ms; o asks => replicas=13; pass 1ms; o asks => replicas=10; pass 29999ms; o asks => replicas=10; pass 1ms; o asks => replicas=9
			pass 209999ms; o asks => replicas=3; pass 1ms; o asks => replicas=2; pass 29999ms; o asks => replicas=2; pass 1ms; o asks => replicas=0`},
		// If the clock was set back since its newest request, any script that reads the replicas sets its times back by as much.
		{"records of replicas", true, `
			a is def=d1; a looks; redis hset job live:spoilt ?; o asks; lives => 150_60_60_60_d1_a
			clock -1ms; o asks; lives => 149.999_59.999_59.999_59.999_d1_a; clock -1h; o asks; lives => -3450.001_-3540.001_-3540.001_-3540.001_d1_a
			pass 89999ms; o asks; lives => -3450.001_-3540.001_-3540.001_-3540.001_d1_a; pass 1ms; o asks; lives =>
			anew; b is def=d2; a looks; redis hset job live:spoilt ?; clock -1ms; b looks => others=1 acting=d1
			lives => 149.999_59.999_59.999_59.999_d1_a 74.999_59.999_59.999_59.999_d2_b
			anew; c is def=d1; c holds-back job_open 1 100ms; c looks; lives => 150.1_60.1_60.1_60.1_d1_c # a late request
			c looks; c holds-back job_open 1 100ms; c looks; lives => 150.2_60.1_60.2_60_d1_c`},
		{"an older definition", true, `
			elder is def=0; old is def=0; one is def=1; elder looks; pass 1s; one looks; pass 5s; one looks => acts=true
			old looks => acts=false again=5s; pass 5s; old looks => acts=false again=5s
			anew; one looks; pass 5s; redis hset job live:0 @500_@60_@65_@60_2_other; one looks => acts=false acting=2 # which is as old
			anew; two is def=2; two looks; pass 6s; redis hset job live:0 @500_@61_@66_@61_1_other; two looks => acts=false acting=1`},
		// A definition is as old as its oldest replica.
		{"a replica starts again", true, `
			one is def=1; two is def=2; one looks; pass 1m; one looks; two looks; pass 5s; two looks => acts=true
			redis hset job live:0 @500_@124_@124_@124_1_again; two looks => acts=true others=2`},
	})
}

// A look finds each change of what job_open has told, and keeps its replica alive for as long as before. The clock is not
// behind its last request.
func TestRefresh(t *testing.T) {
	for field := range strings.FieldsSeq("v last ok paused born id spec control outcome def ttl open") {
		inBubble(t, plays("a looks; a checks => same=true; redis hset job "+field+" x; a checks => same=false"))
	}
	playAll(t, []scenario{
		{"another entry", true, `a looks; redis lpush runs {}; a checks => same=false`},
		{"another replica", true, `a looks; b looks; a checks => same=false`},
		{"a clock set back", true, `a looks; clock -1ms; a checks => same=false`},
		{"how long it lives", true, `
			a looks; lives => 150_60_60_60_d_a; a checks => same=true; lives => 150_60_60_60_d_a
			pass 89001500us; a checks => same=true now=149.0015; lives => 239.001_60_149.001_60_d_a
			pass 89999ms; a checks => same=true now=239.0005; lives => 329_60_239_60_d_a; pass 90s; a checks => same=false
			o asks; lives =>; a checks => same=false`},
	})
}

// The server's clock is set back by an hour. Lapses are as long as otherwise, and a replica that is new waits again.
func TestFault36_ClassD_DefinitionsAfterTheClockWasSetBack(t *testing.T) {
	inBubble(t, plays(`
		one is def=1; two is def=2
		one looks => acts=true; pass 1m; two looks => acts=false; pass 4s
		clock -1h; two looks => acts=false; one looks => acts=true; pass 4999ms; two looks => acts=false
		pass 1ms; two looks => acts=true; one looks => acts=false
		clock -1h; two looks => acts=true; one looks => acts=false
		clock -1h; one looks => acts=false # and two dies
		2x pass 5s; one looks => acts=false
		pass 4999ms; one looks => acts=false; pass 1ms; one looks => acts=true`))
}

// The server's clock was set back. Each script that reads a run holds it for its TTL from now. The end within
// the TTL stays, and so does that of a release that stored no TTL.
func TestFault36_ClassD_EndsOfRunsToTheMillisecond(t *testing.T) {
	inBubble(t, plays(`
		h is ttl=2s dead
		h claims 1; pass 1ms; a asks => 1.left=1.999s; clock -1ms; a asks => 1.left=2s; clock -1ms; a asks => 1.left=2s
		clock -1h; a asks => 1.left=2s; pass 1ms; a asks => 1.left=1.999s
		anew; h claims 1; clock -1h; a claims 1 => busy left=2s; clock 1h; a asks => 1.held=false
		anew; h claims 1; clock -1h; a cancels 1; clock 1h; a asks => 1.held=false
		anew; h claims 1; redis hset job open @1 open:@1 {"run":"r","holder":"h","attempt":"1","token":"5","start":"1","til":"@3660"}
		a asks => 1.left=1h0m0s; a claims 1 => busy left=1h0m0s; a cancels 1; a asks => 1.left=1h0m0s`))
}

// The server has evicted all keys of a job except its state. The same definition acts.
func TestFault22_ClassD_WhatIsBesideTheJobIsEvicted(t *testing.T) {
	onBoth(t, plays(`
		one is def=1; two is def=2; three is def=3
		one looks => acts=true; one runs 1; two looks => acts=false
		redis del runs acts fence
		two looks => acts=false; three looks => acts=false; one looks => acts=true`))
}

// A server that has too few replicas refuses a claim without an effect: it needs no tombstone.
func TestFault20_AClaimWithoutReplicas(t *testing.T) {
	t.Parallel()
	plays(`
		b looks; redis config set min-replicas-to-write 1; b claims 1 => NOREPLICAS
		redis config set min-replicas-to-write 0; b closes
		c claims 1 => attempt=1`)(realEnv(t))
}

// Open runs go in the order in which they became due, and only new ticks wait for the end of a pause.
func TestFault125_OpenRunsContinueWhileTheJobIsPaused(t *testing.T) {
	onBoth(t, plays(`
		dead is ttl=2s dead
		dead claims 1; pass 2100ms
		a triggers x; a triggers y; a triggers z
		a claims x => earlier open=1; a claims y => earlier open=1; a claims z => earlier open=1
		a pauses
		a claims x => earlier open=1; a claims y => earlier open=1; a claims z => earlier open=1
		a runs 1 => attempt=2; a claims 1 => done
		a claims z => earlier open=x; a claims y => earlier open=x
		a runs x => attempt=1; a claims x => done
		pass 50ms
		a looks; a claims z+0.005 => paused
		a resumes; a claims z+0.005 => earlier open=y
		a runs y; a runs z; a runs z+0.005 => attempt=1`))
}

// The server restarts empty. An open run runs again with a greater token, and no run that had ended. Its holder notices at
// its next renewal.
func TestFault15_ClassD_AnEmptyRestart(t *testing.T) {
	inBubble(t, plays(`
		a is ttl=3s; b runs 1; b looks; a looks; a claims 2; a looks
		flush; a looks => last=1.999 open=; pass 1500ms; a notices 2 => held=false; a completes 2 => superseded
		b looks => last=1.999; b checks => now=61.5; b claims 1 => done; b claims 2 => attempt=1; b completes 2; a looks => last=2 open=
		history => 2:succeeded`))
}

// An old snapshot is restored. Of the runs that are open in it, those end that a replica knows to have ended.
func TestFault16_ClassD_AnOldSnapshot(t *testing.T) {
	onBoth(t, plays(`
		a is overlap
		a claims 1; a claims 1.001; redis copy job saved; a completes 1; a looks => open=1.001
		redis copy saved job replace; a looks => open=1.001
		history 1 => 1:unknown:it_had_ended_before_the_server_lost_data`))
}

// A replica dies after the effect of its run and before the record: the run is attempted again, and one completion counts.
func TestFault59_CrashAfterTheEffect(t *testing.T) {
	inBubble(t, plays(`
		dead is ttl=2s dead; dead claims 1; pass 2s; a claims 1 => attempt=2 unsure=true dead=dead
		dead completes 1 => superseded; a completes 1; dead completes 1 => superseded; history => 1:succeeded`))
}

// The reply to an operator's request is lost, and the request is sent again when there is nothing left to do. The error
// says that it may have been carried out. Of several canceled runs, the second answer has only those that go on.
func TestFault26_OperatorsLoseTheReply(t *testing.T) {
	inBubble(t, plays(`
		a is overlap; a claims 1; a abandons 1; o cancels 3 => not-open !unsure; o loses job_cancel 1; o cancels 1 => not-open unsure
		a looks; a claims 2; a abandons 2; o loses job_cancel 1; o cancels all => not-open unsure
		a looks; a claims 3; a claims 4; a abandons 3; o loses job_cancel 1; o cancels all => unknown unsure canceled=4
		o plans x 70; o loses job_cancel 1; o cancels-id x => not-open unsure`))
}

// The reply to a claim or to a completion is lost, and the request is sent again: there is one run with one outcome.
func TestFault28_29_ALostReply(t *testing.T) {
	onBoth(t, plays(`
		a loses job_claim 1; a claims 1 => attempt=1; a loses job_complete 1; a completes 1
		history => 1:succeeded; a claims 1 => done`))
}

// A claim arrives after it was abandoned. It does not hold the run, and counts as no attempt.
func TestFault13_AClaimThatComesLate(t *testing.T) {
	inBubble(t, plays(`
		a is ttl=10s; b looks; b runs 1; a looks; a holds-back job_claim 0 15s; a claims 2 => unknown
		pass 1s; ttl tomb:* => 5m0s; keys tomb:* => noonlock:{job/draw}:tomb:*; a heals; pass 15s; b claims 2 => attempt=1; b completes 2; keys tomb:* => noonlock:{job/draw}:tomb:*`))
}

// A resource has seen a token of a clock that was ahead, and an operator sets the counter to it. The counter stays.
func TestFault81_ClassD_ATokenOfTheFuture(t *testing.T) {
	inBubble(t, plays(`a runs 1; redis set fence 2000000000000000; a runs 2 => token=2000000000000001; ttl fence => 292755h33m0s`))
}

// A reply that leaves no validity starts no work. Of three such claims in a row, the third is given back.
func TestFault03_AClaimWithoutValidity(t *testing.T) {
	inBubble(t, plays(`
		a is ttl=300ms valid=90ms renewed=70ms
		a runs 1; a delays job_claim 0 95ms; a claims 2 => expired
		a heals; pass 50ms; a delays job_claim 2 95ms; a runs 2
		a delays all 0 60ms; a claims 3 => attempt=1 valid=30ms; a heals`))
}

// Out of memory: scripts that end runs still work. Others fail, and leave nothing half done.
func TestFault31_NoMemoryForTheLedger(t *testing.T) {
	t.Parallel()
	plays(`
		a claims 1; redis config set maxmemory 1
		a completes 1; a claims 2 => OOM
		redis config set maxmemory 0; a looks => open=; a runs 2`)(realEnv(t, "maxmemory-policy noeviction"))
}

// A message may be forged, or come from another database. The ledger ends no run for it.
func TestFault41_MessageThatARunHasEnded(t *testing.T) {
	onBoth(t, plays(`
		a claims 1; a looks; a hears-of 1 => all=true 1.over=true
		a looks => open=1 1.over=false; a completes 1`))
}

// Replicas restore the newest pause or resume that one of them knows. What an operator has ordered since
// counts more. While the server keeps its data, a replica that knows less changes nothing.
func TestFault112_TheNewestPauseOrResumeCounts(t *testing.T) {
	const paused = `
		a claims 1; ann is because=bug; pass 1s
		ann pauses; s1 looks => paused=true; s2 looks => paused=true; s3 looks => paused=true; s4 looks => paused=true
		pass 1s; %s; ann resumes; pass 1s; s1 looks => paused=false lost=false
		k1 looks => by=ann@host:bug; k2 looks => by=ann@host:bug; flush`
	const later = `
		ann pauses; pass 1s; k2 looks => paused=true
		ann resumes; s4 looks => paused=false`
	for _, row := range []struct{ clock, steps string }{
		{"", `
			pass 1s; k1 looks => paused=false lost=true; ttl job => 720h0m0s; ttl acts => 720h0m0s
			s3 looks => paused=false halted=61-62 by=ann@host:bug; redis llen acts => 1`},
		{"", `
			s2 looks => paused=true lost=true by=ann@host:bug
			pass 1s; k1 looks => paused=false lost=true; ttl job => 720h0m0s; ttl acts => 720h0m0s
			s2 looks => paused=false lost=true; s3 looks => paused=false halted=61-62 by=ann@host:bug; redis llen acts => 2`},
		{"clock -1h", `
			pass 1s; k1 looks; s3 looks; redis llen acts => 1`},
		{"clock -1h", `
			s2 looks => paused=true lost=true by=ann@host:bug
			pass 1s; k1 looks; s3 looks; redis llen acts => 1`},
	} {
		inBubble(t, plays(fmt.Sprintf(paused, row.clock)+row.steps+later))
	}
}

// Only the key of the job is lost. The entry of the pause is still there, once, wherever it is.
func TestFault112_TheEntryOfThePauseIsKept(t *testing.T) {
	inBubble(t, plays(`
		a claims 1; ann pauses; a looks => paused=true
		redis rpush acts {"at":"1","what":"trigger"} {"at":"2","what":"trigger"}
		redis del job; a looks => paused=true; redis llen acts => 3
		redis lpush acts {"at":"3","what":"trigger"}; redis del job; a looks => paused=true; redis llen acts => 4
		redis rpop acts; redis rpop acts; redis del job; a looks => paused=true; redis llen acts => 2
		redis pexpire acts 5000; a looks; redis pttl acts => 5000
		redis del acts job; redis set acts damaged; a looks => WRONGTYPE; redis exists job => 0`))
}
