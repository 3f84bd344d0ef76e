package lockcore_test

import (
	"slices"
	"strconv"
)

// open is what job_open promises: the ledger is mended as far as the caller knows better,
// and the generation is that of who started last.
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
	v.begin()
	v.ended()
	superseded := v.generation()
	next := v.before.job["next"]
	if v.r.open.next != "" && !superseded {
		next = v.r.open.next
	}
	if v.after.job["next"] != next || v.after.job["v"] != "2" || v.after.job["retain"] != strconv.FormatInt(jobRetain.Milliseconds(), 10) {
		v.complain("want the schema, how long it is to live, and %q next", next)
	}
	if mine := v.answer.([]any)[11]; (mine == "") != superseded {
		v.complain("want superseded %v", superseded)
	}
	v.state()
}

// begin: where the ledger begins or goes on.
func (v jobVerdict) begin() {
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
func (v jobVerdict) generation() (superseded bool) {
	v.Helper()
	o := v.r.open
	present, def := 0, ""
	if v.s.ledger != "none" {
		present, _ = strconv.Atoi(v.s.gen)
		def = "d"
	}
	var live []string
	if v.s.ledger == "used" && v.s.gen == "2" {
		live = []string{"r9"}
	}
	switch {
	case o.me == "":
	case o.def == def:
		live = append(live, o.me)
	case o.start && v.s.tomb == "", o.own > present, len(live) == 0:
		present, def, live = max(present+1, o.own), o.def, []string{o.me}
	default:
		superseded = true
	}
	gen := ""
	if present > 0 {
		gen = strconv.Itoa(present)
	}
	slices.Sort(live)
	if v.after.job["gen"] != gen || v.after.job["def"] != def || !slices.Equal(v.after.live, live) {
		v.complain("want generation %s of %q, and %v live", gen, def, live)
	}
	return superseded
}

// state: the answer is how the job stands.
func (v jobVerdict) state() {
	v.Helper()
	list := v.answer.([]any)
	job := v.after.job
	fresh := ""
	if job["last"] == job["born"] {
		fresh = "1"
	}
	gen := job["gen"]
	if gen == "" {
		gen = "0"
	}
	for i, want := range map[int]string{2: job["last"], 3: job["ok"], 5: fresh, 8: gen, 9: job["next"]} {
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
	if now < v.now*1000 || list[10] != int64(len(v.after.live)) || len(list) != 12+2*len(v.after.open) {
		v.complain("not the time, the replicas or the open runs")
	}
	for i := 12; i < len(list); i += 2 {
		if _, ok := v.after.open[list[i].(string)]; !ok {
			v.complain("tick %v is not open", list[i])
		}
	}
}
