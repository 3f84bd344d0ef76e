package explorer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// jobStem is the prefix of the keys of the job.
const jobStem = "n:{job/x}:"

// jobChannel is the channel of the job.
const jobChannel = "n:job:x"

// The two ticks of the job. One is due, the other is due two seconds later.
var dueTicks = [2]int64{base, base + 2*tick}

func tickText(i uint8) string { return strconv.FormatInt(dueTicks[i], 10) }

// A record is the ledger's entry of a tick that is open or has ended.
type record struct {
	Run, Attempt, Token, Til, Tick, Last, Outcome string
}

// tickRules check a ledger. Unlike that of a lock, its clock is not moved back to base, since
// ticks are instants. Hidden keys:
//
//	~clock    seconds past base
//	~token    the greatest token so far, and those of runs
//	~withdrawn   abandoned runs
//	~done     tick -> the run whose completion was accepted
type tickRules struct {
	most    int  // maximum attempts of a tick
	overlap bool // runs of two ticks may run at the same time
	old     bool // process B has another definition
}

func (tickRules) numbers(*key, func(meaning, string) string) {}

func (tickRules) lasting(string) bool { return true }

func (tickRules) clock(w world) int64 {
	n, _ := strconv.ParseInt(w.value("~clock", "n"), 10, 64)
	return base + n*tick
}

// tidy removes what does not matter: when a run began, ended or was held, since when it has been
// expired, its earlier attempts, and what operators have done.
func (r tickRules) tidy(w world) world {
	now := r.clock(w)
	out := make(world, 0, len(w))
	for _, k := range w {
		if k.name == jobStem+"acts" {
			continue // no script reads it
		}
		pairs := make([]pair, len(k.pairs))
		for j, p := range k.pairs {
			switch {
			case k.name == jobStem+"open" || k.name == jobStem+"runs":
				var fields map[string]any
				if json.Unmarshal([]byte(p.value), &fields) != nil {
					break
				}
				for _, name := range []string{"start", "end", "held", "seen"} {
					if fields[name] != nil {
						fields[name] = "0"
					}
				}
				delete(fields, "tries") // no script decides by them
				if til, ok := fields["til"].(string); ok && number(til) <= now {
					fields["til"] = "0"
				}
				text, _ := json.Marshal(fields)
				p.value = string(text)
			case k.name == jobStem+"job" && slices.Contains([]string{"freed", "hold", "paused", "resumed", "halt", "control", "outcome"}, p.name):
				p.value = "1"
			}
			pairs[j] = p
		}
		k.pairs = pairs
		out = append(out, k)
	}
	return out
}

func (tickRules) value(a attemptID) string {
	return fmt.Sprintf("nl1:%c.%d.u/x", 'A'+a.process(), a.slot()+1)
}

func (tickRules) tomb(a attemptID) string {
	return fmt.Sprintf("%stomb:%c.%d", jobStem, 'A'+a.process(), a.slot()+1)
}

func (r tickRules) derive(w world) facts {
	f := facts{last: w.value(jobStem+"job", "last"), paused: w.value(jobStem+"job", "paused") != ""}
	open := r.open(w)
	for i := range dueTicks {
		rec, ok := open[tickText(uint8(i))]
		f.open[i], f.held[i] = ok, -1
		if !ok {
			continue
		}
		for a := range attempts {
			if rec.Run == r.value(a) {
				f.held[i] = int8(a)
				f.present |= 1 << a
			}
		}
		f.left[i] = number(rec.Til) - r.clock(w)
	}
	f.clock = r.clock(w)
	return f
}

func (tickRules) open(w world) map[string]record {
	open := map[string]record{}
	k, _ := w.get(jobStem + "open")
	for _, p := range k.pairs {
		var rec record
		_ = json.Unmarshal([]byte(p.value), &rec)
		open[p.name] = rec
	}
	return open
}

