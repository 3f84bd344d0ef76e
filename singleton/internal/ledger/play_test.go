package ledger_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
	"github.com/noonlock/noonlock/singleton"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A play is a job whose replicas and operators act step by step. The steps are between semicolons or on
// lines of their own; "3x" before a line repeats it, each time with another number for "#". Most are
//
//	NAME VERB RUN ... => FACTS
//
// A replica exists as soon as it is named; "NAME is" sets its options. A RUN is a tick, in seconds since
// tick 0, or the name that "triggers" gave. Tick 0 is a minute before the play, and the ledger of a replica
// that looks first begins there. All times count from it. The FACTS must be among the results of a step, or
// with "!" must not be. A step that fails must say why in its first fact. The steps without a NAME are in
// method look: most want the complete result.
type play struct {
	*env
	zero     time.Time // tick 0
	replicas map[string]*replica
	triggers map[string]ledger.RunID
	granted  map[uint64]string // the holder of each token, and how many had been granted then
	newest   uint64            // of the tokens
	losses   []*lockcoretest.Rule
}

// A replica is one Client's view of the job.
type replica struct {
	*play
	name    string
	client  *lockcore.Client
	net     *lockcoretest.Faults
	ledger  *ledger.Ledger
	by      lockcore.Operator
	state   ledger.State
	last    time.Time // the newest tick that it has claimed or skipped since it looked
	runs    map[ledger.RunID]*ledger.Claim
	refused *ledger.ClaimError // the newest

	mu    sync.Mutex
	heard []string
}

// plays returns a test that plays a scenario. In a bubble, the server runs each script twice, unless messages are counted.
func plays(scenario string) func(e *env) {
	answer := twice
	if strings.Contains(scenario, "hears ") {
		answer = (*request).run
	}
	return func(e *env) { played(e, scenario, answer) }
}

// played plays a scenario. In a bubble, the server answers the requests of scripts with answer.
func played(e *env, scenario string, answer func(*request) (any, error)) {
	e.Helper()
	p := &play{env: e, replicas: map[string]*replica{}, triggers: map[string]ledger.RunID{}, granted: map[uint64]string{}}
	p.anew()
	if e.Bubble != nil {
		p.serve(answer)
	}
	for line := range strings.Lines(scenario) {
		line, _, _ = strings.Cut(line, " #")
		times, text := 1, line
		if before, after, ok := strings.Cut(strings.TrimSpace(line), "x "); ok {
			if n, err := strconv.Atoi(before); err == nil {
				times, text = n, after
			}
		}
		for i := range times {
			for step := range strings.SplitSeq(strings.ReplaceAll(text, "#", strconv.Itoa(i)), ";") {
				p.does(strings.TrimSpace(step))
			}
		}
	}
	if len(p.losses) > 0 {
		lockcoretest.MustFire(e, p.losses...)
	}
}

// anew begins another play with the same replicas, without data.
func (p *play) anew() {
	p.Helper()
	testenv.Must(p, p.Raw.FlushAll(p.Context()).Err())
	p.newest = 0
	p.zero = p.Raw.Time(p.Context()).Val().UTC().Truncate(time.Millisecond).Add(-time.Minute)
	for _, r := range p.replicas {
		r.knows(p.zero)
	}
}

func (p *play) does(step string) {
	p.Helper()
	what, text, asserts := strings.Cut(step, "=>")
	words, want := strings.Fields(what), strings.Fields(text)
	if len(words) == 0 {
		return
	}
	got, known := p.look(words)
	if known {
		if asserts && !slices.Equal(got, want) {
			p.Errorf("%s\nbut %s", step, strings.Join(got, " "))
		}
		return
	}
	got, err := p.replica(words[0]).does(words[1], words[2:], want)
	if err != nil {
		got = append(p.reason(err), got...)
		if errors.Is(err, lockcore.ErrUnknown) {
			got = append(got, "unsure")
		}
		if len(want) == 0 || want[0] != got[0] {
			p.Fatalf("%s\nbut %s: %v", step, strings.Join(got, " "), err)
		}
	}
	for _, fact := range want {
		if unwanted, not := strings.CutPrefix(fact, "!"); not == slices.Contains(got, unwanted) {
			p.Fatalf("%s\nbut %s", step, strings.Join(got, " "))
		}
	}
}

