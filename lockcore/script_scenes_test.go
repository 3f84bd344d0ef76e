package lockcore_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
)

func TestScriptPlays(t *testing.T) {
	t.Parallel()
	playScripts(t, []scriptScene{
		// A token is the server's clock in µs, or one more than the last token if that is not less. The counter outlives a
		// grant by its keep. Without one, it keeps its TTL; a counter that was lost gets one.
		{"tokens", "mutex", `
			A.1 tries => held #0; fence => #0:600000; A.1 leaves => 1
			A.1 tries => held #1; fence => #1:600000; A.1 leaves => 1
			A.1 tries => held #2; fence => #2:600000; A.1 leaves => 1
			pass 765475us // the clock has no zeros before 42
			A.1 tries => held #765475; fence => #765475:600000; A.1 leaves => 1
			fence #60000000; A.1 tries => held #60000001; fence => #60000001:659235; A.1 leaves => 1
			fence 99; A.1 tries => held #765475; fence => #765475:600000; A.1 leaves => 1 // less, although its text is greater
			fence 1000000000000000; A.1 tries => held 1000000000000001; redis pttl fence => 53315798000; A.1 leaves => 1 // and the reverse
			fence #60000001; A.1 tries keep=604800000 => held #60000002; fence => #60000002:604859235; A.1 leaves => 1
			fence; A.1 tries keep=none => held #765476; fence => #765476:604800000; A.1 leaves => 1
			fence #765474:60000; A.1 tries keep=none => held #765475; fence => #765475:60000; A.1 leaves => 1
			A.1 tries keep=none => held #765476; fence => #765476:60000; A.1 leaves => 1
			fence #60000000:600000; A.1 tries keep=none => held #60000001; fence => #60000001:600000`},
		// Places in the queue and how long they are kept.
		{"places", "mutex", `
			lock X:60000
			queue; A.1 joins ttl=2000 => near 60000 @0 X; queue => A.1:@0:@6600 for:13200/13200
			queue B.2:@-120000 N.1:@-60000; A.1 joins ttl=2000 => near 60000 @0 X
			queue => B.2:@-120000:@60000 N.1:@-60000:@60000 A.1:@0:@6600 for:13200/13200
			queue B.2:@0; A.1 joins => near 60000 @1 X // another one waits of this millisecond
			queue B.2:@60000 N.1:@120000; A.1 joins => near 60000 @120001 X // the clock was set back
			queue B.2:@-60000; A.1 resumes at=1000 => near 60000 1000 X
			queue; A.1 joins ttl=500; queue => A.1:@0:@3300 for:6600/6600
			A.1 joins ttl=500 within=30; queue => A.1:@0:@30 for:6600/6600
			A.1 looks ttl=500 within=20; queue => A.1:@0:@20 for:6600/6600
			A.1 resumes ttl=500 at=1000 within=1; queue => A.1:@0:@1 for:6600/6600
			A.1 resumes ttl=500 at=-1000 within=3299; queue => A.1:@0:@3299 for:6600/6600
			A.1 joins ttl=500 within=3301; queue => A.1:@0:@3300 for:6600/6600
			queue A.1; redis pexpire queue 6600; redis pexpire seen 6600
			A.1 looks ttl=2000; queue => A.1:@-60000:@6600 for:6600/6600
			redis pexpire queue 6599; redis pexpire seen 6599; A.1 looks ttl=2000; queue => A.1:@-60000:@6600 for:13200/13200
			redis pexpire queue 60000; redis pexpire seen 60000; A.1 looks ttl=2000; queue => A.1:@-60000:@6600 for:60000/60000
			redis del queue; A.1 joins ttl=2000; queue => A.1:@0:@6600 for:60000/60000 // what is known of the old queue is left
			anew; lock O.9w/other; A.1w/me joins ttl=500 within=30; queue => A.1w/me:@0:@30 for:6600/6600
			A.1w/me joins ttl=500 within=3301; queue => A.1w/me:@0:@3300 for:6600/6600`},
		// A waiter has a timer for the end of the lock if it is one of the first three, or the first of its process among
		// the first 32 waiters.
		{"timers", "mutex", `
			lock X:60000
			queue M; M.0 looks => near 60000 @-60000 X; queue M M M; M.2 looks => near 60000 @-59998 X
			queue A B M; M.2 looks => near 60000 @-59998 X; queue A A A M; M.3 looks => near 60000 @-59997 X
			queue A A A B M; M.4 looks => near 60000 @-59996 X; queue A B B A M; M.4 looks => near 60000 @-59996 X
			queue A B A B M; M.4 looks => near 60000 @-59996 X; queue A B C M; M.3 looks => near 60000 @-59997 X
			queue A A A B B B C M; M.7 looks => near 60000 @-59993 X
			queue A A A M M; M.4 looks => queued 60000 @-59996 X; queue A A M B M; M.4 looks => queued 60000 @-59996 X
			queue A nobody A M; M.3 looks => near 60000 @-59997 X; queue A nobody B nobody M; M.4 looks => near 60000 @-59996 X
			queue nobody nobody nobody nobody nobody nobody M; M.6 looks => near 60000 @-59994 X
			queue {31 A} M; M.31 looks => near 60000 @-59969 X; queue {32 A} M; M.32 looks => queued 60000 @-59968 X`},
		// A renewal and a confirmation let the lock end a full TTL later.
		{"holds", "mutex owned", `
			A.1 tries => held #0; lock => A.1:60000; pass 1s; A.1 renews => 1; lock => A.1:60000; pass 1s
			A.1 looks => held #0; lock => A.1:60000; pass 1s; redis pttl fence => 597000`},
		// The counter of tokens outlives a lock that is renewed.
		{"renewals", "mutex", `
			lock A.1:500; fence 17:600001; A.1 renews keeps => 1; lock => A.1:60000; fence => 17:600001
			lock A.1:500; fence 17:599999; A.1 renews keeps => 1; lock => A.1:60000; fence => 17:600000
			lock A.1:500; A.1 renews => 1; lock => A.1:60000; fence => 17:600000; A.2 renews keeps => 0; lock => A.1:60000`},
		// An entry ends with its millisecond, although the key of the lock has a later end: it is nobody's then, and counts
		// no more. A member that is no entry is dropped when its time is over, too.
		{"ends of entries", "mutex", `
			lock A.1w/me:0 key:3600000; A.1w/me leaves => 1; anew; lock A.1w/me:-1 key:3600000; A.1w/me leaves => 0
			anew; lock A.1w/me A.2w/me:-1; A.1w/me leaves => 1; anew; lock A.1w/me:-1 A.2w/me; A.1w/me leaves => -1
			anew; lock A.1w/me:0 A.2w/me; A.1w/me renews => 1; anew; lock A.1w/me:-1 A.2w/me; A.1w/me renews => 0
			anew; lock A.1w/me:1000 A.3r/me; A.4r/you joins => near 1001 @0 A.1w/me
			anew; lock A.2w/me:-1 key:3600000; A.1w/me tries => held #0 // not the token of the last one
			anew; lock A.3r/me; A.3r/me looks ttl=120000; lock => A.3r/me:120000
			anew; lock A.1r/me:0 A.2r/you:-1 key:3600000; A.3w/x tries => busy _ A.1r/me
			anew; lock A.1w/me:0 A.2w/me:-1 key:3600000; A.3w/x tries => busy _ A.1w/me
			anew; lock A.1r/me B.1r/you; queue A.1r/me; C.1r/x joins => held #1; A.1r/me leaves => 1 // the waiter has an entry, too
			anew; lock A.1r/me:-1 A.2r/me:-1 A.3r/me; B.1r/you tries => held #0; A.3r/me leaves => 1
			anew; lock A.1r/me:-1 A.2r/me A.3r/me; B.1r/you tries => held #0; A.3r/me leaves => 2
			anew; lock A.2w/me:-1 key:3600000; redis zadd lock 5 no-entry; A.1w/you tries => held #0; lock => A.1w/you:60000`},
		// A waiter is taken to be alive until the millisecond that is written down, and not in it; and not at all if
		// nothing is.
		{"lapses", "mutex", `
			fence 17; lock X:60000
			queue B.2:@-60000:@1 N.3; A.1 tries => busy 60000 X; waiters => B.2 N.3
			queue B.2:@-60000:@0 N.3; A.1 tries => busy 60000 X; waiters => N.3
			queue B.2:@-60000:- N.3; A.1 tries => busy 60000 X; waiters => N.3
			queue B.2:@-60000:@1 N.3; o inspected => string 60000 [X w 60000 17] [B.2 @-60000 1 N.3 @-59999 1] #0 0
			queue B.2:@-60000:@0 N.3; o inspected => string 60000 [X w 60000 17] [B.2 @-60000 0 N.3 @-59999 1] #0 0
			queue B.2:@-60000:- N.3; o inspected => string 60000 [X w 60000 17] [B.2 @-60000 0 N.3 @-59999 1] #0 0
			lock A.1; queue B.2:@-60000:@1 N.3; A.1 promotes to=B => 1; waiters => B.2 N.3
			queue B.2:@-60000:@0 N.3; A.1 promotes to=B => 0; waiters => B.2 N.3
			queue B.2:@-60000:- N.3; A.1 promotes to=B => 0; waiters => B.2 N.3
			queue B.2:@-60000:@1 N.3; A.1 leaves => 1 1000; waiters => N.3
			lock A.1; queue B.2:@-60000:@0 N.3; A.1 leaves => 1 1000; waiters =>
			lock A.1; queue B.2:@-60000:- N.3; A.1 leaves => 1 1000; waiters =>`},
		// A grant that is not confirmed stands for a second, under a token of its own. It is made although nobody listens,
		// where PUBLISH does not say.
		{"grants", "mutex owned", `
			lock A.1; queue N.1; A.1 leaves => 1 1000; lock => N.1:1000; fence => #0:600000`},
		// The first waiter has a timer for the end of the lock, so a release notifies it only if the lock ends earlier than
		// before. The message says when.
		{"a release before the end of a lock", "owned", `
			lock A.1r/me A.2r/other:60001; queue B.3w/you; A.1r/me leaves => 1; messages =>
			lock A.1r/me A.2r/other; queue B.3w/you; A.1r/me leaves => 1; messages =>
			lock A.1r/me A.2r/other:59999; queue B.3w/you; A.1r/me leaves => 1; messages => h:B.3w/you`},
		// A waiter has an entry again if the clock of the server was set back behind the end of that entry. A grant then
		// counts it once. Otherwise its owner would have one entry more than it can leave.
		{"entries of waiters", "mutex", `
			lock A.1r/me:1000 A.2r/other; queue A.1r/me; A.2r/other leaves => 1 1000; waiters =>; A.1r/me leaves => 1`},
		// A script removes at most 1000 dead waiters, so that it stays short. A free lock with more gets no holder, and a
		// release asks to be repeated at once.
		{"many dead", "mutex owned", `
			queue {1010 D:@-60000:-}; A.1 joins => near -2 @0
			lock A.1; queue {999 D:@-60000:-}; A.1 leaves => 1
			lock A.1; queue {1001 D:@-60000:-}; A.1 leaves => 1 0`},
		{"many dead before a reader", "mutex once", `
			lock B.1r/stays; queue {2500 D.%r/dead:@-60000:-}; A.1r/me tries => busy -2 B.1r/stays
			A.1r/me tries => busy -2 B.1r/stays; A.1r/me tries => held _; waiters =>`},
		// A grant lasts for a second. Once it is confirmed, the lock ends with its TTL, even if the TTL is shorter.
		{"a short TTL after a grant", "mutex owned", `
			lock H.9; queue A.1; H.9 leaves => 1 1000; A.1 looks ttl=100 => held #0; lock => A.1:100`},
		// What an owner gets while the lock is held in each way: the rows of RWMutex's comment.
		{"readers and writers", "mutex", `
			A.1r/x tries => held _; A.1r/x leaves => 1; A.1w/x tries => held _; A.1w/x leaves => 1; lock =>
			lock A.1r/x; A.2w/x tries => held _; lock A.1r/x; A.2r/x tries => held _; A.3w/x tries => held #4; A.4w/x tries => held _; A.5r/x tries => held _
			A.1r/x leaves => 5; A.2r/x leaves => 4; A.3w/x leaves => 3; A.4w/x leaves => 2; A.5r/x leaves => 1; lock =>
			lock B.1r/y; A.1r/x tries => held _; A.2r/x tries => held _; A.3w/x tries => upgrade; A.3w/x joins => upgrade; waiters =>
			lock B.1r/y; A.1w/x tries => busy 59999 B.1r/y; A.1w/x joins => near 59999 @0 B.1r/y
			B.1r/y leaves => 1 1000; lock => A.1w/x:1000
			lock B.1w/y; A.1w/x tries => busy 59999 B.1w/y; A.1r/x tries => busy 59999 B.1w/y
			B.2r/y tries => held _; A.1r/x joins => near 59999 @0 B.1w/y; A.2r/z joins => near 59999 @1 B.1w/y
			B.1w/y leaves => 2 1000; lock => A.1r/x:1000 A.2r/z:1000 B.2r/y:60000`},
		// A try looks twice at a lock without a queue, and each time removes at most 1000 entries that have ended, so that
		// the script stays short. If there are more, it is sent again. An entry in its last millisecond is extended, and one
		// that has ended is not, even if there are more of those than one script removes.
		{"many ended", "mutex once", `
			lock {999 G.%r/gone:-2} B.1r/stays; A.1r/me tries => held #0; redis zcount lock 0 @-1 => 0
			lock {2500 G.%r/gone:-2} B.1r/stays; A.1r/me tries => busy -2 B.1r/stays; redis zcount lock 0 @-1 => 500
			lock {2500 G.%r/gone:-2} A.1r/me:0 B.1r/stays; A.1r/me tries => held _; redis zcount lock 0 @-1 => 1500
			lock {2500 G.%r/gone:-2} A.1r/me:-1 B.1r/stays; A.1r/me tries => busy -2 B.1r/stays; redis zcount lock 0 @-1 => 501`},
		// After a forced release, the first waiter of each process is called, of at most 32 processes among the first 1000
		// waiters.
		{"force", "mutex", `
			lock B.9; queue nobody P; B.9 forces => 1; messages => l:P.1
			lock B.9; queue nobody {5 A} {3 P} {3 Q}; B.9 forces => 1; messages => l:A.1 l:P.6 l:Q.9
			lock B.9; queue nobody {33 P%.0}; B.9 forces => 1; messages => {32 l:P%.0}
			lock B.9; queue {100 A} {33 P%.0}; B.9 forces => 1; messages => l:A.0 {31 l:P%.0}
			lock B.9; queue {999 A} P; B.9 forces => 1; messages => l:A.0 l:P.999
			lock B.9; queue {1000 A} P; B.9 forces => 1; messages => l:A.0
			lock B.9; queue {998 A} P P Q Q; B.9 forces => 1; messages => l:A.0 l:P.998`},
		// The waiters of a process are passed over from the millisecond in which its grant had to be confirmed, and not
		// earlier.
		{"notes in time", "mutex", `
			lock X:60000
			queue B.2 N.3; notes B:@1; A.1 tries; waiters => B.2 N.3
			queue B.2 N.3; notes B:@0; A.1 tries; waiters => N.3`},
		// The election uses the script that promotes a waiter. It moves the first one of an identity that is alive past all
		// that could come back. A new head is notified, once.
		{"promotions", "mutex", `
			lock X; queue N.1 B.2; A.1 promotes to=B => -1; waiters => N.1 B.2; messages =>
			lock; queue N.1 B.2; A.1 promotes to=B => -1; waiters => N.1 B.2; messages =>
			lock A.1; queue N.1; A.1 promotes to=B => 0; messages =>
			queue N.1 B.2:@-1:-; A.1 promotes to=B => 0; waiters => N.1 B.2; messages =>
			queue N.1 B.2w/B; A.1 promotes to=B => 0; waiters => N.1 B.2w/B; messages =>
			queue B.2; A.1 promotes to=B => 1; queue => B.2:-@0:@60000; messages =>
			queue B.2:-5; A.1 promotes to=B => 1; queue => B.2:-5:@60000; messages =>
			queue N.1 B.2:@-1; A.1 promotes to=B => 1; queue => B.2:-@0:@60000 N.1:@-60000:@60000; messages => h:B.2
			queue N.1:-5 B.2:@-1; A.1 promotes to=B => 1; queue => B.2:-@0:@60000 N.1:-5:@60000; messages => h:B.2
			queue N.1:-9000000000001 B.2:@-1; A.1 promotes to=B => 1; messages => h:B.2 // the clock was set back since
			queue => B.2:-9000000000002:@60000 N.1:-9000000000001:@60000
			queue B.9:@-2:@-1 N.1 B.2:@-1; A.1 promotes to=B => 1; messages => h:B.2
			queue => B.2:-@0:@60000 N.1:@-59999:@60000 B.9:@-2:@-1`},
	})
}

