package lockcore_test

import (
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
		const mine, again, waiter = "ns1:ALIVE.1.t.w/me id", "ns1:ALIVE.2.t.w/me id", "ns1:OTHER.2.u.w/other id"
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
				if got := e.Raw.HGet(e.Context(), k[3], "!").Val(); got != want {
					e.Errorf("%s: of the notes %q are left %q, want %q", row.name, notes.before, got, want)
				}
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
			e.run("mutex_acquire", k, "nl1:OTHER.1.u/tries", 60000, "try", keep.Milliseconds())
			e.wants("the queue, "+till.String()+" before that", e.members("orders"), queue)
		}
	})
}

// After a grant has lapsed, the next one lasts 250 ms. The first waiters of up to 32 other processes that a message
// reaches are called once: those ahead of the caller, among the first 1000, without a note. A process that has not
// answered when the grant ends is passed over.
func TestCallsAfterALapsedGrant(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		ear := e.hears("noonlock:ch:P*")
		for _, row := range []struct {
			name   string
			queue  string // a letter for each waiter: its process, or n for 30 processes, or d for 1000 dead waiters
			notes  string
			called string
			left   string // of the notes, before those of called processes and of the grant to A
			short  bool
		}{
			{"no grant has lapsed", "ABC", "", "", "", false},
			{"a grant is pending", "ABC", "X 1\n", "", "X 1\n", false},
			{"a grant has lapsed", "ABBCABC", "X 0\n", "BC", "X -0\n", true},
			{"calls have lapsed", "ABC", "X -0\nY -0\n", "", "X -0\nY -0\n", false},
			{"a grant has lapsed, and calls before", "ABC", "X -0\nY 0\n", "BC", "X -0\nY -0\n", true},
			{"known processes are not called", "ABCDE", "B 0\nC -0\nD 1\n", "E", "B -0\nC -0\nD 1\n", true},
			{"of this process", "ABC", "A 1\nX 0\n", "BC", "X -0\n", true},
			{"those behind the caller are not called", "ABMCM", "X 0\n", "B", "X -0\n", true},
			{"thirty-two", "AnBCD", "X 0\n", "nBC", "X -0\n", true},
			{"behind a thousand", "AdB", "X 0\n", "", "X -0\n", true},
		} {
			for _, kind := range []string{"mutex", "owned"} {
				name := func(process rune) []string {
					switch process {
					case 'n':
						var all []string
						for i := range 30 {
							all = append(all, fmt.Sprint("Pn", i))
						}
						return all
					case 'd':
						return slices.Repeat([]string{"DEAD"}, 1000)
					}
					return []string{"P" + string(process)}
				}
				form := map[string]string{"mutex": "nl1:%s.%d.t/id", "owned": "ns1:%s.%d.t.w/owner%[2]d id"}[kind]
				holder := fmt.Sprintf(form, "HOLDER", 1)
				e.establish("orders", heldBy(holder))
				var line []any
				first, caller := map[string]string{}, ""
				for _, letter := range row.queue {
					for _, process := range name(letter) {
						attempt := fmt.Sprintf(form, process, len(line))
						if first[process] == "" {
							first[process] = attempt
						}
						if letter == 'M' && caller == "" {
							caller = attempt
						}
						line = append(line, attempt, time.Duration(len(line))*time.Millisecond, minute)
					}
				}
				e.fillQueue("orders", line...)
				notes := func(text string) string {
					text = strings.NewReplacer("X", "PX", "Y", "PY", "A ", "PA ", "B", "PB", "C", "PC", "D", "PD").Replace(text)
					return strings.NewReplacer(" 0", " "+e.ms(0), " -0", " -"+e.ms(0), " 1", " "+e.ms(time.Millisecond)).Replace(text)
				}
				if row.notes != "" {
					must(e.env, e.Raw.HSet(e.Context(), k[3], "!", notes(row.notes)).Err())
				}
				var called []string
				want, kept := []string{}, notes(row.left)
				for _, letter := range row.called {
					for _, process := range name(letter) {
						want = append(want, fmt.Sprintf("noonlock:ch:%s l noonlock:{orders}:lock %s", process, first[process]))
						called = append(called, note(process, "-", e.ms(250*time.Millisecond)))
					}
				}
				kept += strings.Join(called, "")
				grant := time.Second
				if row.short {
					grant = 250 * time.Millisecond
					kept += note("PA", "-", e.ms(grant))
				} else {
					kept += note("PA", "", e.ms(grant))
				}
				where := kind + ", " + row.name
				if caller == "" {
					check := grant
					if kind == "owned" && strings.Contains(row.queue, "d") {
						check = 0 // there is more to do
					}
					e.wants(where, e.run(kind+"_leave", k, holder, 0, keep.Milliseconds()), fmt.Sprintf("[1 %d]", check.Milliseconds()))
				} else {
					must(e.env, e.Raw.Del(e.Context(), k[0]).Err())
					e.run(kind+"_acquire", k, caller, 60000, "look", keep.Milliseconds())
				}
				calls := slices.DeleteFunc(e.messages(ear, "noonlock:ch:P"), func(m string) bool { return !strings.Contains(m, " l ") })
				e.wants(where+": calls", fmt.Sprint(calls), fmt.Sprint(want))
				e.wants(where+": notes", e.Raw.HGet(e.Context(), k[3], "!").Val(), kept)
				if kind == "owned" {
					grant -= time.Millisecond // it ends at a whole one
				}
				e.wants(where+": the lock", e.Raw.PTTL(e.Context(), k[0]).Val().String(), grant.String())
			}
		}
	})
}

