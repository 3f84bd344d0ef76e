package ledger_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A jobNoted is the data that job_open has stored before.
type jobNoted struct {
	top   string
	sched string // names the ticks of definition d; old: of an earlier one
}

// openingStates are the states that matter only to job_open.
func openingStates() (all []jobState) {
	for _, gen := range []string{"2", "3"} {
		all = append(all, jobState{ledger: "used", tick: "due", tomb: "1", gen: gen})
		for _, top := range []string{"", "7"} {
			for _, sched := range []string{"", "s", "old"} {
				all = append(all, jobState{ledger: "used", tick: "due", gen: gen, noted: jobNoted{top, sched}})
			}
		}
	}
	return all
}

func (b *jobBench) note(p redis.Pipeliner, n jobNoted) {
	ctx, job := b.Context(), b.part("job")
	if n.top != "" {
		p.HSet(ctx, job, "top", n.top)
	}
	switch n.sched {
	case "s":
		p.HSet(ctx, job, "sched", "s", "schedof", "d", "spec", "spec of d")
	case "old":
		p.HSet(ctx, job, "sched", "s", "schedof", "c", "spec", "spec of c")
	}
}

// open contains the guarantees of job_open: the ledger is repaired as far as the caller
// knows better, and the generation is that of the live replica that started last.
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
	v.generation(t)
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
	if asks := v.answer.([]any)[21]; (asks == "1") != t.mustAccount {
		v.complain("want it to ask for the dropped ticks: %v", t.mustAccount)
	}
	v.state(strconv.Itoa(t.own), t.dropped)
}

// A takeover is the expected change of the acting definition.
type takeover struct {
	own               int // the caller's order
	takes, superseded bool
	mustAccount       bool // it must say how many ticks the former schedule dropped
	rescheduled       bool // the ticks begin now
	dropped           string
}

// takeover: which definition acts. Definition d is proven; no other replica except r9 is
// alive.
func (v jobVerdict) takeover() (t takeover) {
	o := v.r.open
	present, _ := strconv.Atoi(v.before.job["gen"])
	top, _ := strconv.Atoi(v.before.job["top"])
	t.own = o.own
	if o.me == "" {
		return t
	}
	if o.def == v.before.job["def"] {
		t.own = present
		return t
	}
	given, err := strconv.Atoi(v.s.tomb)
	switch {
	case o.start && err == nil:
		t.own = given
	case o.start:
		t.own = top + 1
	}
	alone := v.s.gen != "2" || v.s.ledger != "used"
	may := alone && (v.before.job["def"] == "" || o.start || o.trust > 0)
	changed := v.s.noted.sched == "s" && o.sched == "t" && o.own <= top
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

// generation: which generation has the job now.
func (v jobVerdict) generation(t takeover) {
	v.Helper()
	o, want := v.r.open, map[string]string{}
	for _, field := range []string{"gen", "def", "top", "sched", "schedof", "spec", "base", "struck"} {
		want[field] = v.before.job[field]
	}
	var live []string
	if v.s.ledger == "used" && v.s.gen == "2" {
		live = []string{"r9"}
	}
	if o.me != "" {
		live = append(live, o.me)
	}
	top, _ := strconv.Atoi(want["top"])
	if o.me != "" && (o.start || t.takes) && o.def != want["def"] {
		want["top"] = strconv.Itoa(max(top, t.own))
	}
	if t.takes {
		want["gen"], want["def"] = strconv.Itoa(t.own), o.def
		if want["base"] == "" {
			want["base"] = o.def
		}
	}
	if o.me != "" && o.sched != "" && !t.superseded {
		want["sched"], want["schedof"], want["spec"] = o.sched, o.def, "spec of "+o.def
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
	tomb := v.s.tomb
	if o.me != "" && o.start {
		tomb = strconv.Itoa(t.own)
	}
	if v.after.tomb != tomb {
		v.complain("want the start to be remembered as %q", tomb)
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
func (v jobVerdict) state(own, dropped string) {
	v.Helper()
	list := v.answer.([]any)
	if len(list) != 24+2*len(v.after.open) {
		v.complain("the answer is incomplete")
		return
	}
	job := v.after.job
	gen := job["gen"]
	if gen == "" {
		gen = "0"
	}
	for i, want := range map[int]string{
		2: job["last"], 3: job["ok"], 5: job["born"], 8: gen, 9: job["next"], 12: own, 13: dropped,
		14: beginOf(job["hold"]), 15: beginOf(job["halt"]), 17: job["spec"], 22: job["control"], 23: job["cut"],
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
	for i := 24; i < len(list); i += 2 {
		if _, ok := v.after.open[list[i].(string)]; !ok {
			v.complain("tick %v is not open", list[i])
		}
	}
}
