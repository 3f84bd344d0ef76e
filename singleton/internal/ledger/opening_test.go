package ledger_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A jobNoted is the data that job_open has stored before.
type jobNoted struct {
	sched string // names the ticks of definition d
}

// openingStates are the states that matter only to job_open.
func openingStates() (all []jobState) {
	for _, gen := range []string{"2", "3"} {
		all = append(all, jobState{ledger: "used", tick: "due", gen: gen, noted: jobNoted{"s"}})
	}
	return append(all, jobState{ledger: "used", tick: "due", gen: "3"})
}

func (b *jobBench) note(p redis.Pipeliner, n jobNoted) {
	if n.sched != "" {
		p.HSet(b.Context(), b.part("job"), "sched", n.sched, "spec", "spec of d")
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
	next := v.before.job["next"]
	if v.r.open.next != "" && !t.superseded {
		next = v.r.open.next
	}
	if v.after.job["next"] != next || v.after.job["v"] != "1" || v.after.job["retain"] != strconv.FormatInt(jobRetain.Milliseconds(), 10) {
		v.complain("want the schema, how long it is to live, and %q next", next)
	}
	if mine := v.answer.([]any)[11]; (mine == "") != t.superseded {
		v.complain("want superseded %v", t.superseded)
	}
	if asks := v.answer.([]any)[19]; (asks == "1") != t.mustAccount {
		v.complain("want it to ask for the dropped ticks: %v", t.mustAccount)
	}
	v.state(t.dropped)
}

// A takeover is the expected change of the acting definition.
type takeover struct {
	takes, superseded bool
	mustAccount       bool // it must say how many ticks the former schedule dropped
	rescheduled       bool // the ticks begin now
	dropped           string
}

// away reports whether the caller takes lapsed replicas for absent, not for dead.
func (v jobVerdict) away() bool { return v.r.open.me != "" && v.r.open.age >= 15_000 }

// takeover: which definition acts. Replica r9 of definition d is alive or not, and one of
// definition x has lapsed.
func (v jobVerdict) takeover() (t takeover) {
	o := v.r.open
	gen, _ := strconv.Atoi(v.before.job["gen"])
	if o.me == "" || o.def == v.before.job["def"] {
		return t
	}
	alone := v.s.ledger != "used" || v.s.gen != "2" && !v.away()
	may := (alone || o.age >= 5000) && (!o.waited || v.s.ledger != "none")
	changed := v.s.noted.sched != "" && o.sched != v.s.noted.sched && o.known <= gen
	t.mustAccount = may && changed && (!o.accounts || o.stale)
	t.takes = may && !t.mustAccount
	t.superseded = !t.takes
	t.rescheduled = t.takes && changed
	if t.rescheduled && o.hasDropped {
		t.dropped = "1"
	}
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
	for _, field := range []string{"gen", "def", "sched", "spec"} {
		want[field] = v.before.job[field]
	}
	var live []string
	if v.s.ledger == "used" && v.s.gen == "2" {
		live = []string{"r9"}
	}
	if o.me != "" {
		live = append(live, o.me)
	}
	if slices.Contains(v.before.live, "dead") {
		if o.me == "" || v.away() {
			live = append(live, "dead")
		} else {
			want["died:x"] = "1"
		}
	}
	gen, _ := strconv.Atoi(want["gen"])
	switch {
	case t.takes:
		want["gen"], want["def"] = strconv.Itoa(max(gen, o.known)+1), o.def
	case o.me != "" && o.def == want["def"] && o.known > gen:
		want["gen"] = strconv.Itoa(o.known)
	}
	if o.me != "" && !t.superseded {
		want["sched"], want["spec"] = o.sched, "spec of "+o.def
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
	if t.dropped != "" {
		first := strconv.FormatInt(v.last+10, 10)
		v.entry("tick:"+first, "count:2", "outcome:skipped", "error:rescheduled")
	} else if t.takes && len(v.after.runs) != len(v.before.runs) {
		v.complain("want nothing skipped")
	}
}

// beginOf returns the begin of a span.
func beginOf(span string) string {
	from, _, _ := strings.Cut(span, " ")
	return from
}

// state: the answer is the state of the job.
func (v jobVerdict) state(dropped string) {
	v.Helper()
	list := v.answer.([]any)
	if len(list) != 25+2*len(v.after.open) {
		v.complain("the answer is incomplete")
		return
	}
	job := v.after.job
	gen := job["gen"]
	if gen == "" {
		gen = "0"
	}
	for i, want := range map[int]string{
		2: job["last"], 3: job["ok"], 5: job["born"], 8: gen, 9: job["next"], 12: dropped,
		13: beginOf(job["hold"]), 14: beginOf(job["halt"]), 16: job["spec"], 20: job["control"], 21: job["cut"],
		22: job["outcome"], 23: job["def"],
	} {
		if list[i] != want {
			v.complain("answer %d is not %q", i, want)
		}
	}
	for i, field := range map[int]string{4: "paused", 6: "freed", 7: "resumed"} {
		if at, ok := list[i].(string); !ok || (at != "") != (job[field] != "") {
			v.complain("answer %d does not say since when it is %s", i, field)
		}
	}
	now, _ := list[1].(int64)
	if now < v.now*1000 {
		v.complain("not the time, or the replicas")
	}
	for i := 25; i < len(list); i += 2 {
		if _, ok := v.after.open[list[i].(string)]; !ok {
			v.complain("tick %v is not open", list[i])
		}
	}
}
