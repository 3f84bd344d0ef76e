package lockcore_test

import (
	"cmp"
	"crypto/sha1"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A scriptPlay runs scripts on the keys of one name. The steps of a play are between semicolons or on lines of their own.
// "{3 text}" repeats a text three times, each with another number for "%". Most steps are
//
//	ATTEMPT VERB OPTIONS => ANSWER
//
// A script whose answer is not compared must not fail. A.1 is an attempt of process A, of the play's family; if that is "owned", its owner A.1 writes. A.1r/me reads for the
// owner me, and A.1p/- is an attempt of a Semaphore. The verbs are in request and asksMember. The other steps set a
// key, see set, or compare it with the words after "=>"; "_" is any word. All times are milliseconds. @5 is the time
// 5 ms after the start of the play, and #5 is the token of 5 µs after it.
type scriptPlay struct {
	*timed
	family string
	times  int // that each script runs
	ear    *redis.PubSub
	runID  string            // of the server, R in steps
	member map[string]string // the marker of a member of a quorum
	failed error             // of the last script that ran
}

// A scriptScene is a row of a table of plays. It is played for each family, once and with each script twice.
type scriptScene struct {
	name     string
	families string // once: each script runs only once
	steps    string
}

func playScripts(t *testing.T, scenes []scriptScene) {
	t.Helper()
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			for family := range strings.FieldsSeq(strings.TrimSuffix(s.families, "once")) {
				for times := 1; times <= 2 && (times == 1 || !strings.HasSuffix(s.families, "once")); times++ {
					t.Run(fmt.Sprint(family, times), func(t *testing.T) {
						toTheMillisecond(t, func(e *timed) { e.plays(family, times, s.steps) })
					})
				}
			}
		})
	}
}

var repeated = regexp.MustCompile(`\{(\d+) ([^{}]*)\}`)

func (e *timed) plays(family string, times int, steps string) {
	e.Helper()
	p := &scriptPlay{timed: e, family: family, times: times, ear: e.hears("noonlock:ch:*")}
	_, p.runID, _ = strings.Cut(strings.TrimSpace(e.Raw.Info(e.Context(), "server").Val()), "run_id:")
	steps = repeated.ReplaceAllStringFunc(steps, func(text string) string {
		m := repeated.FindStringSubmatch(text)
		n, _ := strconv.Atoi(m[1])
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(m[2], "%", strconv.Itoa(i)))
		}
		return strings.Join(all, " ")
	})
	for line := range strings.Lines(steps) {
		line, _, _ = strings.Cut(line, "//")
		for step := range strings.SplitSeq(line, ";") {
			what, want, asserts := strings.Cut(step, "=>")
			if words := strings.Fields(what); len(words) > 0 {
				got := strings.Fields(p.step(words[0], words[1:], asserts))
				if !asserts && p.failed != nil {
					p.Errorf("%s, each script %d times: %s\nfails: %v", family, times, step, p.failed)
				}
				p.failed = nil
				if asserts && !matches(words[0], got, strings.Fields(want)) {
					p.Errorf("%s, each script %d times: %s\nbut %s", family, times, step, strings.Join(got, " "))
				}
			}
		}
	}
}

// matches compares words.
func matches(what string, got, want []string) bool {
	if what == "messages" || what == "leader" {
		slices.Sort(got)
		slices.Sort(want)
	}
	return slices.EqualFunc(got, want, func(a, b string) bool { return a == b || b == "_" })
}

func (p *scriptPlay) step(what string, words []string, asserts bool) string {
	p.Helper()
	for i, word := range words {
		words[i] = p.long(word)
	}
	switch what {
	case "anew":
		must(p.env, p.Raw.FlushDB(p.Context()).Err())
		p.member = nil
	case "pass":
		p.Pass(call(time.ParseDuration(words[0])).Must(p.env))
	case "lock", "fence", "queue", "notes", "leader":
		if asserts {
			return p.short(p.shown(what))
		}
		p.set(p.Raw, what, words)
	case "member": // [FIELD:VALUE]... of a quorum: anew with its marker
		must(p.env, p.Raw.FlushDB(p.Context()).Err())
		p.member = map[string]string{
			"run": p.runID, "id": "a", "list": "2/5/3/aa", "servers": "a b c d e", "after": p.ms(0), "longest": "60000", "top": "7",
		}
		for _, word := range words {
			field, value, _ := strings.Cut(word, ":")
			p.member[field] = strings.ReplaceAll(value, "R", p.runID)
		}
		must(p.env, p.Raw.HSet(p.Context(), quorumMarkerKey, p.member).Err())
	case "token":
		return p.short(p.storedOwned("orders").tokens[words[0]])
	case "waiters", "messages", "marker", "tomb":
		return p.short(p.shown(what))
	case "redis":
		args := []any{}
		for _, word := range words {
			args = append(args, p.part(word))
		}
		return p.short(fmt.Sprint(call(p.Raw.Do(p.Context(), args...).Result()).Must(p.env)))
	default:
		return p.script(p.long(what), words[0], words[1:])
	}
	return ""
}