// look does the steps that are about the server.
func (p *play) look(words []string) (result []string, known bool) {
	p.Helper()
	number := func() int {
		if len(words) == 1 {
			return 1000
		}
		n, err := strconv.Atoi(words[1])
		testenv.Must(p, err)
		return n
	}
	switch words[0] {
	case "pass":
		p.Pass(p.duration(words[1]))
	case "clock": // sets it
		p.Bubble.StepClock(p.duration(words[1]))
		p.newest = 0
	case "flush": // the server loses all data
		testenv.Must(p, p.Raw.FlushAll(p.Context()).Err())
	case "anew":
		p.anew()
	case "redis": // a command; @5 is tick 5 as stored, $5 the token of its run, and _ a space
		result = p.redis(words[1:])
	case "keys":
		for _, key := range p.Raw.Keys(p.Context(), p.key("job/draw", words[1])).Val() {
			result = append(result, randomID.ReplaceAllString(key, "*"))
		}
	case "ttl":
		key := p.key("job/draw", words[1])
		if strings.HasSuffix(key, "*") {
			key = p.Raw.Keys(p.Context(), key).Val()[0]
		}
		result = []string{p.PTTL(key).Round(time.Minute).String()}
	case "lives": // the records of replicas
		for field, text := range p.Raw.HGetAll(p.Context(), p.key("job/draw", "job")).Val() {
			if strings.HasPrefix(field, "live:") {
				result = append(result, word(milliseconds.ReplaceAllStringFunc(text, func(text string) string {
					ms, _ := strconv.ParseInt(text, 10, 64)
					return p.at(time.UnixMilli(ms))
				})))
			}
		}
		slices.Sort(result)
	case "history": // the newest entries
		for _, r := range p.runs(number()) {
			text := p.run(ledger.RunID(r.RunID))
			if !r.Last.IsZero() {
				text += "-" + p.at(r.Last)
			}
			if r.Count > 0 {
				text += fmt.Sprint("*", r.Count)
			}
			result = append(result, word(text, string(r.Outcome), r.Error))
		}
	case "acts":
		acts, err := p.job().Actions(p.Context(), number())
		testenv.Must(p, err)
		for _, a := range acts {
			run := ""
			if !a.Tick.IsZero() {
				run = p.run(ledger.RunID(a.RunID))
			}
			result = append(result, word(a.Verb, run, a.By, a.Reason)+"@"+p.at(a.At))
		}
	case "attempts": // those of the newest entry
		result = p.attempts(p.runs(1)[0].Attempts)
	case "record": // of an open run, as it is stored
		result = p.fields(p.Raw.HGet(p.Context(), p.key("job/draw", "job"), "open:"+strconv.FormatInt(p.id(words[1]).Key(), 10)).Val())
	case "entry": // the newest one of the history
		result = p.fields(p.Raw.LIndex(p.Context(), p.key("job/draw", "runs"), 0).Val())
	case "tries": // those of the first open run
		st, err := p.job().Status(p.Context())
		testenv.Must(p, err)
		result = p.attempts(st.Open[0].Attempts)
	default:
		return nil, false
	}
	return result, true
}

func (p *play) attempts(all []singleton.Attempt) (texts []string) {
	for _, a := range all {
		texts = append(texts, word(strconv.Itoa(a.Number), p.holder(a.Holder, a.Token), p.at(a.Start)+"-"+p.at(a.End), a.Error))
	}
	return texts
}

// fields returns the fields of a record.
func (p *play) fields(text string) (all []string) {
	for key, value := range jobFields(text) {
		switch n, _ := strconv.ParseInt(value, 10, 64); key {
		case "start", "til", "end", "tick":
			if n > 0 {
				value = p.at(time.UnixMilli(n))
			}
		case "token":
			value = p.granted[uint64(n)]
		case "run":
			value = strings.Repeat("*", min(len(value), 1))
		}
		all = append(all, key+"="+word(value))
	}
	slices.Sort(all)
	return all
}

