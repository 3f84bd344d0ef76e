package lockcore_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// The table of docs/PITFALLS.md names tests that exist.
func TestPitfallsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "docs", "PITFALLS.md"))
	if err != nil {
		t.Fatal(err)
	}
	exist := map[string]bool{}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				exist[f.Name.Name] = true
			}
		}
	}
	rows := 0
	name := regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Mistake") {
			continue
		}
		rows++
		named := name.FindAllStringSubmatch(line, -1)
		if len(named) == 0 {
			t.Errorf("no test is named in: %s", line)
		}
		for _, n := range named {
			if !exist[n[1]] {
				t.Errorf("%s does not exist", n[1])
			}
		}
	}
	if rows < 11 {
		t.Errorf("%d rows, want the eleven mistakes", rows)
	}
}

// Two clients of one identity that send requests in one millisecond are distinguished.
func TestSameIdentityInTheSameMillisecond(t *testing.T) {
	onBoth(t, func(e *env) {
		a, b := e.Client("twin"), e.Client("twin")
		ma, mb := e.mutex(a, "orders", ttl(5*time.Second)), e.mutex(b, "orders", ttl(5*time.Second))
		values := map[string]bool{}
		var last *lockcore.Lease
		for range 5 {
			for _, m := range []locker{ma, mb} {
				lease := e.try(m)
				if last != nil {
					mustIs(e, last.Unlock(e.Context()), lockcore.ErrNotHeld)
				}
				value := e.stored("orders")
				if value == "" || values[value] {
					e.Fatalf("the value %q was used before, or the twin released it", value)
				}
				values[value] = true
				e.unlock(lease)
				last = lease
			}
		}
		if !strings.HasSuffix(e.refusedBy(ma, mb), "twin") {
			e.Error("the identity is not shown")
		}
	})
}

// refusedBy acquires the first lock and returns the holder that the second one's error
// names.
func (e *env) refusedBy(first, second locker) string {
	e.Helper()
	lease := e.try(first)
	defer e.unlock(lease)
	return e.refused(second).Holder
}

// The end of one lease, of any kind, does not affect the renewal of the others.
func TestLeasesAreRenewedIndependently(t *testing.T) {
	onBoth(t, func(e *env) {
		c := e.Client("a")
		cfg := ttl(3 * time.Second)
		kept := e.try(e.mutex(c, "kept", cfg))
		alike := e.try(e.mutex(c, "alike", cfg))
		released := e.try(e.mutex(c, "released", cfg))
		lost := e.try(e.mutex(c, "lost", cfg))
		capped := e.try(e.mutex(c, "capped", lockcore.LeaseConfig{TTL: 3 * time.Second, MaxHold: 100 * time.Millisecond}))
		e.unlock(released)
		mustIs(e, released.Unlock(e.Context()), lockcore.ErrNotHeld) // closed twice
		e.Raw.Del(e.Context(), e.key("lost", "lock"))
		mustIs(e, e.ended(lost), lockcore.ErrLeaseLost)
		mustIs(e, e.ended(capped), lockcore.ErrLeaseExpired)
		e.Pass(2 * time.Second)
		for _, l := range []*lockcore.Lease{kept, alike} {
			if l.Context().Err() != nil || e.stored(l.Name()) == "" {
				e.Errorf("%s ended with another's lease", l.Name())
			}
			e.unlock(l)
		}
	})
}

// Nothing depends on the time of day of a client, or on the agreement of two clients'
// clocks.
func TestClocksOfClientsNeedNotAgree(t *testing.T) {
	onBoth(t, func(e *env) {
		var clients []*lockcore.Client
		for _, ahead := range []time.Duration{0, -5 * time.Minute, 1000 * time.Hour} {
			clock := testenv.NewClock()
			clock.Advance(ahead)
			clients = append(clients, e.ClientOn(clock.Now, e.Direct(), lockcore.Config{}))
		}
		cfg := ttl(3 * time.Second)
		last := uint64(0)
		for i, c := range clients {
			lease := e.try(e.mutex(c, "orders", cfg))
			for _, other := range clients {
				e.refused(e.mutex(other, "orders", cfg))
			}
			waiter := e.queued(e.mutex(clients[(i+1)%len(clients)], "orders", cfg))
			e.Pass(1300 * time.Millisecond) // a renewal
			if lease.Context().Err() != nil || waiter.over() || lease.Token() <= last {
				e.Errorf("client %d: context %v, token %d after %d", i, lease.Context().Err(), lease.Token(), last)
			}
			e.unlock(lease)
			next := waiter.granted()
			last = next.Token()
			e.unlock(next)
		}
	})
}

// A release takes so long that the lock has expired and belongs to another client. It
// releases nothing, because the check of the owner and the delete are one script.
func TestReleaseArrivesLate(t *testing.T) {
	onBoth(t, func(e *env) {
		e.warmAll()
		a, f := e.Linked("a")
		lease := e.try(e.mutex(a, "orders", ttl(3*time.Second)))
		late := f.Inject(e, lockcoretest.Fault{Kind: lockcoretest.DelayRequest, Match: e.script("mutex_leave")})
		done := make(chan error, 1)
		go func() { done <- lease.Unlock(e.Context()) }()
		e.Until("the release is on its way", func() bool { return late.Fired() > 0 })
		next := e.lock(e.mutex(e.Client("b"), "orders", ttl(time.Minute)))
		value := e.stored("orders")
		late.Lift()
		e.Logf("the late release: %v", <-done)
		e.barrier()
		if v := e.stored("orders"); v != value || next.Context().Err() != nil {
			e.Errorf("the late release changed %q to %q", value, v)
		}
		e.unlock(next)
	})
}