// part returns the key with the name of a part, and other words as they are.
func (p *scriptPlay) part(word string) string {
	switch word {
	case "lock", "fence", "queue", "seen", "size", "leader", "forced", "releases":
		return p.key("orders", word)
	case "tomb":
		return p.key("orders", "tomb:ALIVE.1")
	}
	return word
}

var (
	shortAttempt = regexp.MustCompile(`^(([A-Z]\w*)\.\d+)(?:([wrp])/([^:#]+))?`)
	longAttempt  = regexp.MustCompile(`n[lsp]1:((\w+)\.\d+)(?:\.([wrp])/(\S+) \w+|/\w+)`)
	shortTime    = regexp.MustCompile(`[@#]-?\d+`)
	longTime     = regexp.MustCompile(`\b\d{12,}\b`)
)

// long returns a word as scripts write it.
func (p *scriptPlay) long(word string) string {
	word = shortTime.ReplaceAllStringFunc(word, func(text string) string {
		n := call(strconv.ParseInt(text[1:], 10, 64)).Must(p.env)
		if text[0] == '#' {
			return strconv.FormatInt(p.now.UnixMicro()+n, 10)
		}
		return strconv.FormatInt(p.now.UnixMilli()+n, 10)
	})
	m := shortAttempt.FindStringSubmatch(word)
	if m == nil {
		return word
	}
	attempt := "nl1:" + m[1] + "/" + m[2]
	switch {
	case m[3] == "p":
		attempt = "np1:" + m[1] + ".p/- id"
	case m[3] != "":
		attempt = "ns1:" + m[1] + "." + m[3] + "/" + m[4] + " id"
	case p.family == "owned":
		attempt = "ns1:" + m[1] + ".w/" + m[1] + " id"
	}
	return attempt + word[len(m[0]):]
}

// short is the inverse of long, for a whole text.
func (p *scriptPlay) short(text string) string {
	text = strings.ReplaceAll(text, p.runID, "R")
	text = longAttempt.ReplaceAllStringFunc(text, func(attempt string) string {
		m := longAttempt.FindStringSubmatch(attempt)
		if attempt == p.long(m[1]) {
			return m[1]
		}
		return m[1] + m[3] + "/" + cmp.Or(m[4], m[2])
	})
	return longTime.ReplaceAllStringFunc(text, func(digits string) string {
		n := call(strconv.ParseInt(digits, 10, 64)).Must(p.env)
		if ms := n - p.now.UnixMilli(); max(ms, -ms) < week.Milliseconds() {
			return fmt.Sprint("@", ms)
		}
		if us := n - p.now.UnixMicro(); max(us, -us) < week.Microseconds() {
			return fmt.Sprint("#", us)
		}
		return digits
	})
}