// jobFields returns the fields of a record that are texts.
func jobFields(text string) map[string]string {
	fields := map[string]string{}
	_ = json.Unmarshal([]byte(text), &fields)
	for _, list := range []string{"tries", "asked", "cancel"} {
		delete(fields, list)
	}
	return fields
}

// randomID matches the id of an attempt or a replica.
var randomID = regexp.MustCompile(`[A-Z2-7]{26}\S*$`)

// milliseconds are those of an instant.
var milliseconds = regexp.MustCompile(`\b\d{12,}\b`)

var stored = regexp.MustCompile(`@([0-9.]+)@?|\$(\w+)`)

func (p *play) redis(words []string) (result []string) {
	p.Helper()
	var args []any
	for _, text := range words {
		text = strings.ReplaceAll(text, "_", " ")
		switch text {
		case "job", "runs", "acts", "fence", "saved", "payloads":
			text = p.key("job/draw", text)
		case "''":
			text = ""
		}
		args = append(args, stored.ReplaceAllStringFunc(text, func(ref string) string {
			if m := stored.FindStringSubmatch(ref); m[1] != "" {
				return strconv.FormatInt(p.id(m[1]).Key(), 10)
			}
			return p.token(ref[1:])
		}))
	}
	answer, err := p.Raw.Do(p.Context(), args...).Result()
	testenv.Must(p, err)
	return strings.Fields(strings.Trim(fmt.Sprint(answer), "[]"))
}

// token returns the token that a run has now.
func (p *play) token(run string) (token string) {
	for _, r := range p.replicas {
		if claim := r.runs[p.id(run)]; claim != nil {
			token = max(token, strconv.FormatUint(claim.Token(), 10))
		}
	}
	return token
}

// word joins texts, except the last ones that are empty, without spaces and semicolons.
func word(texts ...string) string {
	return strings.NewReplacer(" ", "_", ";", "").Replace(strings.TrimRight(strings.Join(texts, ":"), ":"))
}

func (p *play) duration(text string) time.Duration {
	p.Helper()
	d, err := time.ParseDuration(text)
	testenv.Must(p, err)
	return d
}

// id returns the run with a name; z+1 is the tick a second after the triggered run z.
func (p *play) id(name string) ledger.RunID {
	p.Helper()
	before, after, later := strings.Cut(name, "+")
	trigger, known := p.triggers[before]
	switch {
	case known && later:
		return ledger.RunID{Tick: trigger.Tick.Add(p.duration(after + "s"))}
	case known:
		return trigger
	}
	return ledger.RunID{Tick: p.zero.Add(p.duration(name + "s"))}
}

func (p *play) run(id ledger.RunID) string {
	for name, trigger := range p.triggers {
		if trigger == id {
			return name
		}
	}
	return p.at(id.Tick)
}

func (p *play) at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatFloat(t.Sub(p.zero).Seconds(), 'f', -1, 64)
}

// holder returns the name of a holder and the number of its claim, "?" if it does not have that token.
func (p *play) holder(name string, token uint64) string {
	granted := p.granted[token]
	if before, _, _ := strings.Cut(granted, "/"); before != name {
		return "?"
	}
	return granted
}

