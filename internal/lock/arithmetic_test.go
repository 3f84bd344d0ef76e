package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/noonlock/noonlock/internal/wire"
)

func TestTerms(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		cfg                                      LeaseConfig
		ttl, every, retry, valid, timeout, looks time.Duration
	}{
		{LeaseConfig{}, 10000 * ms, 10000 * ms / 3, 10000 * ms / 48, 9898 * ms, 3000 * ms, 11000 * ms},
		{LeaseConfig{TTL: 100 * ms}, 100 * ms, 100 * ms / 3, 100 * ms / 48, 97 * ms, 50 * ms, 1100 * ms},
		{LeaseConfig{TTL: 3 * time.Second}, 3000 * ms, 1000 * ms, 3000 * ms / 48, 2968 * ms, 1000 * ms, 3300 * ms},
		{LeaseConfig{TTL: time.Second, RenewInterval: 160 * ms, ValidFor: 500 * ms}, 1000 * ms, 160 * ms, 10 * ms, 500 * ms, 1000 * ms / 3, 1100 * ms},
	} {
		got, err := c.cfg.terms()
		if err != nil {
			t.Errorf("%+v: %v", c.cfg, err)
			continue
		}
		if got.ttl != c.ttl || got.times.Renew != c.every || got.times.Valid != c.valid || got.times.Try != c.timeout || got.timeout() != c.timeout || got.refresh() != c.looks {
			t.Errorf("%+v: %+v, timeout %v, refresh %v", c.cfg, *got, got.timeout(), got.refresh())
		}
		if d := got.times.Retry - c.retry; d < -1 || d > 1 {
			t.Errorf("%+v: retry %v, want %v", c.cfg, got.times.Retry, c.retry)
		}
	}
	if got := millis(1500 * time.Microsecond); got != 2 {
		t.Errorf("millis(1.5ms) = %d, want it rounded up", got)
	}
}

// For every TTL, a lease ends here before it ends on the server, even if the local clock is
// 1 % slow. If one renewal is lost, there is time for a second one.
func TestTermsAreSafe(t *testing.T) {
	t.Parallel()
	for ttl := minTTL; ttl <= maxTTL; ttl += max(time.Millisecond, (ttl / 50).Truncate(time.Millisecond)) {
		terms, err := LeaseConfig{TTL: ttl}.terms()
		if err != nil {
			t.Fatal(err)
		}
		if slow := terms.times.Valid + terms.times.Valid/100; slow >= ttl {
			t.Errorf("TTL %v: valid for %v, which a slow clock takes for %v", ttl, terms.times.Valid, slow)
		}
		if terms.times.Renew+terms.timeout()+terms.times.Retry >= terms.times.Valid {
			t.Errorf("TTL %v: no time for a second renewal in %v", ttl, terms.times.Valid)
		}
	}
}

func TestReadValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number   uint64
		identity string
	}{
		{1, "host-1"},
		{1<<64 - 1, "with / slashes . dots : and spaces"},
		{36, "nl1:X.1/forged"},
	} {
		for _, want := range []Value{{}, {mode: ModeWrite, Owner: "me"}, {mode: ModeRead, Owner: "a/b.c:d"}} {
			want.Identity, want.process, want.number = c.identity, "PROCESS", c.number
			value := kindOf(want).stored("PROCESS", c.number, c.identity)
			if v, ok := ReadValue(value); !ok || v != want {
				t.Errorf("%q was read as %+v, %v", value, v, ok)
			}
		}
	}
	for _, bad := range []string{"", "nl1:", "nl1:a", "nl1:a.b", "nl1:a.b.c", "nl1:a.1.x/i", "nl1:a.!/i", "nl2:a.1/i", "a foreign client", "ns1:a.1/me i", "ns1:a.1.r/i", "nl1:a.1.r/me i", "nl1:a.zzzzzzzzzzzzzz/i"} {
		if v, ok := ReadValue(bad); ok || v.Identity != "" {
			t.Errorf("%q was taken for one of ours and shows %q", bad, v.Identity)
		}
	}
}

func FuzzReadValue(f *testing.F) {
	f.Add("nl1:PROCESS.1/identity")
	f.Add("nl1:../")
	f.Add("ns1:PROCESS.1.r/owner identity")
	f.Fuzz(func(t *testing.T, value string) {
		p, ok := ReadValue(value)
		if !ok {
			return
		}
		rest, found := strings.CutPrefix(value[len("nl1"):], ":"+p.process+".")
		if !found || !strings.HasSuffix(rest, p.Identity) || p.number == 0 && !strings.Contains(rest, "0") {
			t.Errorf("%q was read as %+v", value, p)
		}
	})
}

// A reply that the script never returns is an error without a panic. The error's text does
// not contain the reply.
func TestFault34_OddReplies(t *testing.T) {
	t.Parallel()
	for _, odd := range []any{
		nil, int64(1), "OK", "", "0", "-5", "1.5",
		[]any{},
		[]any{nil},
		[]any{"1", "2"},
		[]any{int64(0)},
		[]any{int64(1)},
		[]any{int64(1), "1700000000000000"},
		[]any{int64(2), "5", "secret", "secret"},
		[]any{int64(2), int64(5), "secret"},
		[]any{int64(4), int64(5), "1", "secret"},
		[]any{int64(4), int64(5)},
		[]any{int64(5), int64(5)},
		[]any{int64(9)},
		map[any]any{"a": "secret"},
		true, 1.5,
	} {
		if r, ok := readAcquire(odd); ok {
			t.Errorf("%v was read as %+v", odd, r)
		}
		err := (&wire.Script{Name: "mutex_acquire"}).OddReply(odd)
		if text := err.Error(); !strings.Contains(text, "mutex_acquire") || strings.Contains(text, "secret") {
			t.Errorf("%v: %s", odd, text)
		}
	}
	for _, good := range []any{
		"1700000000000000",
		[]any{int64(2), int64(500), "1", "nl1:P.1/a"},
		[]any{int64(3), int64(-1), "1", ""},
		[]any{int64(4), int64(-2), ""},
		[]any{int64(5)},
		[]any{int64(6)},
		[]any{int64(7)},
	} {
		if _, ok := readAcquire(good); !ok {
			t.Errorf("%v was not read", good)
		}
	}
}

// A message to the first waiter may be forged: one that names a later end does not delay the look.
func TestFault123_TheEarliestEndCounts(t *testing.T) {
	t.Parallel()
	a := &Attempt{wake: make(chan struct{}, 1)}
	c := &Client{process: "p", waiting: map[uint64]*Attempt{1: a}}
	for _, left := range []string{"2000", "1000", "3600000"} {
		c.receive("h noonlock:{orders}:lock " + left + " nl1:p.1/b")
	}
	if end := time.Duration(a.lockEndsIn.Load()); end != time.Second {
		t.Errorf("the waiter looks after %v, want 1s", end)
	}
}