// set writes a key:
//
//	lock ATTEMPT[:LEFT[:TOKEN[:MODE]]]... [key:LEFT]   LEFT is 60000 by default, and tokens begin at #-9; another
//	                                            holder than an attempt has no TTL by default
//	fence VALUE[:LEFT]
//	queue ATTEMPT[:PLACE[:UNTIL]]...            in this order; "-": nothing is known of the waiter
//	notes PROCESS:UNTIL...                      -UNTIL after a call
//	leader ATTEMPT [FIELD:VALUE]...             of the record of an election
//
// A waiter may also be a process; its number is then its place in the step.
func (p *scriptPlay) set(to redis.Cmdable, what string, words []string) {
	p.Helper()
	ctx, key, now := p.Context(), p.part(what), time.Now()
	switch what {
	case "notes":
		must(p.env, to.HDel(ctx, p.part("seen"), "!").Err())
	case "queue":
		must(p.env, to.Del(ctx, key, p.part("seen")).Err())
	default:
		must(p.env, to.Del(ctx, key).Err())
	}
	var entries []storedEntry
	tokens := map[string]int64{}
	var end int64
	notes := ""
	for i, word := range words {
		tag := "" // of an attempt
		if strings.HasPrefix(word, "n") && strings.Index(word, ":") == 3 {
			tag = word[:4]
		}
		prefix, rest, _ := strings.Cut(word[len(tag):], ":")
		prefix = tag + prefix
		fields := append(strings.Split(rest, ":"), "", "", "")
		number := func(n int, otherwise int64) int64 {
			if fields[n] == "" {
				return otherwise
			}
			return call(strconv.ParseInt(fields[n], 10, 64)).Must(p.env)
		}
		switch {
		case what == "lock" && tag != "" && tag != "nl1:":
			mode := cmp.Or(fields[2], longAttempt.FindStringSubmatch(prefix)[3])
			x := storedEntry{prefix, mode, now.UnixMilli() + number(0, 60000)}
			entries, tokens[prefix], end = append(entries, x), number(1, p.now.UnixMicro()-9+int64(i)), max(end, x.until)
		case what == "lock" && prefix == "key":
			end = now.UnixMilli() + number(0, 0)
		case what == "lock" && tag != "":
			must(p.env, to.Set(ctx, key, prefix, time.Duration(number(0, 60000))*time.Millisecond).Err())
		case what == "lock", what == "fence":
			must(p.env, to.Set(ctx, key, prefix, time.Duration(number(0, 0))*time.Millisecond).Err())
		case what == "leader" && i == 0:
			by := fmt.Sprintf("%x", sha1.Sum([]byte(word))) //nolint:gosec // as in the script
			must(p.env, to.HSet(ctx, key, "v", 1, "by", by, "holder", "pod").Err())
		case what == "leader":
			must(p.env, to.HSet(ctx, key, prefix, rest).Err())
		case what == "notes":
			notes += prefix + " " + fields[0] + "\n"
			must(p.env, to.HSet(ctx, p.part("seen"), "!", notes).Err())
		default: // the queue
			if tag == "" && prefix != nonsense {
				prefix = p.long(fmt.Sprint(prefix, ".", i))
			}
			place := number(0, p.now.UnixMilli()-60000+int64(i))
			must(p.env, to.ZAdd(ctx, key, redis.Z{Score: float64(place), Member: prefix}).Err())
			if fields[1] != "-" {
				must(p.env, to.HSet(ctx, p.part("seen"), prefix, number(1, p.now.UnixMilli()+60000)).Err())
			}
		}
	}
	if entries != nil {
		must(p.env, to.ZAdd(ctx, key, zOwned(entries, tokens)...).Err())
		must(p.env, to.PExpireAt(ctx, key, time.UnixMilli(end)).Err())
	}
}

func (p *scriptPlay) ttl(part string) int64 {
	left := p.Raw.PTTL(p.Context(), p.part(part)).Val()
	if left < 0 {
		return int64(left) // without a TTL, or without a key
	}
	return left.Milliseconds()
}