// ended returns how often a tick is in the history.
func (tickRules) ended(w world, tick string) (n int, outcome string) {
	k, _ := w.get(jobStem + "runs")
	for _, p := range k.pairs {
		var rec record
		_ = json.Unmarshal([]byte(p.value), &rec)
		if rec.Tick == tick || rec.Last != "" && number(rec.Tick) <= number(tick) && number(tick) <= number(rec.Last) {
			n++
			outcome = rec.Outcome
		}
	}
	return n, outcome
}

type tickOp uint8

const (
	tickNone tickOp = iota
	tickClaim
	tickRenew
	tickComplete
	tickAbandon // the work has not begun
	tickStop    // the work has begun
	tickPause
	tickResume
)

var tickOps = [...]string{"", "claim", "renew", "complete", "abandon before it began", "abandon", "pause", "resume"}

// A tickCall is a request to a ledger.
type tickCall struct {
	op      tickOp
	attempt attemptID
	tick    uint8
	known   uint8 // 0: nothing; 1, 2: up to that tick
}

func (c tickCall) code() uint32 {
	return uint32(c.op) | uint32(c.attempt)<<8 | uint32(c.tick)<<16 | uint32(c.known)<<24
}

const beforeAll = base - 5*tick

func knownText(known uint8) string {
	if known == 0 {
		return strconv.FormatInt(beforeAll, 10)
	}
	return tickText(known - 1)
}

func (r tickRules) request(w world, c tickCall) (keys, argv []string) {
	k := func(parts ...string) []string {
		for i := range parts {
			parts[i] = jobStem + parts[i]
		}
		return parts
	}
	me, tick := r.value(c.attempt), tickText(c.tick)
	tomb := strconv.Itoa(tombMillis)
	switch c.op {
	case tickNone, tickClaim:
	case tickRenew:
		return k("open"), []string{me, tick, strconv.FormatInt(ttlMillis(c.attempt.process()), 10)}
	case tickComplete:
		return k("job", "open", "runs"), []string{me, tick, "succeeded", "", "100", w.value("~token", c.attempt.String()), "", jobChannel}
	case tickAbandon, tickStop:
		began := "0"
		if c.op == tickStop {
			began = "1"
		}
		return append(k("job", "open"), r.tomb(c.attempt)), []string{me, tick, began, tomb, "an error", "", jobChannel}
	case tickPause:
		return k("job", "open", "runs", "acts"), []string{"1", "2592000000", "ann", "", jobChannel}
	case tickResume:
		return k("job", "open", "runs", "acts"), []string{"0", "2592000000", "ann", "", jobChannel}
	}
	overlap, first, newest, count, reason := "0", "", "", "", ""
	if r.overlap {
		overlap = "1"
	}
	if c.tick == 1 && c.known == 0 {
		first, newest, count, reason = tickText(0), tickText(0), "1", "missed"
	}
	def := "d"
	if r.old && c.attempt.process() == 1 {
		def = "c"
	}
	return append(k("job", "open", "runs", "fence"), r.tomb(c.attempt)), []string{
		me, tick, strconv.FormatInt(ttlMillis(c.attempt.process()), 10), knownText(c.known), strconv.Itoa(r.most), overlap,
		"100", "", "holder", first, newest, count, reason, "", def, jobChannel, jobChannel + "{begins}", "",
	}
}

func (tickRules) scriptOf(op tickOp) string {
	return [...]string{"", "job_claim", "job_renew", "job_complete", "job_abandon", "job_abandon", "job_pause", "job_pause"}[op]
}

