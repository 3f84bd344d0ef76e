package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// force releases the lock of a name for its present holders.
func (e *env) force(c *lockcore.Client, name string) (int, error) {
	seen, err := c.Inspect(e.Context(), name)
	if err != nil {
		return 0, err
	}
	return c.ForceRelease(e.Context(), seen)
}

// forced asserts that a forced release has ended n leases.
func (e *env) forced(n int) func(ended int, err error) {
	return func(ended int, err error) {
		e.Helper()
		must(e, err)
		equal(e, "released leases", ended, n)
	}
}

// forcedOut checks the cause of the end of a lease that an operator has released. On a real server, a slow machine
// may not read it in time.
func (e *env) forcedOut(lease *lockcore.Lease, by, reason string) {
	e.Helper()
	cause := e.ended(lease)
	mustIs(e, cause, lockcore.ErrLeaseLost)
	e.WaitIdle() // it is read after the end
	e.saysWho(cause, by, reason)
}

func (e *env) saysWho(err error, by, reason string) {
	e.Helper()
	forced, ok := errors.AsType[*lock.ForcedError](err)
	if !ok && e.Bubble != nil || ok && (forced.By != by || forced.Reason != reason) {
		e.Errorf("%v does not say that %s released it because of %q", err, by, reason)
	}
}

// A lease ends when the server answers that it is lost, however long it takes to read why: after a renewal and after
// a Downgrade. The cause then says who has released it.
// Caught mutant: the reason is read first.
func TestForceReleaseEndsTheLeaseFirst(t *testing.T) {
	inBubbleAllKinds(t, func(e *env) {
		admin := e.Client("admin")
		c, f := e.Linked("holder")
		for _, downgrade := range []bool{false, true} {
			lease := e.try(e.mutex(c, "orders", ttl(3*time.Second)))
			reading := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: testenv.Command("hget"), Count: 1})
			e.forced(1)(admin.ForceRelease(lockcore.WithOperator(e.Context(), lockcore.Operator{Who: "ann@desk"}), e.inspect(admin, "orders")))
			answered := make(chan error, 1)
			if downgrade {
				go func() { answered <- lockcore.Downgrade(e.Context(), lease) }()
				if e.kind != "write" {
					mustIs(e, <-answered, lockcore.ErrNotWriter)
					answered = nil
				}
			}
			must(e, reading.Wait(e.Context(), 1))
			mustIs(e, context.Cause(lease.Context()), lockcore.ErrLeaseLost)
			reading.Lift()
			e.forcedOut(lease, "ann@desk", "")
			if downgrade && answered != nil {
				err := <-answered
				mustIs(e, err, lockcore.ErrNotHeld)
				e.saysWho(err, "ann@desk", "")
			}
		}
	})
}

// The reply to an operator's request is lost, and the lock is another one when the request is sent again. Neither a
// release nor a new size is denied. The next holder keeps the lock.
// Caught mutants: no lease to release means that none was; the refusal counts as if it were the first answer.
func TestFault26_OperatorsLoseTheReply(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warm("lock_force")
		e.warm("owned_resize")
		admin, f := e.Linked("admin")
		a, b, long := e.Client("a"), e.Client("b"), ttl(time.Minute)
		e.try(e.mutex(a, "orders", long))
		next := e.queued(e.mutex(b, "orders", long)) // it has the lock when the request is sent again
		gpus := call(admin.Semaphore("gpus", 1, ttl(time.Minute))).Must(e)
		must(e, gpus.Resize(e.Context(), 2))
		for _, c := range []struct {
			name, script string
			begin, then  func() error // before the call, and between its tries
			call         func() (int, error)
			want         error
			released     int
		}{
			{
				"a lease is released", "lock_force", func() error { return nil }, func() error { return nil },
				func() (int, error) { return e.force(admin, "orders") }, nil, 1,
			},
			{
				"a foreign key", "lock_force", func() error { return e.Raw.RPush(e.Context(), e.key("foreign", "lock"), "x").Err() }, func() error { return nil },
				func() (int, error) { return e.force(admin, "foreign") }, lockcore.ErrUnknown, 0,
			},
			{
				"a semaphore", "owned_resize", func() error { return nil }, func() error { return e.Raw.Set(e.Context(), e.key("gpus", "lock"), "x", 0).Err() },
				func() (int, error) { return 0, gpus.Resize(e.Context(), 3) }, lockcore.ErrWrongKind, 0,
			},
		} {
			must(e, c.begin())
			lost := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.SwallowReply, Match: e.script(c.script), Count: 1})
			var n int
			var err error
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				n, err = c.call()
			}()
			must(e, lost.Wait(e.Context(), 1))
			must(e, c.then())
			<-answered
			if n != c.released || !errors.Is(err, c.want) || c.want != nil && !errors.Is(err, lockcore.ErrUnknown) {
				e.Errorf("%s: %d, %v", c.name, n, err)
			}
		}
		e.unlock(next.granted())
	})
}

