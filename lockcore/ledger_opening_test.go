package lockcore_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A jobNoted is what job_open has noted before.
type jobNoted struct {
	top   string
	sched string // what names the ticks of definition d; old: of one before it
	owed  string // due, or not accounted for: see ticks
}

// ticks are what is noted as due and next, for a ledger with that last tick.
func (n jobNoted) ticks(last, now int64) (due, next int64) {
	switch n.owed {
	case "next":
		return 0, last + 100
	case "now":
		return 0, now
	case "due":
		return last + 50, last + 100
	case "next, due before":
		return last, last + 100
	case "accounted for":
		return 0, last
	case "ahead":
		return 0, now + 60_000
	case "due ahead":
		return now + 60_000, last + 100
	}
	return 0, 0
}

// openingStates are those that only matter to job_open.
func openingStates() (all []jobState) {
	for _, gen := range []string{"2", "3"} {
		all = append(all, jobState{ledger: "used", tick: "due", tomb: "1", gen: gen})
		for _, top := range []string{"", "7"} {
			for _, sched := range []string{"", "s", "old"} {
				for _, owed := range []string{"", "next", "now", "due", "next, due before", "accounted for", "ahead", "due ahead"} {
					if sched == "s" || owed == "due" {
						all = append(all, jobState{ledger: "used", tick: "due", gen: gen, noted: jobNoted{top, sched, owed}})
					}
				}
			}
		}
	}
	return all
}

func (b *jobBench) note(p redis.Pipeliner, n jobNoted, last int64) {
	ctx, job := b.Context(), b.part("job")
	if n.top != "" {
		p.HSet(ctx, job, "top", n.top)
	}
	switch n.sched {
	case "s":
		p.HSet(ctx, job, "sched", "s", "schedof", "d")
	case "old":
		p.HSet(ctx, job, "sched", "s", "schedof", "c")
	}
	due, next := n.ticks(last, b.now)
	if due > 0 {
		p.HSet(ctx, job, "due", due)
	}
	if next > 0 {
		p.HSet(ctx, job, "next", next)
	}
}

// open is what job_open promises: the ledger is mended as far as the caller knows better,
// and the generation is that of who started last, of those who are alive.
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
	superseded := t.superseded
	next, due := v.before.job["next"], v.before.job["due"]
	if v.r.open.next != "" && !superseded {
		next = v.r.open.next
		if t.owed != "" && !t.rescheduled {
			due = t.owed
		}
	}
	if v.after.job["due"] != due {
		v.complain("want it to remember that %q was due", due)
	}
	if v.after.job["next"] != next || v.after.job["v"] != "1" || v.after.job["retain"] != strconv.FormatInt(jobRetain.Milliseconds(), 10) {
		v.complain("want the schema, how long it is to live, and %q next", next)
	}
	if mine := v.answer.([]any)[11]; (mine == "") != superseded {
		v.complain("want superseded %v", superseded)
	}
	v.state(strconv.Itoa(t.own), t.dropped())
}

// A takeover is what becomes of the definition that acts.
type takeover struct {
	own                            int // the caller's order
	takes, superseded, rescheduled bool
	owed                           string // a tick that is due and not accounted for
}

func (t takeover) dropped() string {
	if t.rescheduled {
		return t.owed
	}
	return ""
}

// takeover: whose turn it is.
func (v jobVerdict) takeover() (t takeover) {
	o := v.r.open
	if v.s.ledger == "used" {
		due, next := v.s.noted.ticks(v.last, v.now)
		switch {
		case due > v.last && due <= v.now:
			t.owed = strconv.FormatInt(due, 10)
		case due <= v.last && next > v.last && next <= v.now:
			t.owed = strconv.FormatInt(next, 10)
		}
	}
	present, _ := strconv.Atoi(v.before.job["gen"])
	top, _ := strconv.Atoi(v.before.job["top"])
	top = max(top, present)
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
	t.takes = t.own > present || alone && o.trust > 0
	t.superseded = !t.takes
	t.rescheduled = t.takes && v.s.noted.sched == "s" && o.sched == "t" && o.own <= top
	return t
}

// begin: where the ledger begins or goes on.
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
		v.complain("want it to go on after %s, begun at %q", last, born)
	}
}

// ended: what the caller knows to have ended has.
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

// generation: whose the job is now.
func (v jobVerdict) generation(t takeover) {
	v.Helper()
	o, want := v.r.open, map[string]string{}
	for _, field := range []string{"gen", "def", "top", "sched", "schedof"} {
		want[field] = v.before.job[field]
	}
	var live []string
	if v.s.ledger == "used" && v.s.gen == "2" && !t.takes {
		live = []string{"r9"}
	}
	if o.me != "" && !t.superseded {
		live = append(live, o.me)
	}
	if t.takes {
		top := t.own
		for _, field := range []string{"gen", "top"} {
			before, _ := strconv.Atoi(want[field])
			top = max(top, before)
		}
		want["gen"], want["def"], want["top"] = strconv.Itoa(t.own), o.def, strconv.Itoa(top)
	}
	if o.sched != "" && !t.superseded && want["schedof"] != o.def {
		want["sched"], want["schedof"] = o.sched, o.def
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
	if tick := t.dropped(); tick != "" {
		v.entry("tick:"+tick, "last:"+tick, "count:1", "outcome:skipped", "error:rescheduled")
	} else if t.takes && len(v.after.runs) != len(v.before.runs) {
		v.complain("want nothing skipped")
	}
}

// beginOf is when a span began.
func beginOf(span string) string {
	from, _, _ := strings.Cut(span, " ")
	return from
}

// state: the answer is how the job stands.
func (v jobVerdict) state(own, dropped string) {
	v.Helper()
	list := v.answer.([]any)
	if len(list) != 16+2*len(v.after.open) {
		v.complain("not all is told")
		return
	}
	job := v.after.job
	gen := job["gen"]
	if gen == "" {
		gen = "0"
	}
	for i, want := range map[int]string{
		2: job["last"], 3: job["ok"], 5: job["born"], 8: gen, 9: job["next"], 12: own, 13: dropped,
		14: beginOf(job["hold"]), 15: beginOf(job["halt"]),
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
	if now < v.now*1000 || list[10] != int64(len(v.after.live)) {
		v.complain("not the time, or the replicas")
	}
	for i := 16; i < len(list); i += 2 {
		if _, ok := v.after.open[list[i].(string)]; !ok {
			v.complain("tick %v is not open", list[i])
		}
	}
}