func (p *play) reason(err error) []string {
	if refused, ok := errors.AsType[*ledger.ClaimError](err); ok {
		if refused.Job != "draw" || !strings.Contains(err.Error(), "draw") || !errors.Is(err, ledger.ErrNotClaimed) {
			p.Errorf("the refusal is %v", err)
		}
		names := map[ledger.ClaimStatus]string{
			ledger.ClaimBusy: "busy", ledger.ClaimDone: "done", ledger.ClaimEarly: "early", ledger.ClaimPaused: "paused", ledger.ClaimEarlier: "earlier",
			ledger.ClaimStale: "stale", ledger.ClaimRecorded: "recorded", ledger.ClaimNoLedger: "no-ledger", ledger.ClaimLate: "late", ledger.ClaimSuperseded: "acts-no-more",
		}
		return strings.Fields(fmt.Sprintf("%s open=%s holder=%s attempt=%d left=%v last=%s", names[refused.Status],
			p.run(refused.Open), refused.Holder, refused.Attempt, refused.Left, p.at(refused.Last)))
	}
	for _, known := range []struct {
		name string
		err  error
	}{
		{"superseded", ledger.ErrSuperseded},
		{"newer-schema", ledger.ErrNewerSchema},
		{"no-ledger", ledger.ErrNoLedger},
		{"triggers", ledger.ErrTriggers},
		{"running", ledger.ErrRunning},
		{"not-ended", ledger.ErrNotEnded},
		{"succeeded", ledger.ErrSucceeded},
		{"no-run", ledger.ErrNoRun},
		{"not-open", ledger.ErrNotOpen},
		{"conflict", ledger.ErrConflict},
		{"canceled", ledger.ErrCanceled},
		{"not-held", lockcore.ErrNotHeld},
		{"expired", lockcore.ErrLeaseExpired},
		{"unknown", lockcore.ErrUnknown},
	} {
		if errors.Is(err, known.err) {
			_, names, _ := strings.Cut(err.Error(), " running on ")
			return []string{known.name, "on=" + names}
		}
	}
	return []string{cmp.Or(regexp.MustCompile(`\b(NOREPLICAS|OOM|WRONGTYPE)\b`).FindString(err.Error()), "error")}
}

// facts returns the state of the job.
func (p *play) facts(st ledger.State) []string {
	var open, runs, members []string
	for _, run := range st.Open {
		name, act := p.run(run.RunID), func(a *ledger.Action) (text, at string) {
			if a == nil {
				return "", ""
			}
			ms, _ := strconv.ParseInt(a.At, 10, 64)
			return word(a.Verb, a.By, a.Reason), word(a.Verb, a.By, a.Reason) + "@" + p.at(time.UnixMilli(ms))
		}
		requested, asked := act(run.Request)
		by, canceled := act(run.Canceled)
		open = append(open, name)
		for fact := range strings.FieldsSeq(fmt.Sprintf("attempt=%d holder=%s held=%v left=%v due=%s over=%v requested=%s asked=%s by=%s canceled=%s",
			run.Attempt, p.holder(run.Holder, run.Token), run.Running, run.Left, p.at(run.Due), run.EndAnnounced, requested, asked, by, canceled)) {
			runs = append(runs, name+"."+fact)
		}
	}
	for _, m := range st.Members {
		ms, _ := strconv.ParseInt(m.Since, 10, 64)
		members = append(members, word(m.Def, m.Identity)+"@"+p.at(time.UnixMilli(ms)))
	}
	slices.Sort(members)
	return append(runs, strings.Fields(fmt.Sprintf("last=%s ok=%s ran=%s since=%s halted=%s begun=%s "+
		"paused=%v fresh=%v acts=%v lost=%v ttl=%v replicas=%d others=%d acting=%s outcome=%s rescheduled=%s schedule=%s settling=%v by=%s open=%s count=%d members=%s again=%v",
		p.at(st.Last), p.at(st.LastSuccess), p.span(st.NewestRun), p.at(st.PausedSince), p.span(st.NewestPause), p.at(st.Begun),
		st.Paused, st.Fresh, !st.Superseded, st.Lost, st.TTL, st.Replicas, st.Others, st.Active, st.Outcome, p.at(st.Rescheduled), st.Spec, st.Settling, word(st.By.Who, st.By.Reason),
		strings.Join(open, ","), len(open), strings.Join(members, ","), st.Again))...)
}

// span returns a span as text; "-": there is none.
func (p *play) span(s ledger.Span) string {
	if s.End.IsZero() {
		return "-"
	}
	return p.at(s.Begin) + "-" + p.at(s.End)
}

