package ledger_test

import (
	"cmp"
	"fmt"
	"strconv"
	"time"
)

// A jobRequest is a script with its arguments, made for the present state.
type jobRequest struct {
	name   string
	script string
	keys   []string
	args   func(b *jobBench, s jobState) []any

	is   string // what distinguishes it, in a word
	most int    // of a claim
	def  string // of a claim or skip
	open jobOpening
}

// A jobOpening is the request of a caller of job_open.
type jobOpening struct {
	me, def string
	age     int64 // ms
	knows   bool
	ahead   int64 // its newest accounted tick is later than the ledger's by that many ms
	sure    bool
	over    bool // it knows that the runs before the tick have ended
	spec    string
	read    bool // it has read the newest accounted tick and the schedule s
}

const jobChannel = "noonlock:job:0:draw"

// jobRetain is longer than the remaining time of the keys of a jobState.
const jobRetain = 2 * time.Hour

func claimRequest(r jobRequest) jobRequest {
	r.script, r.keys = "job_claim", []string{"job", "runs", "fence", "tomb:1", "payloads"}
	r.args = func(b *jobBench, s jobState) []any {
		last := b.tick - 500
		overlap, until, id, def := "0", "", "7", cmp.Or(r.def, s.def())
		switch r.is {
		case "stale":
			last--
		case "foreign":
			id = "8"
		case "overlapping":
			overlap = "1"
		case "late":
			until = strconv.FormatInt(b.now-1, 10)
		case "in time":
			until = strconv.FormatInt(b.now+60_000, 10)
		}
		return []any{jobMe, b.tick, def, id, fmt.Sprint(overlap, " 60000 ", last, " ", r.most, " 10 ", until, " ", jobChannel, " me")}
	}
	return r
}

func skipRequest(r jobRequest) jobRequest {
	r.script, r.keys = "job_skip", []string{"job", "runs"}
	r.args = func(b *jobBench, s jobState) []any {
		newest, last := b.tick, b.last
		switch r.is {
		case "ahead":
			newest += 60_000
		case "stale":
			last--
		}
		return []any{b.tick - 400, newest, 2, "missed", last, 10, cmp.Or(r.def, s.def())}
	}
	return r
}

func openRequest(name string, o jobOpening) jobRequest {
	o.me, o.def, o.spec = cmp.Or(o.me, "r9"), cmp.Or(o.def, "d"), cmp.Or(o.spec, "s")
	r := jobRequest{name: name, script: "job_open", keys: []string{"job", "runs", "acts", "payloads"}, open: o}
	r.args = func(b *jobBench, _ jobState) []any {
		after, sure, ended := "", "", ""
		if o.knows {
			after = strconv.FormatInt(b.last+o.ahead, 10)
		}
		if o.sure {
			sure = "1"
		}
		if o.over {
			ended = strconv.FormatInt(b.tick-800, 10)
		}
		read := ""
		if o.read {
			read = strconv.FormatInt(b.last, 10) + " s"
		}
		return []any{after, sure, ended, 10, jobRetain.Milliseconds(), o.me, o.def, o.age, "shown as", o.spec, "", read, 2000, ""}
	}
	return r
}

func triggerRequest(name, id string, in time.Duration, payload string, most int) jobRequest {
	r := jobRequest{name: name, is: map[bool]string{true: "full"}[most == 0], script: "job_trigger", keys: []string{"job", "tomb:1", "runs", "acts", "payloads"}}
	r.args = func(b *jobBench, _ jobState) []any {
		at := int64(0)
		if id != "" {
			at = b.now + in.Milliseconds()
		}
		return []any{id, at, payload, most, 300_000, "ann", "why"}
	}
	return r
}

// withChannel returns the arguments of a script with the one that ends them, unless it publishes nothing or has the
// channel in another one.
func withChannel(script string, args []any) []any {
	switch script {
	case "job_claim", "job_renew", "job_status":
		return args
	}
	return append(args, jobChannel)
}

