package lockcore_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// note returns a line of the notes. It is so long that Redis keeps their hash as a table.
func note(process, mark, till string) string { return fmt.Sprintf("%s %s%040s\n", process, mark, till) }

// Each request of a process confirms the grants of that process: its note is removed, and the notes on other
// processes stay. The field is deleted with its last note.
func TestRequestsConfirmGrants(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, again, waiter = "ns1:ALIVE.1.w/me id", "ns1:ALIVE.2.w/me id", "ns1:OTHER.2.w/other id"
		k := e.scriptKeys("orders")
		for _, row := range []struct {
			name, script string
			state        keyState
			args         []any
			granted      string // the process to which the request grants the lock
		}{
			{"a holder looks", "mutex_acquire", heldBy(me, unknown), []any{me, 60000, "look"}, ""},
			{"a waiter joins", "mutex_acquire", heldBy(stranger, unknown), []any{me, 60000, "join"}, ""},
			{"a holder leaves", "mutex_leave", heldBy(me, unknown), []any{me, 0}, "NOBODY"},
			{"a waiter leaves", "mutex_leave", heldBy(stranger, unknown, me), []any{me, 0}, ""},
			{"an owner looks", "owned_acquire", heldBy(mine, waiter), []any{mine, 60000, "look"}, ""},
			{"an owner joins", "owned_acquire", heldBy(waiter), []any{mine, 60000, "join"}, ""},
			{"an owner passes the queue", "owned_acquire", heldBy(mine, waiter), []any{again, 60000, "join"}, ""},
			{"an owner leaves", "owned_leave", heldBy(mine, waiter), []any{mine, 0}, "OTHER"},
		} {
			for _, notes := range []struct{ before, after string }{
				{"ALIVE 17\n", ""},
				{"ALIVE -17\n", ""},
				{"DEAD 17\nALIVE 17\nGONE -17\n", "DEAD 17\nGONE -17\n"},
				{"DEAD 17\n", "DEAD 17\n"},
				{"DEAD -17\nGONE " + e.ms(time.Millisecond) + "\n", "DEAD -17\nGONE " + e.ms(time.Millisecond) + "\n"},
			} {
				e.establish("orders", row.state)
				must(e.env, e.Raw.HSet(e.Context(), k[3], "!", notes.before).Err())
				e.run(row.script, k, append(row.args, keep.Milliseconds())...)
				want := notes.after
				switch {
				case row.granted == "":
				case strings.Contains(want, " 17\n"): // a grant has lapsed
					want = strings.ReplaceAll(want, " 17\n", " -17\n") + note(row.granted, "-", e.ms(250*time.Millisecond))
				default:
					want += note(row.granted, "", e.ms(time.Second))
				}
				equal(e, fmt.Sprintf("%s: the notes %q become", row.name, notes.before),
					e.Raw.HGet(e.Context(), k[3], "!").Val(), want)
				if want == "" && e.Raw.HExists(e.Context(), k[3], "!").Val() {
					e.Errorf("%s: the field of the notes is left without a note", row.name)
				}
			}
		}
	})
}

// The waiters of a process are passed over from the millisecond in which its grant had to be confirmed, and not
// earlier.
func TestNotesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
		for till, queue := range map[time.Duration]string{
			time.Millisecond: "[" + living + " " + unknown + "]",
			0:                "[" + unknown + "]",
		} {
			e.fillQueue("orders", living, -minute, minute, unknown, -minute/2, minute)
			must(e.env, e.Raw.HSet(e.Context(), k[3], "!", "ALIVE "+e.ms(till)+"\n").Err())
			e.run("mutex_acquire", k, "nl1:OTHER.1/tries", 60000, "try", keep.Milliseconds())
			equal(e, "the queue, "+till.String()+" before that", e.members("orders"), queue)
		}
	})
}

