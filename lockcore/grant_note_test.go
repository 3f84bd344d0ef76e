package lockcore_test

import (
	"testing"
	"time"
)

// Each request of a process confirms the grants of that process: its note is removed, and
// the notes on other processes stay. The field is deleted with its last note.
func TestRequestsConfirmGrants(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		const mine, again, waiter = "nx1:ALIVE.1.t.w/me id", "nx1:ALIVE.2.t.w/me id", "nx1:OTHER.2.u.w/other id"
		k := e.scriptKeys("orders")
		mutex := func(holder string, line ...string) func() {
			return func() { e.establish("orders", lineState{lock: holder, queue: line, fence: true}) }
		}
		owned := func(holder string, line ...string) func() {
			return func() {
				e.establishOwned("orders", ownedState{kind: "nx1", entries: []ownedEntry{{"w", holder, minute}}, queue: line})
			}
		}
		for _, row := range []struct {
			name, script string
			establish    func()
			args         []any
			granted      string // the process to which the request grants the lock
		}{
			{"a holder looks", "mutex_acquire", mutex(me, unknown), []any{me, 60000, "look"}, ""},
			{"a waiter joins", "mutex_acquire", mutex(stranger, unknown), []any{me, 60000, "join"}, ""},
			{"a holder leaves", "mutex_leave", mutex(me, unknown), []any{me, 0}, "NOBODY"},
			{"a waiter leaves", "mutex_leave", mutex(stranger, unknown, me), []any{me, 0}, ""},
			{"an owner looks", "owned_acquire", owned(mine, waiter), []any{mine, 60000, "look"}, ""},
			{"an owner joins", "owned_acquire", owned(waiter), []any{mine, 60000, "join"}, ""},
			{"an owner passes the queue", "owned_acquire", owned(mine, waiter), []any{again, 60000, "join"}, ""},
			{"an owner leaves", "owned_leave", owned(mine, waiter), []any{mine, 0}, "OTHER"},
		} {
			for _, notes := range []struct{ before, after string }{
				{"ALIVE 17\n", ""},
				{"DEAD 17\nALIVE 17\nGONE 17\n", "DEAD 17\nGONE 17\n"},
				{"DEAD 17\n", "DEAD 17\n"},
			} {
				row.establish()
				must(e.env, e.Raw.HSet(e.Context(), k[3], "!", notes.before).Err())
				e.run(row.script, k, append(row.args, keep.Milliseconds())...)
				want := notes.after
				if row.granted != "" {
					want += row.granted + " " + e.ms(time.Second) + "\n"
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

// The waiters of a process are passed over from the millisecond in which its grant had to
// be confirmed, and not earlier.
func TestNotesToTheMillisecond(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		must(e.env, e.Raw.Set(e.Context(), k[0], stranger, minute).Err())
		for till, line := range map[time.Duration]string{
			time.Millisecond: "[" + living + " " + unknown + "]",
			0:                "[" + unknown + "]",
		} {
			e.line("orders", living, -minute, minute, unknown, -minute/2, minute)
			must(e.env, e.Raw.HSet(e.Context(), k[3], "!", "ALIVE "+e.ms(till)+"\n").Err())
			e.run("mutex_acquire", k, "nl1:OTHER.1.u/tries", 60000, "try", keep.Milliseconds())
			e.wants("the queue, "+till.String()+" before that", e.members("orders"), line)
		}
	})
}

// A queued lease of an owner is granted under the token of a lease that has ended in its
// process in the meantime. The process gets a new token, the same one each time, and an
// attempt of another process gets that token, too.
func TestTokenOfAGrantThatCameTooLate(t *testing.T) {
	toTheMillisecond(t, func(e *timed) {
		k := e.scriptKeys("orders")
		acquire := func(attempt, ask, ended string) string {
			e.Helper()
			return e.run("owned_acquire", k, attempt, 60000, ask, keep.Milliseconds(), ended)
		}
		const mine, elsewhere = "nx1:ALIVE.1.t.w/me id", "nx1:OTHER.1.t.w/me id"
		granted := acquire(mine, "try", "0")
		ended := granted[len("[1 ") : len(granted)-1]
		first := acquire(mine, "look", ended)
		if first == granted || first[:3] != "[1 " {
			e.Errorf("granted %s, and %s after that token had ended", granted, first)
		}
		e.wants("asked again", acquire(mine, "look", ended), first)
		e.wants("the same owner in another process", acquire(elsewhere, "try", "0"), first)
	})
}