// The remark about a release lasts until the last lease would have ended, or for a second if the key had no TTL.
func TestForceReleaseRemarkLasts(t *testing.T) {
	onBoth(t, func(e *env) {
		admin, a := e.Client("admin"), e.Client("a")
		must(e, e.Raw.Set(e.Context(), e.key("foreign", "lock"), "sesame", 0).Err())
		e.forced(1)(e.force(admin, "foreign"))
		if left := e.Raw.PTTL(e.Context(), e.key("foreign", "forced")).Val(); left > time.Second || e.Bubble != nil && left != time.Second {
			e.Errorf("the remark about a foreign key lasts %v", left)
		}
		for _, lasts := range []time.Duration{time.Hour, time.Minute} {
			e.try(e.mutex(a, "m", ttl(lasts)))
			e.forced(1)(e.force(admin, "m"))
			left := e.Raw.PTTL(e.Context(), e.key("m", "forced")).Val()
			if n := e.Raw.HLen(e.Context(), e.key("m", "forced")).Val(); left > time.Hour || left < 50*time.Minute || n == 0 {
				e.Errorf("%d remarks for %v", n, left)
			}
		}
	})
}

// What operators have released is listed, newest first: the last 100 releases, for a week.
func TestForcedReleases(t *testing.T) {
	onBoth(t, func(e *env) {
		admin, a := e.Client("admin"), e.Client("a")
		list := func(name string) []lockcore.ForcedRelease {
			return call(admin.ForcedReleases(e.Context(), name)).Must(e)
		}
		if got := list("s"); len(got) > 0 {
			e.Errorf("before the first one: %+v", got)
		}
		now := call(e.Raw.Time(e.Context()).Result()).Must(e)
		for _, by := range []lockcore.Operator{{Who: "ann@desk", Reason: "it is stuck"}, {Who: "bob"}} {
			for range 2 {
				e.try(reads{e.rw(a, "s", "one", ttl(time.Minute))})
			}
			n := call(admin.ForceRelease(lockcore.WithOperator(e.Context(), by), e.inspect(admin, "s"))).Must(e)
			equal(e, "released leases", n, 2)
			got := list("s")
			if got[0].By != by || got[0].Leases != 2 || got[0].At.Before(now.Truncate(time.Millisecond)) || got[0].At.After(now.Add(time.Hour)) {
				e.Errorf("%+v by %+v", got[0], by)
			}
		}
		if got := list("s"); len(got) != 2 || got[1].By.Reason != "it is stuck" {
			e.Errorf("two releases: %+v", got)
		}
		const week = 7 * 24 * time.Hour
		if left := e.Raw.PTTL(e.Context(), e.key("s", "releases")).Val(); left > week || left < week-time.Hour || e.Bubble != nil && left != week {
			e.Errorf("the list is kept for %v", left)
		}
		for range 99 {
			e.try(e.rw(a, "s", "one", ttl(time.Minute)))
			_, err := admin.ForceRelease(e.Context(), e.inspect(admin, "s"))
			must(e, err)
		}
		if got := list("s"); len(got) != 100 || got[0].By.Who != "admin" || got[99].By.Who != "bob" {
			e.Errorf("%d releases are kept; the oldest is %+v", len(got), got[len(got)-1])
		}
		must(e, e.Raw.Del(e.Context(), e.key("s", "releases")).Err())
		for _, spoilt := range []string{"x", "1\nx\nann\n", "x\n1\nann\n"} {
			must(e, e.Raw.LPush(e.Context(), e.key("s", "releases"), spoilt).Err())
			if _, err := admin.ForcedReleases(e.Context(), "s"); err == nil {
				e.Errorf("the entry %q: %v", spoilt, err)
			}
			must(e, e.Raw.LPop(e.Context(), e.key("s", "releases")).Err())
		}
	})
}