// An attempt keeps the token of its own entry, or of the entry that its request names, and otherwise gets a new one.
// The owner's other entries do not count, as nobody may hold them any more.
func TestWhoseTokenIsKept(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		const (
			sibling, reader = "ns1:ALIVE.2.w/me id", "ns1:ALIVE.2.r/me id"
			other           = "ns1:OTHER.3.r/other id"
			ended           = -time.Millisecond
		)
		for _, row := range []struct {
			name    string
			mode    string
			own     time.Duration // how long the attempt has an entry; 0: it has none
			entries []ownedEntry  // others
			extends string
			later   bool // a later token was given than those of the entries
			keeps   int  // the entry whose token it gets; -1: its own; -2: a new one
		}{
			{"nobody has", "w", 0, nil, "", false, -2},
			{"a repeated request", "w", minute, nil, "", false, -1},
			{"a repeated request that names another", "w", minute, []ownedEntry{{"w", sibling, minute}}, sibling, false, 0},
			{"a repeated request that names one that is gone", "r", minute, nil, sibling, false, -1},
			{"a repeated request, after later tokens", "w", minute, nil, "", true, -2},
			{"a repeated request to read, after later tokens", "r", minute, nil, "", true, -1},
			{"a repeated request that may keep none", "w", minute, nil, "-", false, -2},
			{"a repeated request to read that may keep none", "r", minute, nil, "-", false, -2},
			{"beside one that is not named", "w", 0, []ownedEntry{{"w", sibling, minute}}, "", false, -2},
			{"beside one that is named", "w", 0, []ownedEntry{{"w", sibling, minute}}, sibling, false, 0},
			{"beside one that is named, after later tokens", "w", 0, []ownedEntry{{"w", sibling, minute}}, sibling, true, -2},
			{"in its last millisecond", "w", 0, []ownedEntry{{"w", sibling, 0}, {"w", "ns1:ALIVE.4.w/me id", minute}}, sibling, false, 0},
			{"named, and its end is over", "w", 0, []ownedEntry{{"w", "ns1:ALIVE.4.w/me id", minute}, {"w", sibling, ended}}, sibling, false, -2},
			{"reads beside one that writes", "r", 0, []ownedEntry{{"w", sibling, minute}}, sibling, true, 0},
			{"reads beside another owner", "r", 0, []ownedEntry{{"r", reader, minute}, {"r", other, minute}}, reader, true, 0},
			{"reads beside one that is not named", "r", 0, []ownedEntry{{"r", reader, minute}}, "", false, -2},
			{"begins to write", "w", 0, []ownedEntry{{"r", reader, minute}}, reader, false, -2},
			{"writes, and names one that was downgraded", "w", 0, []ownedEntry{{"r", sibling, minute}}, sibling, false, -2},
		} {
			mine := "ns1:ALIVE.1." + row.mode + "/me id"
			entries := row.entries
			if row.own != 0 {
				entries = append(entries, ownedEntry{row.mode, mine, row.own})
			}
			e.establish("orders", keyState{entries: entries})
			last := firstToken + int64(row.keeps)
			if row.keeps < 0 {
				last = firstToken + int64(len(entries)) - 1
			}
			if row.later {
				last = firstToken + 99
			}
			must(e.env, e.Raw.Set(e.Context(), k[1], last, time.Hour).Err())
			answer := e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds(), row.extends)
			var token int64
			call(fmt.Sscanf(answer, "[1 %d]", &token)).Must(e.env)
			want := firstToken + int64(row.keeps)
			if row.keeps == -1 {
				want = firstToken + int64(len(entries)) - 1
			}
			if isNew := token > last; row.keeps == -2 && !isNew || row.keeps > -2 && token != want {
				e.Errorf("%s: token %d, the last is %d", row.name, token, last)
			}
			equal(e, row.name+": stored", e.storedOwned("orders").tokens[mine], strconv.FormatInt(token, 10))
			if row.extends != "-" {
				equal(e, row.name+": again", e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds(), ""), answer)
			}
		}
	})
}

// forty returns a queue of 41 waiters of process A, with others at some ranks after the first one is served.
func forty(others map[int]rune) string {
	queue := []rune(strings.Repeat("A", 41))
	for rank, process := range others {
		queue[rank+1] = process
	}
	return string(queue)
}

