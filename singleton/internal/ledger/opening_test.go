package ledger_test

import (
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A jobNoted is the data that job_open has stored before.
type jobNoted struct {
	spec string // the schedule of definition d
}

// openingStates are the states that matter only to job_open.
func openingStates() (all []jobState) {
	for _, gen := range []string{"2", "3"} {
		all = append(all, jobState{ledger: "used", tick: "due", gen: gen, noted: jobNoted{"s"}})
	}
	return append(all, jobState{ledger: "used", tick: "due", gen: "3"})
}

func (b *jobBench) note(p redis.Pipeliner, n jobNoted) {
	if n.spec != "" {
		p.HSet(b.Context(), b.part("job"), "spec", n.spec)
	}
}

// open contains the guarantees of job_open: the ledger is repaired as far as the caller
// knows better, and the definition acts that should.
func (v jobVerdict) open() {
	v.Helper()
	if v.s.ledger == "newer" {
		if v.code != "11" {
			v.complain("want 11")
		}
		v.unchanged()
		return
	}
	if v.code != "1" {
		v.complain("want 1")
		return
	}
	v.retained()
	t := v.takeover()
	v.begin(t.rescheduled)
	v.ended()
	v.definition(t)
	if v.after.job["v"] != "1" || v.after.job["retain"] != strconv.FormatInt(jobRetain.Milliseconds(), 10) {
		v.complain("want the schema, and how long it is to live")
	}
	if mine := v.answer.([]any)[9]; (mine == "") != t.superseded {
		v.complain("want superseded %v", t.superseded)
	}
	v.state(t.rescheduled)
}

// A takeover is the expected change of the acting definition.
type takeover struct {
	takes, superseded bool
	rescheduled       bool // the ticks begin now
}

// takeover: which definition acts. No replica is proven, and that of definition x has lapsed. The caller asks for the
// first time.
func (v jobVerdict) takeover() (t takeover) {
	o, acts := v.r.open, v.before.job["def"]
	isNew := v.s.noted.spec != "" && o.spec != v.s.noted.spec
	t.takes = acts == ""
	t.superseded = !t.takes && (o.def != acts || isNew && !o.read)
	t.rescheduled = o.def == acts && isNew && o.read
	return t
}

// begin: where the ledger begins or continues.
func (v jobVerdict) begin(rescheduled bool) {
	v.Helper()
	o := v.r.open
	last, born := v.before.job["last"], v.before.job["born"]
	known := strconv.FormatInt(v.last+o.ahead, 10)
	switch {
	case last == "" && !o.knows:
		last = v.after.job["last"]
		born = last
		if last < strconv.FormatInt(v.now, 10) {
			v.complain("it does not begin now")
		}
	case rescheduled:
		last = v.after.job["last"]
		if last < strconv.FormatInt(v.now, 10) {
			v.complain("its ticks do not begin now")
		}
	case last == "":
		last = known
	case o.ahead > 0 && o.sure, o.ahead < 0 && born == last:
		last, born = known, ""
	}
	if v.after.job["last"] != last || v.after.job["born"] != born {
		v.complain("want it to continue after %s, begun at %q", last, born)
	}
}

// ended: the runs have ended that the caller knows to have ended.
func (v jobVerdict) ended() {
	v.Helper()
	earlier := strconv.FormatInt(v.jobBench.tick-800, 10)
	for tick, record := range v.before.open {
		if tick == earlier && v.r.open.over {
			v.entry("tick:"+tick, "outcome:unknown", "holder:h", "error:it had ended")
			record = ""
		}
		if v.after.open[tick] != record {
			v.complain("tick %s is not as it should be", tick)
		}
	}
}

// definition: which definition has the job now, and which replicas are registered.
func (v jobVerdict) definition(t takeover) {
	v.Helper()
	o, want := v.r.open, map[string]string{}
	for _, field := range []string{"def", "spec", "ttl"} {
		want[field] = v.before.job[field]
	}
	var live []string
	if v.s.ledger == "used" && v.s.gen == "2" {
		live = []string{"r9"}
	}
	if o.me != "" && !slices.Contains(live, o.me) {
		live = append(live, o.me)
	}
	if t.takes {
		want["def"] = o.def
	}
	if o.me != "" && !t.superseded {
		want["spec"], want["ttl"] = o.spec, "2000"
	}
	for field, want := range want {
		if v.after.job[field] != want {
			v.complain("want %s %q", field, want)
		}
	}
	slices.Sort(live)
	if !slices.Equal(v.after.live, live) {
		v.complain("want %v live", live)
	}
	if t.rescheduled {
		v.entry("tick:"+strconv.FormatInt(v.last+1, 10), "last:"+v.after.job["last"], "outcome:skipped", "error:rescheduled")
	}
}

// state: the answer is the state of the job.
func (v jobVerdict) state(rescheduled bool) {
	v.Helper()
	list := v.answer.([]any)
	if len(list) != 21+2*len(v.after.open) {
		v.complain("the answer is incomplete")
		return
	}
	job := v.after.job
	changed := ""
	if rescheduled {
		changed = strconv.FormatInt(v.last+1, 10)
	}
	for i, want := range map[int]string{
		2: job["last"], 3: job["ok"], 5: job["born"], 10: changed,
		12: job["spec"], 15: job["control"], 16: job["outcome"], 17: job["def"], 19: job["ttl"],
	} {
		if list[i] != want {
			v.complain("answer %d is not %q", i, want)
		}
	}
	if at, ok := list[4].(string); !ok || (at != "") != (job["paused"] != "") {
		v.complain("the answer does not say since when it is paused")
	}
	now, _ := list[1].(int64)
	if now < v.now*1000 {
		v.complain("not the time, or the replicas")
	}
	for i := 21; i < len(list); i += 2 {
		if _, ok := v.after.open[list[i].(string)]; !ok {
			v.complain("tick %v is not open", list[i])
		}
	}
}
