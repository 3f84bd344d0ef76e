package lockcore_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock/internal/lock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
)

// documented returns the rights that docs/SECURITY.md lists after a text.
func documented(t testing.TB, text string) (rules []string) {
	t.Helper()
	all := call(os.ReadFile("../docs/SECURITY.md")).Must(t)
	_, after, found := strings.Cut(string(all), text)
	list := strings.SplitN(after, "`", 3)
	if !found || len(list) < 3 {
		t.Fatalf("SECURITY.md does not say %q", text)
	}
	return strings.Fields(list[1])
}

// mutexRights are the rights that a Mutex needs.
func mutexRights(t testing.TB) []string {
	t.Helper()
	return testenv.Rights(t, lock.MutexNeeds(), false)
}

// ownedRights are those of a lock with owners.
func ownedRights(t testing.TB) []string {
	t.Helper()
	return testenv.Rights(t, lock.OwnedNeeds(), false)
}

// A user with exactly the documented rights can do everything. HELLO and AUTH cannot be denied. Without the right to
// publish or subscribe, waiters are slow, and nothing is wrong.
func TestFault60_DocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	cfg := ttl(6 * time.Second)
	as := func(user string, rules ...string) *lockcore.Client {
		return e.ClientWith(e.As(user, rules...), lockcore.Config{Identity: user})
	}
	use := func(name string, a *lockcore.Client) *lockcore.Lease {
		lease, waiter := e.try(e.mutex(a, name, cfg)), e.queued(e.mutex(a, name, cfg))
		e.refused(e.mutex(a, name, cfg))
		_ = e.queued(e.mutex(a, name, cfg)).quits()
		e.Pass(2300 * time.Millisecond) // a renewal
		must(e, lease.Context().Err())
		e.unlock(lease)
		return waiter.granted()
	}
	rights, owned := mutexRights(t), ownedRights(t)
	e.unlock(use("m", as("mutex", rights...)))
	e.use("write")
	c := as("owned", owned...)
	e.unlock(use("w", c))
	x, y := e.rw(c, "w", "x", cfg), e.rw(c, "w", "y", cfg)
	first, inner, read := e.try(x), e.try(x), e.try(reads{x})
	e.unlock(inner)
	reader := e.queued(reads{y})
	must(e, lockcore.Downgrade(e.Context(), first))
	other := reader.granted()
	_, err := x.TryLock(e.Context())
	mustIs(e, err, lockcore.ErrUpgrade)
	e.unlock(first)
	e.unlock(other)
	writer := e.queued(y)
	e.unlock(read)
	e.unlock(writer.granted())

	inspect := documented(t, "Inspect and Election.Candidates need")
	all := slices.Concat(inspect, documented(t, "ForceRelease needs"))
	looker, forcer := as("looker", inspect...), as("forcer", all...)
	e.try(reads{e.rw(c, "f", "x", cfg)})
	e.try(reads{e.rw(c, "f", "y", ttl(time.Hour))})
	waiter := e.queued(e.rw(c, "f", "z", ttl(time.Hour)))
	must(e, e.Raw.Set(e.Context(), e.key("g", "lock"), living, time.Minute).Err())
	must(e, e.Raw.ConfigResetStat(e.Context()).Err())
	e.inspect(looker, "g")
	seen := e.inspect(looker, "f")
	e.usesAll(inspect)
	longer := seen // its end is brought forward
	longer.Holders = slices.DeleteFunc(slices.Clone(seen.Holders), func(h lockcore.Holder) bool { return h.TTL < time.Minute })
	for _, s := range []lockcore.Inspection{longer, seen} {
		call(forcer.ForceRelease(e.Context(), s)).Must(e)
	}
	e.forced(1)(e.force(forcer, "g"))
	e.usesAll(all)
	e.unlock(waiter.granted())
	if past, err := as("reader", documented(t, "ForcedReleases and")...).ForcedReleases(e.Context(), "f"); len(past) != 2 || err != nil {
		e.Errorf("ForcedReleases: %v, %v", past, err)
	}
	kept := e.try(e.mutex(c, "kept", cfg))
	e.lists(as("lister", documented(t, "Locks, and")...), "kept")
	e.unlock(kept)
	opt := e.As("setup", append(slices.Clone(rights), "-hello", "-auth", "+select")...)
	opt.DB, opt.ClientName = 3, "replica"
	m := call(e.ClientWith(opt, lockcore.Config{}).Mutex("m", cfg)).Must(e)
	e.unlock(e.try(m))
	m = call(e.ClientWith(e.As("delayed", append(slices.Clone(rights), documented(t, "LockDelay needs")...)...), lockcore.Config{LockDelay: 3 * time.Second}).Mutex("m", ttl(3*time.Second))).Must(e)
	e.unlock(e.lock(m))
	e.usesAll(documented(t, "LockDelay needs"))
	for _, l := range e.Raw.ACLLog(e.Context(), 100).Val() {
		if l.Username != "lister" || l.Object != "cluster|info" { // without which Locks trusts the server
			t.Errorf("refused: %s of %s", l.Object, l.Username)
		}
	}
	must(e, e.Raw.Set(e.Context(), e.key("g", "lock"), living, time.Minute).Err())
	e.forced(1)(e.force(as("mute", append(all, "-hset", "-lpush", "-ltrim")...), "g")) // without a remark
	for _, right := range []string{"-publish", "-subscribe"} {
		e.unlock(use("w"+right, as("slow"+right, append(slices.Clone(owned), right)...)))
	}
}