// A lock of each kind is force-released. The next waiter is served at once. Its holders notice at their next renewal,
// or when they downgrade, and say who has released it and why: as the cause, in the log and in the metrics. Only the
// leases that the operator has seen are released: readers that came later and later leases of the owner keep the lock,
// and so does the next holder. The operator is by default the Client. Log lines have identities only.
// Caught mutant: ForceRelease releases whoever holds the lock.
func TestForceRelease(t *testing.T) {
	onBoth(t, func(e *env) {
		var log, lost testenv.Log
		reg, losses := prometheus.NewRegistry(), prometheus.NewRegistry()
		admin := e.ClientWith(e.Direct(), lockcore.Config{Identity: "admin", Logger: log.Logger(), Registerer: reg})
		a := e.ClientWith(e.Direct(), lockcore.Config{Identity: "a", Logger: lost.Logger(), Registerer: losses})
		b := e.Client("b")
		cfg := ttl(3 * time.Second)
		long := ttl(10 * time.Minute) // whose looks and renewals are far away
		for i, row := range []struct {
			holds, later, waits locker // later holds it, too, after the operator has looked
			by                  lockcore.Operator
			who                 string
		}{
			{e.mutex(a, "m", cfg), nil, e.mutex(b, "m", long), lockcore.Operator{Who: "ann@desk", Reason: "it is stuck"}, "ann@desk"},
			{e.reentrant(a, "x", "one", cfg), e.reentrant(b, "x", "one", long), e.reentrant(b, "x", "two", long), lockcore.Operator{Who: "bob"}, "bob"},
			{reads{e.rw(a, "s", "one", cfg)}, reads{e.rw(b, "s", "three", long)}, e.rw(b, "s", "two", long), lockcore.Operator{}, "admin"},
			{e.rw(a, "w", "one", long), nil, e.rw(b, "w", "two", long), lockcore.Operator{Reason: "it is stuck"}, "admin"},
		} {
			stuck := e.try(row.holds)
			seen := e.inspect(admin, row.holds.Name())
			var later *lockcore.Lease
			if row.later != nil {
				later = e.try(row.later)
			}
			waiter := e.queued(row.waits)
			operator := lockcore.WithOperator(e.Context(), row.by)
			e.forced(1)(admin.ForceRelease(operator, seen))
			if later != nil {
				call(admin.ForceRelease(operator, seen)).MustFail(e, lockcore.ErrChanged)
				e.unlock(later)
			}
			next := waiter.granted()
			call(admin.ForceRelease(operator, seen)).MustFail(e, lockcore.ErrChanged)
			tokensGrow(e, stuck, next)
			if row.holds.Name() == "w" {
				err := lockcore.Downgrade(e.Context(), stuck)
				mustIs(e, err, lockcore.ErrNotHeld)
				e.saysWho(err, row.who, row.by.Reason)
			}
			e.forcedOut(stuck, row.who, row.by.Reason)
			err := stuck.Unlock(e.Context())
			mustIs(e, err, lockcore.ErrNotHeld, lockcore.ErrLeaseLost)
			e.saysWho(err, row.who, row.by.Reason)
			must(e, next.Context().Err())
			equal(e, "counted releases", int(metric(e, reg, "noonlock_forced_releases_total")), i+1)
			if got := metric(e, losses, "noonlock_lease_losses_total", "cause", "forced"); e.Bubble != nil && int(got) != i+1 {
				e.Errorf("%v losses are counted as forced, want %d", got, i+1)
			}
		}
		if text := log.String(); !strings.Contains(text, `"a"`) || strings.Contains(text, a.Process()) {
			e.Errorf("log: %s", text)
		}
		if e.Bubble != nil {
			e.Until("it is logged", func() bool {
				return strings.Contains(lost.String(), "the lock was released by force, by admin: it is stuck")
			})
		}
		e.forced(0)(e.force(admin, "free"))
		for _, by := range []lockcore.Operator{{Who: "a\nb"}, {Reason: strings.Repeat("x", 201)}} {
			call(admin.ForceRelease(lockcore.WithOperator(e.Context(), by), lockcore.Inspection{Name: "s"})).MustFail(e, noonlock.ErrConfig)
		}
	})
}