// Each request of a process confirms the grants of that process: its note is removed, and the notes on other
// processes stay. The field is deleted with its last note.
func TestRequestsConfirmGrants(t *testing.T) {
	var steps strings.Builder
	for _, row := range []struct{ state, call, granted string }{
		{"lock A.1; queue N.2", "A.1 looks", ""},
		{"lock X; queue N.2", "A.1 joins", ""},
		{"lock A.1; queue N.2", "A.1 leaves", "N"},
		{"lock X; queue N.2 A.1", "A.1 leaves", ""},
		{"lock A.1w/me; queue O.2w/other", "A.1w/me looks", ""},
		{"lock O.2w/other; queue", "A.1w/me joins", ""},
		{"lock A.1w/me; queue O.2w/other", "A.2w/me joins", ""}, // it passes the queue
		{"lock A.1w/me; queue O.2w/other", "A.1w/me leaves", "O"},
	} {
		for before, after := range map[string]string{
			"A:17": "", "A:-17": "", "D:17 A:17 G:-17": "D:17 G:-17", "D:17": "D:17", "D:-17 G:@1": "D:-17 G:@1",
		} {
			switch {
			case row.granted == "":
			case strings.Contains(after, ":17"): // a grant has lapsed
				after = strings.ReplaceAll(after, ":17", ":-17") + " " + row.granted + ":-~@250"
			default:
				after += " " + row.granted + ":~@1000"
			}
			fmt.Fprintf(&steps, "anew; %s; notes %s; %s; notes => %s\n", row.state, before, row.call, after)
		}
	}
	playScripts(t, []scriptScene{{"all", "mutex", steps.String()}})
}