// An attempt keeps the token of its own entry, or of the entry that its request names, and otherwise gets a new one.
// The owner's other entries do not count, as nobody may hold them any more.
func TestWhoseTokenIsKept(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		const (
			sibling, reader = "ns1:ALIVE.2.t.w/me id", "ns1:ALIVE.2.t.r/me id"
			other           = "ns1:OTHER.3.t.r/other id"
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
			{"in its last millisecond", "w", 0, []ownedEntry{{"w", sibling, 0}, {"w", "ns1:ALIVE.4.t.w/me id", minute}}, sibling, false, 0},
			{"named, and its end is over", "w", 0, []ownedEntry{{"w", "ns1:ALIVE.4.t.w/me id", minute}, {"w", sibling, ended}}, sibling, false, -2},
			{"reads beside one that writes", "r", 0, []ownedEntry{{"w", sibling, minute}}, sibling, true, 0},
			{"reads beside another owner", "r", 0, []ownedEntry{{"r", reader, minute}, {"r", other, minute}}, reader, true, 0},
			{"reads beside one that is not named", "r", 0, []ownedEntry{{"r", reader, minute}}, "", false, -2},
			{"begins to write", "w", 0, []ownedEntry{{"r", reader, minute}}, reader, false, -2},
			{"writes, and names one that was downgraded", "w", 0, []ownedEntry{{"r", sibling, minute}}, sibling, false, -2},
		} {
			mine := "ns1:ALIVE.1.t." + row.mode + "/me id"
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
			_, err := fmt.Sscanf(answer, "[1 %d]", &token)
			must(e.env, err)
			want := firstToken + int64(row.keeps)
			if row.keeps == -1 {
				want = firstToken + int64(len(entries)) - 1
			}
			if isNew := token > last; row.keeps == -2 && !isNew || row.keeps > -2 && token != want {
				e.Errorf("%s: token %d, the last is %d", row.name, token, last)
			}
			e.wants(row.name+": stored", e.storedOwned("orders").tokens[mine], strconv.FormatInt(token, 10))
			if row.extends != "-" {
				e.wants(row.name+": again", e.run("owned_acquire", k, mine, 60000, "try", keep.Milliseconds(), ""), answer)
			}
		}
	})
}

// The last request of a process that closes its Client passes on when the grants that are not confirmed end: to the
// first waiter of each process without a note. Other requests do not.
func TestTheLastRequestPassesChecksOn(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		ear := e.hears("noonlock:ch:P*")
		for _, kind := range []struct{ script, attempt string }{
			{"mutex_leave", "nl1:%s.1.t/id"}, {"owned_leave", "ns1:%s.1.t.w/%[1]s id"},
		} {
			attempt := func(process string) string { return fmt.Sprintf(kind.attempt, process) }
			for _, row := range []struct {
				name, holder, queue string // a letter for each waiter: its process
				notes               string
				last                int
				passed              string // to these, with the time of the grant to A or of the note
				within              time.Duration
			}{
				{"not the last", "HOLDER", "ABCDEF", "", 0, "", 0},
				{"the last", "HOLDER", "ABCDEF", "", 1, "DE", time.Second},
				{"no waiters", "HOLDER", "", "", 1, "", 0},
				{"only the one that is granted", "HOLDER", "A", "", 1, "", 0},
				{"of another holder, without a grant", "PX", "AB", "", 1, "", 0},
				{"of another holder, not the last", "PX", "AB", "PX 300", 0, "", 0},
				{"of another holder", "PX", "AB", "PX 300", 1, "AB", 300 * time.Millisecond},
				{"of another holder, whose grant ends now", "PX", "AB", "PX 0", 1, "", 0},
				{"of another holder, a millisecond later", "PX", "AB", "PX 1", 1, "AB", time.Millisecond},
				{"of two, the last to end counts", "PX", "AB", "PX 300,PY 200", 1, "AB", 300 * time.Millisecond},
				{"a process with a note is not called", "PX", "AB", "PX 300,PA 200", 1, "B", 300 * time.Millisecond},
			} {
				me, holder := attempt("HOLDER"), attempt(row.holder)
				e.establish("orders", heldBy(holder))
				var line []any
				for i, letter := range row.queue {
					line = append(line, attempt("P"+string(letter)), time.Duration(i)*time.Millisecond, minute)
				}
				e.fillQueue("orders", line...)
				notes := ""
				for text := range strings.SplitSeq(row.notes, ",") {
					if of, ms, found := strings.Cut(text, " "); found {
						n, err := time.ParseDuration(ms + "ms")
						must(e.env, err)
						notes += of + " " + e.ms(n) + "\n"
					}
				}
				if notes != "" {
					must(e.env, e.Raw.HSet(e.Context(), k[3], "!", notes).Err())
				}
				e.run(kind.script, k, me, 0, keep.Milliseconds(), row.last)
				want := []string{}
				for _, letter := range row.passed {
					process := "P" + string(letter)
					want = append(want, fmt.Sprintf("noonlock:ch:%s h noonlock:{orders}:lock %d %s", process, row.within.Milliseconds()+1, attempt(process)))
				}
				got := slices.DeleteFunc(e.messages(ear, "noonlock:ch:P"), func(m string) bool {
					process := strings.TrimPrefix(strings.Fields(m)[0], "noonlock:ch:")
					granted := row.holder == "HOLDER" && slices.Contains([]string{"PB", "PC", "PF"}, process) // a grant also notifies the next two and the last
					return granted || !strings.Contains(m, " h ")
				})
				e.wants(kind.script+", "+row.name, fmt.Sprint(got), fmt.Sprint(want))
			}
		}
	})
}