// A release succeeds if its remark cannot be written, because the key is of another type. TestFault31_OutOfMemory and
// TestFault60_DocumentedRightsAreEnough have other causes.
// Caught mutant: an error of HSET ends the script, after the lock was removed.
func TestForceReleaseWithoutARemark(t *testing.T) {
	onAllKinds(t, func(e *env) {
		admin, cfg := e.Client("admin"), ttl(10*time.Minute)
		e.try(e.mutex(e.Client("a"), "orders", cfg))
		waiter := e.queued(e.mutex(e.Client("b"), "orders", cfg))
		forced, releases := e.key("orders", "forced"), e.key("orders", "releases")
		must(e, e.Raw.RPush(e.Context(), forced, "spoilt").Err())
		must(e, e.Raw.Set(e.Context(), releases, "spoilt", 0).Err())
		e.forced(1)(e.force(admin, "orders"))
		e.unlock(waiter.granted())
		// The second call looks for the remark.
		must(e, e.Raw.RPush(e.Context(), forced, "spoilt").Err())
		source := call(lockcore.ScriptSource("lock_force")).Must(e)
		k := e.scriptKeys("orders")
		again := e.Raw.Eval(e.Context(), source, []string{k[0], k[2], forced, releases}, argv("lock_force", "string", living)...)
		e.forced(0)(again.Int())
	})
}

// heldStates are the states of a held lock.
func heldStates() map[string]keyState {
	const (
		one, same = "ns1:ALIVE.1.r/one a", "ns1:ALIVE.2.r/one b"
		two       = "ns1:ALIVE.3.r/two c"
		once      = "ns1:ALIVE.1.w/one a"
		again     = "ns1:ALIVE.2.w/one b"
		minute    = time.Minute
	)
	of := func(entries ...ownedEntry) keyState { return keyState{entries: entries} }
	return map[string]keyState{
		"free":      {},
		"mine":      {holder: me},
		"another's": {holder: living},
		"empty":     {other: "string"},
		"a list":    {other: "list"},
		"a hash":    {other: "hash"},

		"an owner that writes twice": of(entryOf(once, minute), entryOf(again, time.Hour)),
		"an attempt of it":           of(entryOf(again, time.Hour)),
		"a reader":                   of(entryOf(one, time.Hour)),
		"a reader twice":             of(entryOf(one, time.Hour), entryOf(same, minute)),
		"two readers":                of(entryOf(one, time.Hour), entryOf(same, minute), entryOf(two, minute/2)),
		"the second reader":          of(entryOf(two, minute/2)),
		"a writer":                   of(entryOf("ns1:ALIVE.4.w/three d", minute)),
	}
}

// reported returns the kind and the attempts that lock_inspect reports, the latter sorted.
func (s keyState) reported() (string, []string) {
	switch {
	case s.other == "string" || s.holder != "":
		return "string", []string{s.holder}
	case s.other != "":
		return "other", nil
	case s.entries == nil:
		return "", nil
	}
	var all []string
	for _, x := range s.entries {
		all = append(all, x.attempt)
	}
	slices.Sort(all)
	return "ns1", all
}