// An attempt keeps the token of its own entry, or of the entry that its request names, and otherwise gets a new one.
// The owner's other entries do not count, as nobody may hold them any more.
func TestWhoseTokenIsKept(t *testing.T) {
	var steps strings.Builder
	for _, row := range []struct{ lock, last, asks, token string }{
		{"", "#-9", "A.1w/me tries", "#0"},
		// A repeated request.
		{"A.1w/me", "#-9", "A.1w/me tries", "#-9"},
		{"A.2w/me A.1w/me", "#-9", "A.1w/me tries extends=A.2w/me", "#-9"},
		{"A.1r/me", "#-9", "A.1r/me tries extends=A.2w/me", "#-9"},
		{"A.1w/me", "#-1", "A.1w/me tries", "#0"}, // others have got later tokens
		{"A.1r/me", "#-1", "A.1r/me tries", "#-9"},
		{"A.1w/me", "#-9", "A.1w/me tries extends=-", "#0"},
		{"A.1r/me", "#-9", "A.1r/me tries extends=-", "#0"},
		// Beside other entries.
		{"A.2w/me", "#-9", "A.1w/me tries", "#0"},
		{"A.2w/me", "#-9", "A.1w/me tries extends=A.2w/me", "#-9"},
		{"A.2w/me", "#-1", "A.1w/me tries extends=A.2w/me", "#0"},
		{"A.2w/me:0 A.4w/me", "#-9", "A.1w/me tries extends=A.2w/me", "#-9"},
		{"A.2w/me:-1 A.4w/me", "#-8", "A.1w/me tries extends=A.2w/me", "#0"},
		{"A.2w/me:-1 A.4w/me", "#-8", "A.1r/me tries extends=A.2w/me", "#0"},
		{"A.2w/me", "#-1", "A.1r/me tries extends=A.2w/me", "#-9"},
		{"A.2r/me O.3r/other", "#-1", "A.1r/me tries extends=A.2r/me", "#-9"},
		{"A.2r/me", "#-9", "A.1r/me tries", "#0"},
		{"A.2r/me", "#-9", "A.1w/me tries extends=A.2r/me", "#0"},
		{"A.2w/me:60000:#-9:r", "#-9", "A.1w/me tries extends=A.2w/me", "#0"}, // after a downgrade
	} {
		fmt.Fprintf(&steps, "anew; lock %s; fence %s; %s => held %s\n", row.lock, row.last, row.asks, row.token)
		who, _, _ := strings.Cut(row.asks, " ")
		fmt.Fprintf(&steps, "token %s => %s", who, row.token)
		if !strings.Contains(row.asks, "extends=-") {
			fmt.Fprintf(&steps, "; %s tries => held %s", who, row.token)
		}
		fmt.Fprintln(&steps)
	}
	playScripts(t, []scriptScene{{"all", "mutex once", steps.String()}})
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
	type grant struct {
		name     string
		queue    string
		before   string // notes
		messages string // instead of "g:A.0 h:B.1 h:C.2"
		notes    string // after it
		lasts    int    // ms, instead of 1000
		owned    string // messages of a lock with owners, if they differ
		asks     string // instead of a release
	}
	const a, some = "A:~@1000", " B:-~@250 C:-~@250 A:-~@250"
	grants := []grant{
		{"no grant has lapsed", "A B C", "", "", a, 0, "", ""},
		{"a grant is pending", "A B C", "X:@1", "", "X:@1 " + a, 0, "", ""},
		{"a grant has lapsed", "A B B C A B C", "X:@0", "l:B.1 l:C.3 g:A.0 h:B.1 h:C.6", "X:-@0" + some, 250, "", ""},
		{"calls have lapsed", "A B C", "X:-@0 Y:-@0", "", "X:-@0 Y:-@0 " + a, 0, "", ""},
		{"a grant has lapsed, and calls before", "A B C", "X:-@0 Y:@0", "l:B.1 l:C.2 g:A.0 h:B.1 h:C.2", "X:-@0 Y:-@0" + some, 250, "", ""},
		{"known processes are not called", "A B C D E", "B:@0 C:-@0 D:@1", "l:E.4 g:A.0 h:B.1 h:E.4", "B:-@0 C:-@0 D:@1 E:-~@250 A:-~@250", 250, "l:E.4 h:D.3 h:E.4", ""},
		{"of this process", "A B C", "A:@1 X:@0", "l:B.1 l:C.2 g:A.0 h:B.1 h:C.2", "X:-@0 B:-~@250 C:-~@250 A:-~@1", 250, "", ""},
		{"of this process, and later", "A B C", "A:@900 X:@0", "l:B.1 l:C.2 g:A.0 h:B.1 h:C.2", "X:-@0" + some, 250, "", ""},
		{"this process was called", "A B C", "A:-@100 X:-@0", "", "X:-@0 A:-~@100", 100, "", ""},
		{"this process was called, and a grant has lapsed", "A B C", "A:-@100 X:@0", "l:B.1 l:C.2 g:A.0 h:B.1 h:C.2", "X:-@0 B:-~@250 C:-~@250 A:-~@100", 100, "", ""},
		{"those behind the caller are not called", "A B M C M", "X:@0", "l:B.1 g:A.0 h:B.1 h:M.4", "X:-@0 B:-~@250 A:-~@250", 250, "", "M.2 looks"},
		{"thirty-two", "A {30 N%.0} B C D", "X:@0", "{30 l:N%.0} l:B.31 l:C.32 g:A.0 h:N0.0 h:D.33", "X:-@0 {30 N%:-~@250}" + some, 250, "", ""},
		{"behind a thousand", "A {1000 D} B", "X:@0", "l:D.1 g:A.0 h:D.1 h:B.1001", "X:-@0 D:-~@250 A:-~@250", 250, "", ""},
	}
	// These are behind a waiter of A that is granted the lock.
	for _, r := range []struct{ name, queue, messages, owned string }{
		{"no other process", "{40 A}", "h:A.1", ""},
		{"the last one", "A B {37 A} B", "h:A.1 h:B.40", ""},
		{"the last one has lapsed", "{5 A} B {33 A} B:@-59960:@0", "h:A.1 h:B.6", ""},
		{"all have lapsed", "{39 A} B:@-59960:@0", "h:A.1", ""},
		{"the last one is no attempt", "{5 A} B {33 A} nobody", "h:A.1 h:B.6", ""},
		{"the first of two", "A B B {37 A}", "h:A.1 h:B.2", ""},
		{"the last of the first ones", "{31 A} B {8 A}", "h:A.1 h:B.32", ""},
		{"behind it", "{32 A} B B {4 A} B A", "h:A.1", ""},
		{"the next waiter is of a third process", "C {38 A} B", "h:C.1 h:B.40", ""},
		{"and there is no other", "C {39 A}", "h:C.1", ""},
		{"the next waiter is no attempt", "nobody {38 A} B", "h:B.40", "h:B.40 h:A.2"},
		{"the last one is of the process that is granted", "C {4 A} B {34 A}", "h:C.1 h:B.6", ""},
		{"not the last", "B C D E F", "h:B.1 h:F.5", ""},
	} {
		grants = append(grants, grant{name: r.name, queue: "A " + r.queue, messages: "g:A.0 " + r.messages, notes: a, owned: cmp.Or(r.owned, r.messages)})
	}
	for _, family := range []string{"mutex", "owned"} {
		var scenes []scriptScene
		for _, r := range grants {
			messages := cmp.Or(r.messages, "g:A.0 h:B.1 h:C.2")
			if r.owned != "" && family == "owned" {
				messages = "g:A.0 " + r.owned
			}
			lasts := cmp.Or(r.lasts, 1000)
			asks := cmp.Or(r.asks, fmt.Sprint("lock H.99; H.99 leaves => 1 ", lasts))
			scenes = append(scenes, scriptScene{r.name, family, fmt.Sprintf(`
				queue %s; notes %s; %s
				messages => %s; notes => %s; lock => A.0:%d`, r.queue, r.before, asks, messages, r.notes, lasts)})
		}
		playScripts(t, scenes)
	}
	playScripts(t, []scriptScene{
		{"the last request of a process, with a grant", "mutex once", `
			lock H.99; queue A B C D E F; H.99 leaves last => 1 1000
			messages => g:A.0 h:B.1 h:F.5 h1001:B.1 h1001:C.2 h1001:D.3 h1001:E.4 h1001:F.5`},
		{"the last request of an owner, with a grant", "owned once", `
			lock H.99; queue A B C D E F; H.99 leaves last => 1 1000
			messages => g:A.0 h:B.1 h:F.5 h:B.1 h:C.2 h:D.3 h:E.4 h:F.5`},
		{"the last request of a process", "mutex owned once", `
			lock H.99; queue; H.99 leaves last => 1; messages =>
			lock H.99; queue A; H.99 leaves last => 1 1000; messages => g:A.0
			lock X.9; queue A B; H.99 leaves last => 0; messages =>
			notes X:@300; H.99 leaves => 0; messages =>; notes => X:@300
			H.99 leaves last => 0; messages => h301:A.0 h301:B.1; notes => X:@300
			notes X:@0; H.99 leaves last => 0; messages =>; notes => X:@0
			notes X:@1; H.99 leaves last => 0; messages => h2:A.0 h2:B.1; notes => X:@1
			notes X:@300 Y:@200; H.99 leaves last => 0; messages => h301:A.0 h301:B.1
			notes X:@300 A:@200; H.99 leaves last => 0; messages => h301:B.1`},
	})
}

