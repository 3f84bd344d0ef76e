package judge_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/test/chaos/internal/history"
	"github.com/noonlock/noonlock/test/chaos/internal/judge"
)

// parse reads a history that is written by hand, and what a judge must find in it. Its lines are
//
//	config JSON
//	lease PROCESS FROM-UNTIL ask= release= kind= mode= token= slot=   without release, the process dies
//	call PROCESS FROM-END mode= deadline=                             it returns no lease
//	write PROCESS AT token= id=                                       id is the number of the lease's line
//	fault NAME FROM-TO class= target=
//	run JOB TICK outcome= count=, row JOB TICK, stall MACHINE FROM-TO, exit PROCESS AT, left SERVER AT
//	want CLASS RULE
//
// Times are in ms.
func parse(t *testing.T, text string) (all []history.Event, want []string) {
	t.Helper()
	instant := func(ms int64) int64 { return ms*1e6 + 1e9 }
	add := func(ms int64, what string, e history.Event) {
		e.T, e.What = instant(ms), what
		all = append(all, e)
	}
	cfg := &history.Config{TTL: time.Second, Slots: 2, Every: time.Second}
	add(0, history.Setup, history.Event{W: "harness", Config: cfg})
	id := 0
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch rest := strings.Join(words[1:], " "); words[0] {
		case "config":
			testenv.Must(t, json.Unmarshal([]byte(rest), cfg))
			continue
		case "want":
			want = append(want, rest)
			continue
		}
		id++
		e := history.Event{W: words[1], ID: id, Name: "orders", Kind: history.Mutex}
		var from, to int64
		_, _ = fmt.Sscanf(words[2], "%d-%d", &from, &to)
		var also struct{ Ask, Release, Deadline int64 }
		for _, word := range words[3:] {
			key, value, _ := strings.Cut(word, "=")
			if strings.Trim(value, "0123456789") != "" {
				value = `"` + value + `"`
			}
			field := []byte(`{"` + key + `":` + value + `}`)
			if json.Unmarshal(field, &e) != nil || json.Unmarshal(field, &also) != nil {
				t.Fatal(line)
			}
		}
		switch words[0] {
		case "lease":
			add(cmp.Or(also.Ask, from-1), history.Ask, e)
			e.Until = instant(to)
			add(from, history.Granted, e)
			if also.Release > 0 {
				add(also.Release, history.Release, e)
				add(also.Release+1, history.Released, e)
			}
		case "call":
			if also.Deadline > 0 {
				e.Until = instant(also.Deadline)
			}
			add(from, history.Ask, e)
			add(to, history.Failed, e)
		case "write":
			add(from, history.Accepted, e)
		case "fault":
			e.W, e.Fault = "harness", words[1]
			add(from, history.Begin, e)
			add(to, history.End, e)
		case history.Run, history.Row:
			e.Tick = from
			add(9000, words[0], e)
		case history.Stall:
			e.Until = instant(to)
			add(from, words[0], e)
		default:
			e.Err = "panic"
			add(from, words[0], e)
		}
	}
	slices.SortStableFunc(all, func(a, b history.Event) int { return cmp.Compare(a.T, b.T) })
	return all, want
}

// TestJudge judges the histories of testdata, in which each rule is broken once, and barely not.
func TestJudge(t *testing.T) {
	t.Parallel()
	text := testenv.Call(os.ReadFile("testdata/histories.txt")).Must(t)
	for part := range strings.SplitSeq("\n\n"+string(text), "\n\n# ") {
		name, past, _ := strings.Cut(part, "\n")
		if name == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			events, want := parse(t, past)
			var got []string
			for _, v := range judge.Judge(events).Violations {
				got = append(got, v.Class+" "+v.Rule)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