// shown returns a key in the words that set it.
func (p *scriptPlay) shown(what string) string {
	p.Helper()
	ctx := p.Context()
	var words []string
	switch what {
	case "lock":
		switch p.Raw.Type(ctx, p.part(what)).Val() {
		case "string":
			return fmt.Sprintf("%s:%d", p.Raw.Get(ctx, p.part(what)).Val(), p.ttl(what))
		case "zset":
			s, now := p.storedOwned("orders"), time.Now().UnixMilli()
			for _, x := range s.entries {
				word := fmt.Sprintf("%s:%d", x.attempt, x.until-now)
				if slot, ok := s.slots[x.attempt]; ok {
					word += fmt.Sprint(":", slot)
				}
				words = append(words, word)
			}
			if left := p.ttl(what); left < s.end-now-1 || left > s.end-now {
				words = append(words, fmt.Sprint("key:", left))
			}
		}
	case "queue":
		for _, z := range p.Raw.ZRangeWithScores(ctx, p.part(what), 0, -1).Val() {
			member, _ := z.Member.(string)
			words = append(words, fmt.Sprintf("%s:%.0f:%s", member, z.Score, p.Raw.HGet(ctx, p.part("seen"), member).Val()))
		}
		if left := p.ttl(what); left > 0 {
			words = append(words, fmt.Sprintf("for:%d/%d", left, p.ttl("seen")))
		}
	case "waiters":
		words = p.Raw.ZRange(ctx, p.part("queue"), 0, -1).Val()
	case "notes": // ~UNTIL: a long one
		notes, err := p.Raw.HGet(ctx, p.part("seen"), "!").Result()
		if err == nil && notes == "" {
			return "a field without notes"
		}
		for line := range strings.Lines(notes) {
			line = strings.TrimSuffix(line, "\n")
			digits := line[strings.LastIndexAny(line, " -")+1:]
			if len(digits) == 40 {
				line = strings.TrimSuffix(line, digits) + "~" + strings.TrimLeft(digits, "0")
			}
			words = append(words, strings.Replace(line, " ", ":", 1))
		}
	case "messages":
		for _, text := range p.Received(p.ear, "noonlock:ch:") {
			words = append(words, p.message(strings.Fields(p.short(text))))
		}
	case "marker": // what has changed
		all := p.Raw.HGetAll(ctx, quorumMarkerKey).Val()
		for field := range p.member {
			all[field] += ""
		}
		for _, field := range slices.Sorted(maps.Keys(all)) {
			if all[field] != p.member[field] {
				words = append(words, field+"="+strings.ReplaceAll(all[field], " ", "+"))
			}
		}
	case "leader":
		for field, value := range p.Raw.HGetAll(ctx, p.part(what)).Val() {
			if field != "by" {
				words = append(words, field+"="+value)
			}
		}
	default:
		if p.Exists(p.part(what)) {
			return fmt.Sprint(p.Raw.Get(ctx, p.part(what)).Val(), ":", p.ttl(what))
		}
	}
	return strings.Join(words, " ")
}

// message returns a message as KIND[LEFT]:ATTEMPT. Without LEFT, it says when the lock ends.
func (p *scriptPlay) message(fields []string) string {
	last := len(fields) - 1
	process := strings.TrimPrefix(fields[0], "noonlock:ch:")
	if last < 3 || fields[2] != "noonlock:{orders}:lock" || !strings.HasPrefix(fields[last], process+".") {
		return strings.Join(fields, " ")
	}
	left := strings.Join(fields[3:last], " ")
	if left == p.ends() {
		left = ""
	}
	return fields[1] + left + ":" + fields[last]
}

// ends returns in how many ms the lock has ended. With owners, it ends after a whole millisecond of the clock.
func (p *scriptPlay) ends() string {
	if s := p.Raw.Type(p.Context(), p.part("lock")).Val(); s == "zset" {
		return strconv.FormatInt(p.storedOwned("orders").end-time.Now().UnixMilli()+1, 10)
	}
	return strconv.FormatInt(p.ttl("lock"), 10)
}

// acquireAnswers are the names of the codes that acquire returns.
var acquireAnswers = []string{"", "held", "near", "queued", "busy", "gone", "buried", "kind", "upgrade"}

// script runs a script of an attempt.
func (p *scriptPlay) script(me, verb string, options []string) string {
	p.Helper()
	if p.family == "quorum" {
		return p.asksMember(me, verb, p.given(options))
	}
	script, keys, args := p.request(me, verb, options)
	answer := p.runs(script, keys, args)
	if code, rest, _ := strings.Cut(answer, " "); strings.HasSuffix(script, "_acquire") {
		n := call(strconv.Atoi(code)).Must(p.env)
		answer = acquireAnswers[n] + " " + rest
	}
	return p.short(answer)
}

// given returns the values of options.
func (p *scriptPlay) given(options []string) map[string]string {
	given := map[string]string{}
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		given[name] = p.long(value)
	}
	return given
}