// watch checks the effect of a script against the promises.
func (r tickRules) watch(before world, c tickCall, after []key, reply any) (world, outcome) {
	var out outcome
	broken := func(format string, args ...any) {
		if out.broken == "" {
			out.broken = fmt.Sprintf(format, args...)
		}
	}
	w := append(world{}, after...)
	for _, k := range before {
		if k.hidden() {
			w = append(w, k)
		}
	}
	list, _ := reply.([]any)
	if len(list) > 0 {
		reply = list[0]
	}
	code, ok := reply.(int64)
	if !ok {
		broken("an unknown answer: %v", reply)
		return w, out
	}
	out.code = int8(code)
	now, me, value, tick := r.clock(w), c.attempt.String(), r.value(c.attempt), tickText(c.tick)
	was, is := r.open(before), r.open(w)
	live := func(rec record) bool { return rec.Til != "" && number(rec.Til) > now }
	mine := was[tick].Run == value
	lastBefore, last := before.value(jobStem+"job", "last"), w.value(jobStem+"job", "last")

	if number(last) < number(lastBefore) {
		broken("the newest accounted tick went back")
	}
	for i := range dueTicks {
		t := tickText(uint8(i))
		n, _ := r.ended(w, t)
		_, open := is[t]
		switch {
		case n > 1 || n == 1 && open:
			broken("tick %d has ended %d times, and is open: %v", i+1, n, open)
		case number(t) <= number(last) && n == 0 && !open:
			broken("tick %d is forgotten", i+1)
		case open && number(t) > number(last):
			broken("tick %d is open and not accounted for", i+1)
		}
		if a, err := strconv.Atoi(is[t].Attempt); open && (err != nil || a > r.most || a < 0) {
			broken("tick %d is at attempt %s of %d", i+1, is[t].Attempt, r.most)
		}
		if t != tick && was[t] != is[t] {
			broken("%s has changed the record of another tick", me)
		}
		if t == tick && was[t].Run != value && live(was[t]) && was[t] != is[t] {
			broken("%s has changed a run that another holds", me)
		}
		if open && is[t].Run != "" && is[t].Run == value && w.value("~withdrawn", me) != "" {
			broken("%s runs tick %d although it was abandoned", me, i+1)
		}
	}
	for _, name := range []string{"job", "open", "runs", "fence"} {
		k, ok := w.get(jobStem + name)
		if ok && (k.ttl == 0) != (name != "fence" && w.value(jobStem+"job", "paused") != "") {
			broken("the key %s has a TTL of %d ms", name, k.ttl)
		}
	}
	switch c.op {
	case tickClaim:
		held := is[tick].Run == value
		if held != (out.code == 1) {
			broken("%s was answered %d, and whether it has the tick is: %v", me, out.code, held)
		}
		if !r.refusal(before, c, list, was) {
			broken("%s was refused tick %d with %v, which is not true", me, c.tick+1, list)
		}
		if out.code == 5 && w.value("~withdrawn", me) == "" && w.value("~done", tick) != me {
			broken("%s was refused as abandoned", me)
		}
		if out.code == 1 && len(list) > 2 {
			token, _ := list[1].(string)
			highest := w.value("~token", "last")
			switch {
			case token != is[tick].Token:
				broken("%s received token %s but has %s", me, token, is[tick].Token)
			case mine && token != was[tick].Token:
				broken("the token of %s has changed", me)
			case !mine && highest != "" && number(token) <= number(highest):
				broken("%s was given token %s after %s", me, token, highest)
			}
			w = w.set("~token", "last", token).set("~token", me, token)
			if n, _ := list[2].(int64); strconv.FormatInt(n, 10) != is[tick].Attempt {
				broken("%s received attempt %d but has %s", me, n, is[tick].Attempt)
			}
			if number(is[tick].Til) != now+ttlMillis(c.attempt.process()) {
				broken("%s was not given its full time", me)
			}
		}
		if out.code == 1 && !mine {
			r.granted(before, c, was, broken)
		}
		if out.code == 9 {
			if n, outcome := r.ended(w, tick); n == 0 || outcome != "unknown" {
				broken("tick %d was not recorded as unknown", c.tick+1)
			}
		}
	case tickRenew:
		if mine != (out.code == 1) || mine && number(is[tick].Til) != now+ttlMillis(c.attempt.process()) {
			broken("%s renewed, and was answered %d", me, out.code)
		}
	case tickComplete:
		done := w.value("~done", tick)
		switch _, outcome := r.ended(w, tick); {
		case out.code == 1 && done != "" && done != me:
			broken("tick %d was completed by %s and by %s", c.tick+1, done, me)
		case out.code == 1 && (!mine && done != me || outcome != "succeeded"):
			broken("a completion by %s was accepted, and is not what is recorded", me)
		case out.code == 0 && (mine || done == me):
			broken("a completion by %s was refused", me)
		}
		if out.code == 1 {
			w = w.set("~done", tick, me)
		}
	case tickAbandon, tickStop:
		if mine != (out.code == 1) || mine && (is[tick].Run == value || live(is[tick])) {
			broken("%s abandoned, and got the answer %d", me, out.code)
		}
		if before := was[tick].Attempt; mine && (is[tick].Attempt == before) != (c.op == tickStop) {
			broken("attempt %s is %s after it was abandoned", before, is[tick].Attempt)
		}
		if w.value("~done", tick) != me {
			w = w.set("~withdrawn", me, "yes")
		}
	case tickPause, tickResume, tickNone:
	}
	return w, out
}