func (p *play) replica(name string) *replica {
	p.Helper()
	if p.replicas[name] == nil {
		p.is(name, nil)
	}
	return p.replicas[name]
}

// is makes a replica with options. The default TTL is long enough for a busy machine.
func (p *play) is(name string, options []string) {
	p.Helper()
	r := &replica{play: p, name: name}
	r.client, r.net = p.Linked(name)
	r.becomes(options)
	r.knows(p.zero)
	p.replicas[name] = r
}

// becomes gives the replica other options.
func (r *replica) becomes(options []string) {
	p := r.play
	p.Helper()
	cfg, by := ledger.Config{Lease: new(testenv.TTL(10 * time.Second))}, lockcore.Operator{}
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "ttl":
			cfg.Lease.TTL = p.duration(value)
		case "renewed":
			cfg.Lease.RenewInterval = p.duration(value)
		case "valid":
			cfg.Lease.ValidFor = p.duration(value)
		case "dead": // its leases are not renewed
			cfg.Lease.NoRenewal = true
		case "attempts":
			cfg.MaxAttempts = n
		case "keeps":
			cfg.KeepRuns = n
		case "retains":
			cfg.Retain = p.duration(value)
		case "overlap":
			cfg.AllowOverlap = true
		case "def":
			cfg.Definition, cfg.Schedule = value, "s"
		case "schedule":
			cfg.Schedule = value
		case "because":
			by = lockcore.Operator{Who: r.name + "@host", Reason: value}
		default:
			p.Fatalf("there is no option %s", option)
		}
	}
	r.ledger, r.by = p.jobLedger(r.client, cfg), by
}

// knows sets where a new ledger begins for the replica.
func (r *replica) knows(begin time.Time) {
	r.state, r.last, r.runs = ledger.State{Last: begin, Fresh: !begin.IsZero()}, time.Time{}, map[ledger.RunID]*ledger.Claim{}
}

// does returns the facts of a step. want are those that it should have.
func (r *replica) does(verb string, args, want []string) (facts []string, err error) {
	r.Helper()
	ctx, l := lockcore.WithOperator(r.Context(), r.by), r.ledger
	if r.state.Now.IsZero() && slices.Contains([]string{"claims", "runs", "skips", "triggers"}, verb) {
		r.state, err = l.Open(ctx, r.state)
		testenv.Must(r, err)
	}
	switch verb {
	case "is":
		r.is(r.name, args)
	case "becomes":
		r.becomes(args)
	case "knows":
		if args[0] == "nothing" {
			r.knows(time.Time{})
		} else {
			r.knows(r.id(args[0]).Tick)
		}
	case "looks": // [shared TICK]
		if len(args) > 0 {
			r.state.Shared = r.id(args[1]).Tick
		}
		r.state, err = l.Open(ctx, r.state)
		r.last = time.Time{}
		return r.facts(r.state), err
	case "checks": // whether it must look
		st, same, err := l.Refresh(ctx, r.state)
		return []string{fmt.Sprint("same=", same), "now=" + r.at(st.Now)}, err
	case "asks":
		st, err := l.Status(ctx)
		return r.facts(st), err
	case "skips": // FIRST[-LAST] REASON
		skip := r.skip(args[0], args[1])
		if err = l.Skip(ctx, r.after(args[2:]), skip); err == nil {
			r.last = skip.Last
		}
	case "pauses":
		return nil, l.Pause(ctx)
	case "resumes":
		return nil, l.Resume(ctx)
	case "leaves":
		return nil, l.Leave(ctx, r.state)
	case "forgets":
		return nil, l.Forget(ctx)
	case "closes":
		return nil, r.client.Close(ctx)
	case "triggers":
		r.triggers[args[0]], err = l.Trigger(ctx)
	case "plans": // ID INSTANT [PAYLOAD]
		id, err := l.TriggerAt(ctx, args[0], r.id(args[1]).Tick, strings.Join(args[2:], " "))
		if err == nil {
			r.triggers[args[0]] = id
		}
		return nil, err
	case "cancels-id":
		return nil, l.CancelAt(ctx, args[0])
	case "cancels": // RUN or "all"
		var id ledger.RunID
		if args[0] != "all" {
			id = r.id(args[0])
		}
		ids, err := l.Cancel(ctx, id)
		for _, id := range ids {
			facts = append(facts, "canceled="+r.run(id))
		}
		return facts, err
	case "reruns": // RUN [scheduled]
		return nil, l.Rerun(ctx, r.id(args[0]), len(args) > 1)
	case "learns": // from the newest refusal, of a state of this age
		all := r.state.ApplyRefusal(r.refused, r.duration(args[0]))
		return append(r.facts(r.state), fmt.Sprint("all=", all)), nil
	case "hears-of": // the end of a run
		all := r.state.ApplyMessage(r.id(args[0]), true)
		return append(r.facts(r.state), fmt.Sprint("all=", all)), nil
	case "watches":
		r.watches()
	case "hears":
		r.hears(want)
		return want, nil
	case "loses": // COUNT replies to a script, 0: all
		r.injures(lockcoretest.Fault{Kind: lockcoretest.SwallowReply}, args)
	case "holds-back": // COUNT requests by a DURATION
		r.injures(lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Delay: r.duration(args[2])}, args)
	case "delays": // replies by a DURATION; "all" are those to all scripts
		r.injures(lockcoretest.Fault{Kind: lockcoretest.DelayReply, Delay: r.duration(args[2])}, args)
	case "heals":
		for _, loss := range r.losses {
			loss.Lift()
		}
	case "breaks":
		r.net.Partition()
	default:
		return r.runsOn(verb, r.id(args[0]), args[1:])
	}
	return nil, err
}