// request returns the script that a verb runs, with its keys and arguments.
func (p *scriptPlay) request(me, verb string, options []string) (script string, keys []string, args []any) {
	p.Helper()
	given := p.given(options)
	family := "mutex_"
	keys = p.slotKeys("orders")[:5:5]
	if strings.HasPrefix(me, "ns1:") {
		family = "owned_"
	} else if strings.HasPrefix(me, "np1:") {
		family, keys = "owned_", p.slotKeys("orders")
	}
	ttl, keep := cmp.Or(given["ttl"], "60000"), cmp.Or(given["keep"], "600000")
	script = family + strings.TrimSuffix(verb, "s")
	switch verb {
	case "tries", "joins", "looks", "resumes":
		script = family + "acquire"
		mode := map[string]string{"tries": "try", "joins": "join", "looks": "look", "resumes": given["at"]}[verb]
		if within, ok := given["within"]; ok {
			mode += "," + within
		}
		args = []any{me, ttl, mode, keep}
		if keep == "none" {
			args[3] = false
		}
		if family == "owned_" {
			args = append(args, given["extends"])
		}
	case "leaves":
		args = []any{me, cmp.Or(given["tomb"], "0"), keep, 0}
		if _, ok := given["last"]; ok {
			args[3] = 1
		}
	case "renews":
		args = []any{me, ttl}
		keys = keys[:1]
		switch _, keeps := given["keeps"]; { // the counter of tokens, or the size
		case keeps && strings.HasPrefix(me, "np1:"):
			keys, args = []string{keys[0], p.part("size")}, append(args, 1)
		case keeps && family == "mutex_":
			keys, args = p.scriptKeys("orders")[:2], append(args, keep)
		}
	case "downgrades":
		args, keys = []any{me}, keys[:4]
	case "resizes":
		args, keys = []any{given["to"]}, append(keys[:4:4], p.part("size"))
	case "promotes":
		script, args, keys = "lock_promote", []any{me, given["to"]}, []string{keys[0], keys[2], keys[3]}
	case "forces":
		script, args = "lock_force", []any{"string", me}
		keys = []string{keys[0], keys[2], p.part("forced"), p.part("releases")}
	case "inspected":
		script, keys = "lock_inspect", append(keys[:4:4], p.part("size"))
	default:
		p.Fatalf("there is no step %s", verb)
	}
	args = argv(script, args...)
	if given["news"] != "" { // of a record
		keys, args = append(keys, p.part("leader")), append(args, 0, "noonlock:ch:NEWS")
	}
	return script, keys, args
}

// asksMember runs a script of a quorum. An empty part of its answer is "-".
func (p *scriptPlay) asksMember(me, verb string, given map[string]string) string {
	p.Helper()
	lock, tomb := p.part("lock"), p.part("tomb")
	list, ttl := cmp.Or(given["list"], "2/5/3/aa"), cmp.Or(given["ttl"], "50000")
	var answer string
	switch verb {
	case "acquires":
		answer = p.runs("quorum_acquire", []string{lock, tomb, quorumMarkerKey}, []any{me, ttl, list})
	case "renews":
		answer = p.runs("quorum_renew", []string{lock, tomb, quorumMarkerKey}, []any{me, ttl, list, given["token"]})
	case "states":
		answer = p.runs("quorum_state", []string{quorumMarkerKey}, []any{given["number"]})
	case "joins":
		answer = p.runs("quorum_join", []string{quorumMarkerKey}, []any{
			given["number"], strings.Trim(cmp.Or(given["had"], "2/5/3/aa"), "-"), list, "v w x y z", "z", given["longest"], "9", cmp.Or(given["waits"], "0"),
		})
	case "leaves":
		args := []any{me, cmp.Or(given["tomb"], "0"), given["channel"]}
		if given["news"] != "" {
			answer = p.runs("quorum_leave", []string{lock, tomb, p.part("leader")}, append(args, "noonlock:ch:NEWS"))
		} else {
			answer = p.runs("quorum_leave", []string{lock, tomb}, args)
		}
	default:
		p.Fatalf("there is no step %s", verb)
	}
	parts := strings.Split(answer, " ")
	for i, part := range parts {
		parts[i] = cmp.Or(part, "-")
	}
	return p.short(strings.Join(parts, " "))
}

// runs runs a script as often as the play does, and returns the first answer.
func (p *scriptPlay) runs(script string, keys []string, args []any) string {
	p.Helper()
	answer, err := p.eval(script, keys, args)
	p.failed = err
	for range p.times - 1 {
		if _, again := p.eval(script, keys, args); err == nil && again != nil {
			p.Errorf("%s: its second run fails: %v", script, again)
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(answer, "["), "]")
}
