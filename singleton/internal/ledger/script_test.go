package ledger_test

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/singleton/internal/ledger"
)

// A request calls a script in a bubble.
type request struct {
	*play
	script string
	words  []any
}

func (r *request) run() (answer any, err error) {
	return r.Raw.Do(r.Context(), r.words...).Result()
}

// keys returns the keys that the request declares.
func (r *request) keys() (keys []string) {
	n, err := strconv.Atoi(fmt.Sprint(r.words[2]))
	testenv.Must(r, err)
	for _, key := range r.words[3 : 3+n] {
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// serve makes the server answer the requests of scripts with answer, one at a time.
func (p *play) serve(answer func(r *request) (any, error)) {
	p.Helper()
	scripts, busy := map[string]func(cmd []string) bool{}, atomic.Bool{}
	for name := range strings.FieldsSeq("abandon cancel claim complete forget leave open pause refresh renew rerun skip status trigger") {
		scripts[name] = p.script("job_" + name)
	}
	p.Bubble.Server().Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		r := &request{play: p, words: []any{cmd}}
		for name, matches := range scripts {
			if matches(append([]string{cmd}, args...)) {
				r.script = name
			}
		}
		if r.script == "" || p.Context().Err() != nil || !busy.CompareAndSwap(false, true) {
			return false
		}
		defer busy.Store(false)
		for _, arg := range args {
			r.words = append(r.words, arg)
		}
		result, err := answer(r)
		c.Block(func(w *server.Writer) { write(w, result, err) })
		return true
	})
}

func write(w *server.Writer, answer any, err error) {
	switch a := answer.(type) {
	case int64:
		w.WriteInt(int(a))
	case string:
		w.WriteBulk(a)
	case []any:
		w.WriteLen(len(a))
		for _, element := range a {
			write(w, element, nil)
		}
	default:
		w.WriteError(fmt.Sprint(err))
	}
}

// picture returns all keys with their TTLs.
func (p *play) picture() string {
	m := p.Bubble.Server()
	all := []any{m.Dump()}
	for _, key := range m.Keys() {
		all = append(all, key, m.TTL(key))
	}
	return fmt.Sprintln(all...)
}

// twice runs a script twice. The second time it changes nothing, and its answer is the first or the declared one.
func twice(r *request) (any, error) {
	first, err := r.run()
	if err != nil {
		return nil, err
	}
	if slices.Contains(list(first), nil) {
		r.Errorf("job_%s answers %v", r.script, first)
	}
	middle := r.picture()
	second, err := r.run()
	if after := r.picture(); err != nil || after != middle {
		r.Errorf("job_%s, run twice: %v, and it changed\n%s to\n%s", r.script, err, middle, after)
	}
	if ttl := r.PTTL(r.key("job/draw", "job")); ttl != -1 && ttl <= time.Millisecond {
		return first, nil // the ledger expires, or was forgotten
	}
	if one, two := code(first), code(second); !slices.Contains(r.codes(), one) || two != declaredSecond(r.script, one) && (r.script != "cancel" || two != one) {
		r.Errorf("job_%s answers %v, then %v", r.script, first, second)
	}
	return first, nil
}

// codes returns the codes of the answers that the script declares.
func (r *request) codes() (all []string) {
	file, err := fs.ReadFile(ledger.ScriptFiles, "lua/job_"+r.script+".lua")
	testenv.Must(r, err)
	for _, m := range declaredCode.FindAllSubmatch(file, -1) {
		all = append(all, string(m[1]))
	}
	return append(all, "1", "10", "11") // of part_state and part_ledger
}

var declaredCode = regexp.MustCompile(`(?m)^-- (?:Returns|       ) \{?(\d+)`)

// list returns the answer of a reply that is a list. See wire.Naming.
func list(reply any) []any {
	named, _ := reply.([]any)
	if len(named) != 2 {
		return nil
	}
	answer, _ := named[1].([]any)
	return answer
}

// code returns the code of a reply.
func code(reply any) string {
	if answer := list(reply); answer != nil {
		return fmt.Sprint(answer[0])
	}
	if _, number, ok := strings.Cut(fmt.Sprint(reply), ":"); ok {
		return number
	}
	return "1" // the time of the server
}

// declaredSecond returns the second answer of a script if it is not the first.
func declaredSecond(script, first string) string {
	switch {
	case script == "abandon" && first == "1", script == "leave" && first == "1":
		return "0"
	case script == "cancel" && first == "1":
		return "17" // unless a run is still held
	case script == "skip" && first == "1", script == "claim" && first == "9":
		return "3"
	}
	return first
}

// isRefused reports whether the request fails on a copy of the database in which a key is of another type.
func (r *request) isRefused(key, part string) bool {
	ctx, m := r.Context(), r.Bubble.Server()
	for _, key := range m.Keys() {
		testenv.Must(r, r.Raw.Copy(ctx, key, key, 1, true).Err())
	}
	m.SwapDB(0, 1)
	defer func() {
		m.SwapDB(0, 1)
		m.DB(1).FlushDB()
	}()
	m.Del(key)
	if part == "fence" || strings.HasPrefix(part, "tomb") {
		testenv.Call(m.Push(key, "spoilt")).Must(r) // it is a string
	} else {
		testenv.Must(r, m.Set(key, "spoilt"))
	}
	before := r.picture()
	answer, err := r.run()
	if after := r.picture(); err != nil && after != before {
		r.Errorf("job_%s with %s spoilt: %v, and half is done:\n%s, before\n%s", r.script, part, err, after, before)
	}
	if err == nil && r.script == "claim" && part == "runs" && code(answer) == "1" {
		r.Errorf("job_claim with %s spoilt: granted, and its end cannot be recorded", part)
	}
	return err != nil
}

// One of a job's keys is of another type (fault 32). Each script that needs it returns an
// error before it has written anything, because its writes would stay. None of them repairs
// the type.
// Mutants: the type of the history, or of any key, is checked half-way.
func TestJobScriptsOnSpoiltKeys(t *testing.T) {
	inBubble(t, func(e *env) {
		refused := map[string]bool{}
		played(e, `
			a is ttl=2s dead attempts=3; b is attempts=3; o is because=bug
			a claims 1; a withdraws 1; a claims 1; pass 2s; b claims 1; b fails 1 boom; b abandons 1; b claims 1; b completes 1 failed boom
			o reruns 1; b claims 1; o cancels 1; b completes 1; b skips 2-4 missed; b skips 5 missed
			o pauses; b claims 6 => paused; o resumes; o triggers x; a claims x; pass 2s; o cancels x
			o plans y 70 p; o cancels-id y; o reruns y; pass 10s; b claims y; b completes y failed boom
			b asks; b looks; b looks; b leaves; pass 90s; o forgets; b looks`, func(r *request) (any, error) {
			for _, key := range r.keys() {
				_, part, _ := strings.Cut(key, "}:")
				if r.isRefused(key, part) {
					refused[r.script+":"+part] = true
				}
			}
			return r.run()
		})
		for want := range strings.FieldsSeq("claim:job claim:runs claim:fence complete:job complete:runs open:job open:runs skip:job skip:runs") {
			if !refused[want] {
				e.Errorf("never refused: %s", want)
			}
		}
	})
}