// Redis searches a hash of up to 512 short fields from its start, and finds a field of a table at once. The note on
// a process of the length of real ones makes it a table.
func TestANoteMakesATable(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	cfg := ttl(time.Minute)
	holder := e.try(e.mutex(e.Client("holder"), "orders", cfg))
	m := e.mutex(e.Client("waiter"), "orders", cfg)
	first, second := e.queued(m), e.queued(m)
	e.unlock(holder)
	granted := first.granted()
	if encoding := e.Raw.ObjectEncoding(e.Context(), e.key("orders", "seen")).Val(); encoding != "hashtable" {
		t.Errorf("after a grant, the hash is a %s", encoding)
	}
	e.unlock(granted)
	e.unlock(second.granted())
}

// A process that is granted a lock also has the next waiters, or a third process has the next one. One waiter of yet
// another process is notified of the end of the grant: the last one, or else the first one that is examined.
func TestWaitersOfOtherProcessesAreNotifiedOfAGrant(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		ear := e.hears("noonlock:ch:OTHER")
		k := e.scriptKeys("orders")
		for _, row := range []struct {
			name     string
			length   int   // of the queue after the grant
			others   []int // ranks of waiters of another process
			spoilt   int   // rank of a malformed member; -1: none
			lapsed   int   // rank of one of the others that has lapsed; 0: none
			messages int   // 0: none
		}{
			{"no other process", 40, nil, -1, 0, 0},
			{"the last one", 40, []int{1, 39}, -1, 0, 39},
			{"the last one has lapsed", 40, []int{5, 39}, -1, 39, 5},
			{"all have lapsed", 40, []int{39}, -1, 39, 0},
			{"the last one is no attempt", 40, []int{5}, 39, 0, 5},
			{"the first of two", 40, []int{1, 2}, -1, 0, 1},
			{"the last of the first ones", 40, []int{31}, -1, 0, 31},
			{"behind it", 40, []int{32, 33, 34, 35, 36, 37, 38}, -1, 0, 0},
			{"the next waiter is of a third process", 40, []int{0, 39}, -1, 0, 39},
			{"and there is no other", 40, []int{0}, -1, 0, 0},
			{"the next waiter is no attempt", 40, []int{39}, 0, 0, 39},
			{"the last one is of the process that is granted", 40, []int{0, 5}, -1, 0, 5},
		} {
			for kind, form := range map[string]string{"mutex": "nl1:%s.%d.u/id", "owned": "ns1:%s.%d.u.w/owner%[2]d id"} {
				process := map[int]string{}
				for _, rank := range row.others {
					process[rank] = "OTHER"
					if rank == 0 {
						process[rank] = "THIRD"
					}
				}
				var queue []any
				for i := range row.length + 1 {
					rank, of := i-1, "ALIVE"
					if process[rank] != "" {
						of = process[rank]
					}
					attempt, until := fmt.Sprintf(form, of, i), minute
					if rank >= 0 && rank == row.spoilt {
						attempt = nonsense
					}
					if rank > 0 && rank == row.lapsed {
						until = 0
					}
					queue = append(queue, attempt, time.Duration(i)*time.Millisecond, until)
				}
				holder, left := fmt.Sprintf(form, "HOLDER", 1), map[string]string{"mutex": "1000", "owned": "1001"}[kind]
				e.establish("orders", heldBy(holder))
				e.fillQueue("orders", queue...)
				e.wants(kind+", "+row.name, e.run(kind+"_leave", k, holder, 0, keep.Milliseconds()), "[1 1000]")
				want := "[]"
				if row.messages != 0 {
					want = "[noonlock:ch:OTHER h noonlock:{orders}:lock " + left + " " + fmt.Sprintf(form, "OTHER", row.messages+1) + "]"
				}
				e.wants(kind+", "+row.name+": messages", fmt.Sprint(e.messages(ear, "noonlock:ch:OTHER")), want)
			}
		}
	})
}
