package lockcore_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/lockcore"
)

var (
	declared   = regexp.MustCompile(`(?m)^-- +(KEYS|ARGV)\[(\d+)\](\.\.\.)? +\w+ `)
	used       = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	otherwise  = regexp.MustCompile(`\b(KEYS|ARGV)\b(?:[^\[]|\[[^\d])`)
	twiceIsSaf = regexp.MustCompile(`(?m)^-- Twice is safe`)
)

// Each script's header declares what it is given, and it uses just that.
func TestScriptsDeclareWhatTheyUse(t *testing.T) {
	t.Parallel()
	names, err := lockcore.ScriptNames()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 3 {
		t.Fatalf("scripts: %v", names)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := lockcore.ScriptFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source, err := lockcore.ScriptSource(name)
			if err != nil {
				t.Fatal(err)
			}
			told, taken := map[string]bool{}, map[string]bool{}
			for _, m := range declared.FindAllStringSubmatch(file, -1) {
				told[m[1]+" "+m[2]] = true
			}
			for _, m := range used.FindAllStringSubmatch(source, -1) {
				taken[m[1]+" "+m[2]] = true
			}
			if !maps.Equal(told, taken) {
				t.Errorf("declared %v, used %v", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(taken)))
			}
			if m := otherwise.FindString(source); m != "" {
				t.Errorf("%q: only KEYS[n] and ARGV[n] can be checked", m)
			}
			for _, want := range []string{"-- " + name + ": ", "Returns "} {
				if !strings.Contains(file, want) {
					t.Errorf("the header lacks %q", want)
				}
			}
			if !twiceIsSaf.MatchString(file) {
				t.Error("the header does not say why running it twice is safe")
			}
			if strings.Contains(source, "--@include") {
				t.Error("an include was not replaced")
			}
		})
	}
}

// A counter that could not be seeded (rights were lacking), or was tampered with,
// is seeded at the next call: tokens are never small.
func TestTokenOfASpoiltCounter(t *testing.T) {
	onBoth(t, func(e *env) {
		m := e.mutex(e.client("a"), "orders", ttl(5*time.Second))
		lease := e.try(m)
		e.unlock(lease)
		e.pass(time.Millisecond)
		must(e, e.raw.Set(e.Context(), e.key("orders", "fence"), "1", 0).Err())
		next := e.try(m)
		if next.Token() <= lease.Token() {
			e.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		if e.raw.PTTL(e.Context(), e.key("orders", "fence")).Val() <= 0 {
			e.Error("the counter has no TTL")
		}
		e.unlock(next)
	})
}