// usesAll asserts that the server has executed each command of these rights.
func (e *env) usesAll(rights []string) {
	e.Helper()
	calls := e.allCalls()
	for _, right := range rights {
		if command, is := strings.CutPrefix(right, "+"); is && command != "eval" && calls[command] == 0 {
			e.Errorf("%s is not needed", right)
		}
	}
}

// If a right is missing, the error says so and is not temporary, nothing is granted, and no key is left without an
// end.
func TestFault60_RightsThatAreMissing(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	good := e.Client("good")
	for kind, rights := range map[string][]string{"mutex": mutexRights(t), "write": ownedRights(t)} {
		e.use(kind)
		for _, right := range rights[slices.Index(rights, "-@all")+1:] {
			name := kind + strings.Replace(right, "+", "-", 1)
			c := e.ClientWith(e.As(name, append(slices.Clone(rights), strings.Replace(right, "+", "-", 1))...), lockcore.Config{})
			held := e.try(e.mutex(good, name, ttl(time.Minute)))
			ctx, cancel := context.WithTimeout(e.Context(), 100*time.Millisecond)
			if lease, _ := e.mutex(c, name, ttl(10*time.Second)).Lock(ctx); lease != nil {
				e.Errorf("%s: a lock that another one holds was granted", name)
			}
			cancel()
			e.unlock(held)
			m := e.mutex(c, name, ttl(10*time.Second))
			var lease *lockcore.Lease
			var err error
			e.Until("a grant to the attempt that has left lapses", func() bool {
				lease, err = m.TryLock(e.Context())
				return !errors.Is(err, lockcore.ErrNotAcquired)
			})
			if err == nil {
				_ = lease.Unlock(e.Context()) // it may need the right
			} else if !strings.Contains(err.Error(), "NOPERM") || lockcore.IsTemporary(err) {
				e.Errorf("%s: %v, want NOPERM, which is not temporary", name, err)
			}
			for _, part := range []string{"lock", "queue", "seen"} {
				if e.Raw.PTTL(e.Context(), e.key(name, part)).Val() == -1 && right != "+pexpire" {
					e.Errorf("%s: the key %s is left without an end", name, part)
				}
			}
		}
	}
	e.use("mutex")
	for name, cfg := range map[string]lockcore.Config{"info": {LockDelay: time.Second}, "wait": {MinReplicas: 1}, "select": {}} {
		opt := e.As("without-"+name, mutexRights(t)...)
		if name == "select" {
			opt.DB = 3
		}
		m := e.mutex(e.ClientWith(opt, cfg), name, ttl(time.Second))
		if lease, err := m.TryLock(e.Context()); lease != nil || !strings.Contains(err.Error(), "NOPERM") || lockcore.IsTemporary(err) {
			e.Errorf("without %s: %v", name, err)
		}
		e.Until("the lock is given back", func() bool { return e.stored(name) == "" })
	}
	_, err := lockcore.Locks(e.Context(), e.ClientWith(e.As("blind", "+@all", "~*", "-scan"), lockcore.Config{}), nil)
	if err == nil || !regexp.MustCompile("NOPERM.*scan").MatchString(err.Error()) || lockcore.IsTemporary(err) {
		e.Errorf("Locks without the right to scan: %v", err)
	}
}

// If an ACL forbids to give a lock's key an end, or to read its entries, the script refuses, and says what is
// forbidden. Nothing of the lock is left, as the client could die before it releases the lock.
func TestOwnedLockWithoutRights(t *testing.T) {
	t.Parallel()
	e := realEnv(t)
	const mine = "ns1:ALIVE.1.w/me id"
	source := call(lockcore.ScriptSource("owned_acquire")).Must(e)
	for _, right := range []string{"-pexpireat", "-zmscore"} {
		user := redis.NewClient(e.As("user"+right, "~*", "&*", "+@all", right))
		defer user.Close()
		if right == "-zmscore" {
			e.establish("orders", heldBy(mine))
		}
		answer, err := user.Eval(t.Context(), source, e.scriptKeys("orders"), argv("owned_acquire", mine, 60000, "try")...).Result()
		if err == nil || !strings.Contains(err.Error(), "can't run this command") && !strings.Contains(err.Error(), "permissions to run") {
			t.Errorf("%s: answer %v, error %v, want one that tells what is forbidden", right, answer, err)
		}
		if right == "-pexpireat" && e.Exists(e.key("orders", "lock")) {
			t.Error("the lock is left without an end")
		}
	}
}