// refusal checks whether the reason of a refused claim is true.
func (r tickRules) refusal(before world, c tickCall, list []any, was map[string]record) bool {
	now, tick := r.clock(before), tickText(c.tick)
	last := before.value(jobStem+"job", "last")
	_, open := was[tick]
	code, _ := list[0].(int64)
	live := func(tick string) bool { return was[tick].Til != "" && number(was[tick].Til) > now }
	switch code {
	case 2:
		other, _ := list[2].(string)
		return live(other) && (other == tick || !r.overlap)
	case 3:
		return !open && number(tick) <= number(last)
	case 4:
		return !open && dueTicks[c.tick] > now
	case 6:
		return !open && before.value(jobStem+"job", "paused") != ""
	case 7:
		other, _ := list[1].(string)
		_, isOpen := was[other]
		return isOpen && other < tick && !live(other) && !r.overlap
	case 8:
		return !open && last != knownText(c.known) && last == list[1]
	case 9:
		return open && !live(tick) && was[tick].Attempt == strconv.Itoa(r.most)
	case 13:
		return r.old && c.attempt.process() == 1
	}
	return code == 1 || code == 5
}

// granted checks whether a tick may be granted to a replica that does not have it.
func (r tickRules) granted(before world, c tickCall, was map[string]record, broken func(string, ...any)) {
	now, me, tick := r.clock(before), c.attempt, tickText(c.tick)
	if done := before.value("~done", tick); done != "" {
		broken("%v was given tick %d, which %s has completed", me, c.tick+1, done)
	}
	if n, _ := r.ended(before, tick); n > 0 {
		broken("%v was given tick %d, which has ended", me, c.tick+1)
	}
	if dueTicks[c.tick] > now {
		broken("%v was given tick %d, which is not due", me, c.tick+1)
	}
	if _, open := was[tick]; !open && before.value(jobStem+"job", "paused") != "" {
		broken("%v was given a new tick of a job that is paused", me)
	}
	if r.old && me.process() == 1 {
		broken("%v was given a tick, and has another definition", me)
	}
	for other, rec := range was {
		if rec.Til != "" && number(rec.Til) > now && (other == tick || !r.overlap) {
			broken("%v was given tick %d while a run is under way", me, c.tick+1)
		}
		if other < tick && !r.overlap {
			broken("%v was given tick %d before an earlier one that is open", me, c.tick+1)
		}
	}
}

func (r tickRules) forget(w world, a attemptID) world {
	name := a.String()
	w = w.with(key{name: r.tomb(a)})
	for _, k := range []string{"~withdrawn", "~token"} {
		if w.value(k, name) != "" {
			w = w.set(k, name, "")
		}
	}
	for i := range dueTicks {
		if t := tickText(uint8(i)); strings.HasPrefix(w.value("~done", t), name) {
			w = w.set("~done", t, "another")
		}
	}
	return w
}