func jobRequests() []jobRequest {
	fixed := func(args ...any) func(*jobBench, jobState) []any {
		return func(*jobBench, jobState) []any { return args }
	}
	of := func(args ...any) func(*jobBench, jobState) []any {
		return func(b *jobBench, _ jobState) []any { return append([]any{jobMe, b.tick}, args...) }
	}
	return []jobRequest{
		claimRequest(jobRequest{name: "claim", most: 2}),
		claimRequest(jobRequest{name: "claim at most once", most: 1}),
		claimRequest(jobRequest{name: "claim overlapping", most: 2, is: "overlapping"}),
		claimRequest(jobRequest{name: "claim on an old view", most: 2, is: "stale"}),
		claimRequest(jobRequest{name: "claim after a look at another ledger", most: 2, is: "foreign"}),
		claimRequest(jobRequest{name: "claim of a definition", most: 3, def: "d"}),
		claimRequest(jobRequest{name: "claim too late", most: 2, is: "late"}),
		claimRequest(jobRequest{name: "claim in time", most: 2, is: "in time"}),
		{name: "complete", script: "job_complete", keys: []string{"job", "runs", "payloads"}, args: of("succeeded", "", 10, "5", "")},
		{name: "fail", script: "job_complete", keys: []string{"job", "runs", "payloads"}, args: of("failed", "boom", 10, "5", "")},
		{name: "abandon", script: "job_abandon", keys: []string{"job", "tomb:1"}, args: of("1", 300_000, "boom", "", 5_000)},
		{name: "abandon, not begun", script: "job_abandon", keys: []string{"job", "tomb:1"}, args: of("0", 300_000, "boom", "", 0)},
		{name: "abandon, in doubt", script: "job_abandon", keys: []string{"job", "tomb:1"}, args: of("2", 300_000, "boom", "", 0)},
		{name: "renew", script: "job_renew", keys: []string{"job"}, args: of(60_000)},
		skipRequest(jobRequest{name: "skip", def: "d"}),
		skipRequest(jobRequest{name: "skip of the definition that acts"}),
		skipRequest(jobRequest{name: "skip on an old view", is: "stale"}),
		skipRequest(jobRequest{name: "skip ahead", is: "ahead"}),
		openRequest("open", jobOpening{}),
		openRequest("open and start", jobOpening{me: "r1", def: "other", spec: "s"}),
		openRequest("open and start alike", jobOpening{me: "r1", def: "d", spec: "s"}),
		openRequest("open and start alike by another text", jobOpening{me: "r1", def: "d", spec: "t"}),
		openRequest("open after another start", jobOpening{me: "r9", def: "d", age: 20_000, spec: "s"}),
		openRequest("open alike by another text that was read", jobOpening{me: "r1", def: "d", spec: "t", read: true}),
		openRequest("open by another schedule, and know less", jobOpening{me: "r1", def: "other", spec: "t", knows: true, ahead: -100, sure: true}),
		openRequest("open and know less", jobOpening{knows: true, ahead: -100, sure: true, over: true}),
		openRequest("open and know the same", jobOpening{knows: true, sure: true}),
		openRequest("open and know more", jobOpening{knows: true, ahead: 100, sure: true, over: true}),
		openRequest("open and guess more", jobOpening{knows: true, ahead: 100}),
		{name: "refresh", script: "job_refresh", keys: []string{"job", "runs"}, args: func(b *jobBench, _ jobState) []any {
			return []any{"r9", b.mark()}
		}},
		{name: "leave", script: "job_leave", keys: []string{"job"}, args: fixed("r9")},
		{name: "status", script: "job_status", keys: []string{"job", "runs"}, args: fixed()},
		{name: "pause", script: "job_pause", keys: []string{"job", "runs", "acts", "payloads"}, args: fixed("1", "ann", "why")},
		{name: "resume", script: "job_pause", keys: []string{"job", "runs", "acts", "payloads"}, args: fixed("0", "ann", "why")},
		triggerRequest("trigger", "", 0, "", 100),
		triggerRequest("trigger where none may wait", "", 0, "", 0),
		triggerRequest("trigger at an instant", "x", time.Minute, "payload", 100),
		triggerRequest("trigger at a past instant", "x", -time.Minute, "", 100),
		{name: "cancel", script: "job_cancel", keys: []string{"job", "runs", "acts", "payloads"}, args: func(b *jobBench, _ jobState) []any {
			return []any{b.tick, 10, "ann", "why"}
		}},
		{name: "cancel all that have begun", is: "all", script: "job_cancel", keys: []string{"job", "runs", "acts", "payloads"}, args: fixed("", 10, "ann", "why")},
		{name: "forget", script: "job_forget", keys: []string{"job", "runs", "acts", "payloads"}, args: fixed()},
		{name: "rerun", script: "job_rerun", keys: []string{"job", "runs", "tomb:1", "acts", "payloads"}, args: func(b *jobBench, _ jobState) []any {
			return []any{b.tick, "0", 100, 300_000, "ann", "why"}
		}},
	}
}