// A dead waiter keeps a free name for its kind no longer than a grant that it does not confirm.
func TestFault32_DeadWaiterOfAnotherKind(t *testing.T) {
	t.Parallel()
	playScripts(t, []scriptScene{{"all", "mutex", `
		queue D.1w/dead; A.1 tries => kind; notes => D:-~@1000; pass 400ms; A.1 tries => kind; notes => D:-~@1000
		pass 600ms; A.1 tries => held _; A.1 leaves => 1
		queue D.1; A.1w/me tries => kind; notes => D:-~@2000; pass 400ms; A.1w/me tries => kind; notes => D:-~@2000
		pass 600ms; A.1w/me tries => held _`}})
}

// A release that leaves the lock free writes the end into the record of an election, once. If it held the lock of one
// server, it writes into any record. Otherwise it writes only into the record of its own attempt. A release without a tombstone leaves none.
func TestReleaseEndsTheRecordOfAnElection(t *testing.T) {
	t.Parallel()
	const stays = "leader => holder=pod v=1"
	for _, row := range []struct{ name, state, ends, otherwise string }{
		{"its own record", "lock A.1; leader A.1", "mutex quorum", ""},
		{"its own record, and another one waits", "lock A.1; leader A.1; queue B", "quorum", stays + "; messages => g:B.0"},
		{"another's record", "lock A.1; leader B.2", "mutex", stays + "; messages =>"},
		{"a free lock", "leader A.1", "mutex quorum", ""},
		{"a free lock, and another's record", "leader B.2", "", stays + "; messages =>"},
		{"another's lock", "lock B.3; leader A.1", "quorum", stays + "; messages =>"},
		{"a record that has ended", "lock A.1; leader A.1 released:7", "", stays + " released=7; messages =>"},
		{"a record of another version", "lock A.1; leader A.1 v:2", "", "leader => holder=pod v=2; messages =>"},
		{"a key of another type", "lock A.1; redis set leader spoilt", "", "redis get leader => spoilt; messages =>"},
		{"no record", "lock A.1", "", "redis exists leader => 0; messages =>"},
	} {
		for _, family := range []string{"mutex", "quorum"} {
			result := row.otherwise
			if strings.Contains(row.ends, family) {
				result = "leader => holder= released=@0 v=1; messages => noonlock:ch:NEWS"
			}
			playScripts(t, []scriptScene{{row.name, family, row.state + "; A.1 leaves news=1; A.1 leaves => 0; tomb =>; " + result}})
		}
	}
}

// The kind of a name is the kind of its holder, or without a holder, the kind of its first waiter. The kinds are Mutex,
// the locks with owners together, and Semaphore. Other kinds are refused, and a waiter loses its turn to nobody.
func TestFault32_KindsExcludeEachOther(t *testing.T) {
	t.Parallel()
	for held, others := range map[string]string{
		"A.1": "B.1w/b B.1r/b B.1p/-", "A.1w/a": "B.1 B.1p/-", "A.1r/a": "B.1 B.1p/-", "A.1p/-": "B.1 B.1w/b B.1r/b",
	} {
		for asked := range strings.FieldsSeq(others) {
			playScripts(t, []scriptScene{{held + " and " + asked, "mutex once", strings.NewReplacer("HELD", held, "ASKED", asked).Replace(`
				lock HELD; ASKED tries => kind; ASKED joins => kind; HELD renews => 1; messages =>
				lock; queue HELD; ASKED tries => kind; messages => l:HELD; ASKED joins => kind; waiters => HELD
				HELD looks; HELD renews => 1`)}})
		}
	}
}