func (r *replica) injures(fault lockcoretest.Fault, args []string) {
	r.Helper()
	fault.Match = testenv.IsScript
	if args[0] != "all" {
		fault.Match = r.script(args[0])
	}
	fault.Count, _ = strconv.Atoi(args[1])
	r.losses = append(r.losses, r.net.Inject(r, fault))
}

// after returns what the replica knows; "after" and a tick: that this is the newest one.
func (r *replica) after(args []string) ledger.State {
	if i := slices.Index(args, "after"); i >= 0 {
		return ledger.State{Last: r.id(args[i+1]).Tick}
	}
	st := r.state
	if r.last.After(st.Last) {
		st.Last = r.last
	}
	return st
}

func (r *replica) skip(ticks, reason string) ledger.Skip {
	from, to, _ := strings.Cut(ticks, "-")
	first, last := r.id(from).Tick, r.id(cmp.Or(to, from)).Tick
	return ledger.Skip{First: first, Last: last, Count: int(last.Sub(first)/time.Second) + 1, Reason: reason}
}

// runsOn does the steps of one run.
func (r *replica) runsOn(verb string, id ledger.RunID, args []string) (facts []string, err error) {
	r.Helper()
	ctx, run := r.Context(), r.runs[id]
	outcome, reason := ledger.OutcomeSucceeded, ""
	if len(args) > 0 && args[0] == ledger.OutcomeFailed {
		outcome, reason = args[0], r.expand(strings.Join(args[1:], ""))
	}
	switch verb {
	case "claims": // RUN [after TICK] [until TICK]
		return r.claims(id, args)
	case "runs": // claims and completes
		if facts, err = r.claims(id, nil); err == nil {
			err = r.runs[id].Complete(ctx, outcome, reason)
		}
		return facts, err
	case "completes":
		return nil, run.Complete(ctx, outcome, reason)
	case "retries": // abandons and claims
		if err := run.Abandon(ctx, true, 0); err != nil {
			return nil, err
		}
		return r.claims(id, nil)
	case "abandons": // RUN [WAIT]
		wait, _ := time.ParseDuration(strings.Join(args, ""))
		return nil, run.Abandon(ctx, true, wait)
	case "withdraws": // before the work began
		return nil, run.Abandon(ctx, false, 0)
	case "unlocks":
		return nil, run.Unlock(ctx)
	case "returns":
		run.Returned()
	case "fails": // returns with a reason; it is not recorded yet
		run.Returned()
		run.Fail(args[0])
	case "doubts": // whether it had its effect
		run.Unsure = true
	case "notices": // that it is canceled, or that its lease has ended
		r.Until("the end is noticed", func() bool { return run.Canceled() != nil || run.Err() != nil })
		by, _ := errors.AsType[*ledger.CanceledError](run.Canceled())
		if by == nil {
			by = new(ledger.CanceledError)
		}
		cause := context.Cause(run.Context())
		return []string{"canceled=" + word(by.By, by.Reason), fmt.Sprint("held=", run.Err() == nil), fmt.Sprint("released=", errors.Is(cause, lockcore.ErrReleased))}, nil
	default:
		r.Fatalf("there is no step %s", verb)
	}
	return nil, nil
}