// A lock was seen in one state and is force-released in another. The seen holders that still hold it lose it, once,
// and no others do. The lock ends with the last remaining entry. The waiters near the head of the queue are notified
// if they may acquire something.
func TestForceInEveryState(t *testing.T) {
	onOneServer(t, func(e *env) {
		heard := e.hears("noonlock:ch:ALIVE")
		k := e.scriptKeys("orders")
		forced, releases := e.key("orders", "forced"), e.key("orders", "releases")
		queue := []string{living, "ns1:ALIVE.5.w/five e", "ns1:ALIVE.6.r/six f", "nl1:ALIVE.7/seven"}
		establish := func(s keyState) {
			must(e, e.Raw.Del(e.Context(), forced, releases).Err())
			s.queue = queue
			e.establish("orders", s)
		}
		for was, then := range heldStates() {
			establish(then)
			answer := e.run("lock_inspect", append(k[:4:4], e.key("orders", "size"))).([]any)
			var seen []string
			for row := range slices.Chunk(answer[2].([]any), 4) {
				seen = append(seen, row[0].(string))
			}
			slices.Sort(seen)
			kind, holders := then.reported()
			if answer[0] != kind || !slices.Equal(seen, holders) {
				e.Errorf("%s: inspected as %v", was, answer)
			}
			if kind == "" {
				continue // nothing to take
			}
			for is, now := range heldStates() {
				establish(now)
				before := e.snapshot("orders")
				for run := range 2 {
					got := e.run("lock_force", []string{k[0], k[2], forced, releases}, kind, strings.Join(seen, "\n"))
					where := fmt.Sprintf("%s, then %s, run %d", was, is, run+1)
					checkForced(e, where, then, now, run == 0, before, got, e.Received(heard, "noonlock:ch:ALIVE"))
				}
			}
		}
	})
}

func checkForced(e *env, where string, then, now keyState, first bool, before snapshot, got any, messages []string) {
	e.Helper()
	after := e.snapshot("orders")
	kind, seen := then.reported()
	isKind, holders := now.reported()
	remarks, left, ends := map[string]string{}, maps.Clone(before.until), int64(0)
	switch {
	case kind != isKind:
	case kind == "other":
		remarks[""] = "op\nwhy"
	default:
		for _, attempt := range holders {
			if slices.Contains(seen, attempt) {
				remarks[attempt] = "op\nwhy"
				delete(left, attempt)
			}
		}
	}
	for _, until := range left {
		ends = max(ends, until)
	}
	taken := len(remarks)
	equal(e, where+": recorded releases", int(e.Raw.LLen(e.Context(), e.key("orders", "releases")).Val()), min(taken, 1))
	want, calls := taken, min(taken, 1)
	if !first {
		delete(remarks, "") // of no attempt
		want, calls = len(remarks), 0
	}
	if got != int64(want) || len(messages) != calls {
		e.Errorf("%s: %v were released, want %d; messages %q", where, got, want, messages)
	}
	if noted := e.Raw.HGetAll(e.Context(), e.key("orders", "forced")).Val(); first && !maps.Equal(noted, remarks) {
		e.Errorf("%s: remarks %q, want %q", where, noted, remarks)
	}
	switch {
	case taken == 0:
		if !before.same(after) || before.end != after.end {
			e.Errorf("%s: %+v became %+v", where, before, after)
		}
	case len(left) == 0:
		equal(e, where+": the lock", after.kind, "none")
	default:
		if !maps.Equal(left, after.until) || after.end != ends || e.Bubble == nil && after.keyEnd != ends {
			e.Errorf("%s: %v are left until %d, want %v until %d", where, after.until, after.end, left, ends)
		}
	}
	if !slices.Equal(before.queue, after.queue) {
		e.Errorf("%s: the queue became %q", where, after.queue)
	}
}