// A release, or a look at a free lock, grants it to the first waiter, and notifies others (part_queue.lua).
//   - A head is notified when the grant ends. So is one waiter of yet another process, as the two may be frozen: the
//     last one, or else the first one that is examined.
//   - After a grant has lapsed, the next one lasts 250 ms. The first waiters of up to 32 other processes that a message
//     reaches are called once: those ahead of the caller, among the first 1000, without a note. A process that has not
//     answered when the grant ends is passed over.
//   - The last request of a process that closes its Client tells the first waiter of each process without a note when
//     the grants end that are not confirmed. Other requests do not.
func TestMessagesAndNotes(t *testing.T) {
	const all = "n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23 n24 n25 n26 n27 n28 n29"
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		ear := e.hears("noonlock:ch:P*")
		for _, row := range []struct {
			name string
			// A letter for each waiter: its process, a small one if it has lapsed, n for 30 processes, d for 1000
			// waiters of D, ! for a malformed member. M looks at a free lock; without it, H releases the lock.
			queue string
			notes string // ms from now, with a minus sign after a call
			left  string // of the notes, before those of called processes and of the grant to A
			// To the first waiter of a process, or the one with that number: g a grant, l a call, h and the ms in which
			// the lock ends, by default with the grant.
			messages string
			owned    string // of a lock with owners, if they differ
			lasts    int    // how long (ms) the grant to a process lasts that was called before
			holder   string // the process, "" is H
			last     int
		}{
			{name: "no grant has lapsed", queue: "ABC", messages: "g:A h:B h:C"},
			{name: "a grant is pending", queue: "ABC", notes: "X 1", left: "X 1", messages: "g:A h:B h:C"},
			{name: "a grant has lapsed", queue: "ABBCABC", notes: "X 0", left: "X -0", messages: "l:B l:C g:A h:B h:C#6"},
			{name: "calls have lapsed", queue: "ABC", notes: "X -0,Y -0", left: "X -0,Y -0", messages: "g:A h:B h:C"},
			{name: "a grant has lapsed, and calls before", queue: "ABC", notes: "X -0,Y 0", left: "X -0,Y -0", messages: "l:B l:C g:A h:B h:C"},
			{name: "known processes are not called", queue: "ABCDE", notes: "B 0,C -0,D 1", left: "B -0,C -0,D 1", messages: "l:E g:A h:B h:E", owned: "l:E g:A h:D h:E"},
			{name: "of this process", queue: "ABC", notes: "A 1,X 0", left: "X -0", messages: "l:B l:C g:A h:B h:C"},
			{name: "of this process, and later", queue: "ABC", notes: "A 900,X 0", left: "X -0", messages: "l:B l:C g:A h:B h:C"},
			{name: "this process was called", queue: "ABC", notes: "A -100,X -0", left: "X -0", lasts: 100, messages: "g:A h:B h:C"},
			{name: "this process was called, and a grant has lapsed", queue: "ABC", notes: "A -100,X 0", left: "X -0", lasts: 100, messages: "l:B l:C g:A h:B h:C"},
			{name: "those behind the caller are not called", queue: "ABMCM", notes: "X 0", left: "X -0", messages: "l:B g:A h:B h:M#4"},
			{name: "thirty-two", queue: "AnBCD", notes: "X 0", left: "X -0", messages: "l:" + strings.ReplaceAll(all, " ", " l:") + " l:B l:C g:A h:n0 h:D"},
			{name: "behind a thousand", queue: "AdB", notes: "X 0", left: "X -0", messages: "l:D g:A h:D h:B"},

			{name: "no other process", queue: forty(nil), messages: "g:A h:A#1"},
			{name: "the last one", queue: forty(map[int]rune{1: 'B', 39: 'B'}), messages: "g:A h:A#1 h:B#40"},
			{name: "the last one has lapsed", queue: forty(map[int]rune{5: 'B', 39: 'b'}), messages: "g:A h:A#1 h:B#6"},
			{name: "all have lapsed", queue: forty(map[int]rune{39: 'b'}), messages: "g:A h:A#1"},
			{name: "the last one is no attempt", queue: forty(map[int]rune{5: 'B', 39: '!'}), messages: "g:A h:A#1 h:B#6"},
			{name: "the first of two", queue: forty(map[int]rune{1: 'B', 2: 'B'}), messages: "g:A h:A#1 h:B#2"},
			{name: "the last of the first ones", queue: forty(map[int]rune{31: 'B'}), messages: "g:A h:A#1 h:B#32"},
			{name: "behind it", queue: forty(map[int]rune{32: 'B', 33: 'B', 38: 'B'}), messages: "g:A h:A#1"},
			{name: "the next waiter is of a third process", queue: forty(map[int]rune{0: 'C', 39: 'B'}), messages: "g:A h:C h:B#40"},
			{name: "and there is no other", queue: forty(map[int]rune{0: 'C'}), messages: "g:A h:C"},
			{name: "the next waiter is no attempt", queue: forty(map[int]rune{0: '!', 39: 'B'}), messages: "g:A h:B#40", owned: "g:A h:B#40 h:A#2"},
			{name: "the last one is of the process that is granted", queue: forty(map[int]rune{0: 'C', 5: 'B'}), messages: "g:A h:C h:B#6"},

			{name: "not the last", queue: "ABCDEF", messages: "g:A h:B h:F"},
			{name: "the last", queue: "ABCDEF", last: 1, messages: "g:A h:B h:F h1001:B h1001:C h1001:D h1001:E h1001:F"},
			{name: "no waiters", last: 1},
			{name: "only the one that is granted", queue: "A", last: 1, messages: "g:A"},
			{name: "of another holder, without a grant", holder: "X", queue: "AB", last: 1},
			{name: "of another holder, not the last", holder: "X", queue: "AB", notes: "X 300", left: "X 300"},
			{name: "of another holder", holder: "X", queue: "AB", notes: "X 300", left: "X 300", last: 1, messages: "h301:A h301:B"},
			{name: "of another holder, whose grant ends now", holder: "X", queue: "AB", notes: "X 0", left: "X 0", last: 1},
			{name: "of another holder, a millisecond later", holder: "X", queue: "AB", notes: "X 1", left: "X 1", last: 1, messages: "h2:A h2:B"},
			{name: "of two, the last to end counts", holder: "X", queue: "AB", notes: "X 300,Y 200", left: "X 300,Y 200", last: 1, messages: "h301:A h301:B"},
			{name: "a process with a note is not called", holder: "X", queue: "AB", notes: "X 300,A 200", left: "X 300,A 200", last: 1, messages: "h301:B"},
		} {
			for family, form := range map[string]string{"mutex": "nl1:%s.%d/id", "owned": "ns1:%s.%d.w/owner%[2]d id"} {
				mine, holder := fmt.Sprintf(form, "PH", 99), fmt.Sprintf(form, "P"+cmp.Or(row.holder, "H"), 99-len(row.holder))
				e.establish("orders", heldBy(holder))
				var line []any
				attempts, caller := map[string]string{}, ""
				add := func(process string, until time.Duration) {
					n := len(line) / 3
					attempt := fmt.Sprintf(form, process, n)
					for _, name := range []string{process, fmt.Sprint(process, "#", n)} {
						attempts[name] = cmp.Or(attempts[name], attempt)
					}
					switch process {
					case "PM":
						caller = cmp.Or(caller, attempt)
					case "!":
						attempt = nonsense
					}
					line = append(line, attempt, time.Duration(n)*time.Millisecond, until)
				}
				for _, letter := range row.queue {
					switch {
					case letter == 'n':
						for name := range strings.FieldsSeq(all) {
							add("P"+name, minute)
						}
					case letter == 'd':
						for range 1000 {
							add("PD", minute)
						}
					case letter == '!':
						add("!", minute)
					case letter >= 'a':
						add("P"+strings.ToUpper(string(letter)), 0)
					default:
						add("P"+string(letter), minute)
					}
				}
				e.fillQueue("orders", line...)
				noted := func(text string) string {
					var lines strings.Builder
					for text := range strings.SplitSeq(text, ",") {
						if process, ms, found := strings.Cut(text, " "); found {
							digits, called := strings.CutPrefix(ms, "-")
							later := call(time.ParseDuration(digits + "ms")).Must(e.env)
							fmt.Fprintf(&lines, "P%s %s%s\n", process, map[bool]string{true: "-"}[called], e.ms(later))
						}
					}
					return lines.String()
				}
				if row.notes != "" {
					must(e.env, e.Raw.HSet(e.Context(), k[3], "!", noted(row.notes)).Err())
				}
				grant, mark, kept := time.Second, "", []string{noted(row.left)}
				if row.holder == "" && row.notes != row.left && row.left != "" {
					grant, mark = 250*time.Millisecond, "-" // a grant has lapsed
				}
				want := []string{}
				messages := row.messages
				if family == "owned" {
					messages = cmp.Or(row.owned, messages)
				}
				call := grant
				if row.lasts > 0 {
					grant, mark = time.Duration(row.lasts)*time.Millisecond, "-"
				}
				for message := range strings.FieldsSeq(messages) {
					kind, to, _ := strings.Cut(message, ":")
					attempt, text := attempts["P"+to], ""
					switch kind[0] {
					case 'l':
						kept = append(kept, note("P"+to, "-", e.ms(call)))
					case 'h':
						ms := grant.Milliseconds()
						if family == "owned" {
							ms++
						}
						text = cmp.Or(kind[1:], strconv.FormatInt(ms, 10)) + " "
					}
					process, _, _ := strings.Cut(to, "#")
					want = append(want, fmt.Sprintf("noonlock:ch:P%s %c noonlock:{orders}:lock %s%s", process, kind[0], text, attempt))
				}
				where := family + ", " + row.name
				granted := strings.Contains(messages, "g:")
				if caller == "" {
					answer := map[bool]string{true: "1", false: "0"}[row.holder == ""]
					if granted {
						answer = fmt.Sprintf("[1 %d]", grant.Milliseconds())
					}
					equal(e, where, e.run(family+"_leave", k, mine, 0, keep.Milliseconds(), row.last), answer)
				} else {
					must(e.env, e.Raw.Del(e.Context(), k[0]).Err())
					e.run(family+"_acquire", k, caller, 60000, "look", keep.Milliseconds())
				}
				got := e.Received(ear, "noonlock:ch:P")
				slices.Sort(got)
				slices.Sort(want)
				equal(e, where+": messages", fmt.Sprint(got), fmt.Sprint(want))
				if granted {
					until := grant
					if strings.HasPrefix(row.notes, "A 1,") { // it keeps the earlier time
						until = time.Millisecond
					}
					kept = append(kept, note("PA", mark, e.ms(until)))
					if family == "owned" {
						grant -= time.Millisecond // it ends at a whole one
					}
					equal(e, where+": the lock", e.left(k[0]), grant.String())
				}
				equal(e, where+": notes", e.Raw.HGet(e.Context(), k[3], "!").Val(), strings.Join(kept, ""))
			}
		}
	})
}