func (r *replica) expand(text string) string {
	if token, ok := strings.CutPrefix(text, "$"); ok {
		return "a higher token was seen: " + r.token(token)
	}
	return text
}

func (r *replica) claims(id ledger.RunID, args []string) (facts []string, err error) {
	r.Helper()
	var until time.Time
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "until" {
			until = r.id(args[i+1]).Tick
		}
	}
	run, err := r.ledger.Claim(r.Context(), id, r.after(args), until)
	if err != nil {
		r.refused, _ = errors.AsType[*ledger.ClaimError](err)
		return nil, err
	}
	if run.Token() <= r.newest {
		r.Errorf("the token of %s is %d after %d", r.run(id), run.Token(), r.newest)
	}
	r.newest = run.Token()
	r.granted[run.Token()] = fmt.Sprintf("%s/%d", r.name, len(r.granted)+1)
	r.runs[id] = run
	if !id.Triggered && id.Tick.After(r.last) {
		r.last = id.Tick
	}
	asked := ""
	if run.Request != nil {
		asked = word(run.Request.Verb, run.Request.By, run.Request.Reason)
	}
	return strings.Fields(fmt.Sprintf("attempt=%d token=%d unsure=%v dead=%s valid=%v ok=%s asked=%s payload=%s",
		run.Attempt, run.Token(), run.Unsure, run.DeadHolder, run.Remaining(), r.at(run.LastSuccess), asked, word(run.Payload))), nil
}

// watches records the messages about the job: "change", "begin", or the end of a run.
func (r *replica) watches() {
	r.Helper()
	note := func(text string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.heard = append(r.heard, text)
	}
	r.Cleanup(r.ledger.Watch(func(end *ledger.RunID, succeeded bool) {
		if end == nil {
			note("change")
		} else {
			note(fmt.Sprintf("%d:%v", end.Key(), succeeded))
		}
	}))
	r.Cleanup(r.ledger.WatchBegins(func() { note("begin") }))
	r.hears([]string{"begin", "change"}) // subscribed
}

// hears asserts which messages have arrived since it was called last, in any order.
func (r *replica) hears(want []string) {
	r.Helper()
	all := func() []string {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Sorted(slices.Values(r.heard))
	}
	r.Until("messages arrive", func() bool { return len(all()) >= len(want) })
	r.Pass(20 * time.Millisecond)
	var wanted []string
	for _, text := range want {
		if name, succeeded, ok := strings.Cut(text, ":"); ok && name[0] != '-' {
			text = fmt.Sprintf("%d:%s", r.id(name).Key(), succeeded)
		}
		wanted = append(wanted, text)
	}
	slices.Sort(wanted)
	if got := all(); !slices.Equal(got, wanted) {
		r.Errorf("heard %q, want %q", got, wanted)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = nil
}

// A scenario is a row of a table of plays.
type scenario struct {
	name  string
	timed bool // in a bubble only, where all times are exact
	steps string
}

func playAll(t *testing.T, all []scenario) {
	t.Helper()
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			if s.timed {
				t.Parallel()
				inBubble(t, plays(s.steps))
			} else {
				onBoth(t, plays(s.steps))
			}
		})
	}
}
