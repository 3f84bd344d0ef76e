package lockcore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/noonlock/noonlock"
	"github.com/noonlock/noonlock/internal/testing/testenv"
	"github.com/noonlock/noonlock/lockcore"
	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

// idle returns a client that must not be used: its server does not exist.
func idle(t *testing.T) *lockcore.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: unreachable(t)})
	c := call(lockcore.New(rdb, lockcore.Config{})).Must(t)
	t.Cleanup(func() {
		must(t, c.Close(context.Background()))
		rdb.Close()
	})
	return c
}

// refusal asserts that err names the field and the rule in one short sentence.
func refusal(t testing.TB, err error, field, rule string) {
	t.Helper()
	var config *noonlock.ConfigError
	switch {
	case !errors.As(err, &config) || !errors.Is(err, noonlock.ErrConfig):
		t.Errorf("error %v, want a ConfigError", err)
	case config.Field != field || !strings.Contains(config.Rule, rule):
		t.Errorf("error %v, want field %s and rule %q", err, field, rule)
	case len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\x00"):
		t.Errorf("error of %d bytes or with control characters: %.300q", len(err.Error()), err.Error())
	}
}

// The rule for names also applies to owners.
func TestFault46_NamesAndOwners(t *testing.T) {
	t.Parallel()
	c := idle(t)
	for _, bad := range []struct{ name, rule string }{
		{"", "1 to 200 bytes"},
		{strings.Repeat("x", 201), "1 to 200 bytes"},
		{strings.Repeat("x", 1<<20), "1 to 200 bytes"},
		{strings.Repeat("ü", 101), "1 to 200 bytes"},
		{"a\x00b", "control characters"},
		{"a\nb", "control characters"},
		{"a\u0085b", "control characters"},
		{"a\x7fb", "control characters"},
		{"a b", "spaces"},
		{"a\u00a0b", "spaces"},
		{"a\u2003b", "spaces"},
		{"a{b", "braces"},
		{"a}b", "braces"},
		{"}:lock", "braces"},
		{"\xff\xfe", "UTF-8"},
		{"job/x", "job/"},
		{"election/x", "election/"},
	} {
		refuses := func(field string, allowed bool, err error) {
			t.Helper()
			if allowed {
				t.Errorf("%s %.20q was accepted", field, bad.name)
			}
			refusal(t, err, field, bad.rule)
		}
		m, err := c.Mutex(bad.name, lockcore.LeaseConfig{})
		refuses("name", m != nil, err)
		re, err := c.ReentrantMutex(bad.name, "me", lockcore.LeaseConfig{})
		refuses("name", re != nil, err)
		refuses("name", false, c.Do(t.Context(), bad.name, lockcore.LeaseConfig{}, func(context.Context) error { return nil }))
		if strings.HasSuffix(bad.rule, "/") { // operators may look at the locks of jobs and elections
			continue
		}
		call(c.Inspect(t.Context(), bad.name)).MustFail(t, noonlock.ErrConfig)
		call(c.ForceRelease(t.Context(), lockcore.Inspection{Name: bad.name})).MustFail(t, noonlock.ErrConfig)
		re, err = c.ReentrantMutex("orders", bad.name, lockcore.LeaseConfig{})
		refuses("owner", re != nil, err)
		rw, err := c.RWMutex("orders", bad.name, lockcore.LeaseConfig{})
		refuses("owner", rw != nil, err)
	}
	for _, good := range []string{"x", strings.Repeat("x", 200), "ü/ö:ä", "jobs/x", "a.b-c_d", "昼", ":lock", "*?[a]"} {
		call(c.Mutex(good, lockcore.LeaseConfig{})).Must(t)
	}
}

func TestFault47_Durations(t *testing.T) {
	t.Parallel()
	c := idle(t)
	const s = time.Second
	for _, bad := range []struct {
		cfg   lockcore.LeaseConfig
		field string
	}{
		{lockcore.LeaseConfig{TTL: -s}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 1}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 99 * time.Millisecond}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: s + 1}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: 24*time.Hour + time.Millisecond}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: math.MaxInt64}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{TTL: math.MinInt64}, "LeaseConfig.TTL"},
		{lockcore.LeaseConfig{RenewInterval: -s}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{RenewInterval: time.Millisecond}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{RenewInterval: 6 * s}, "LeaseConfig.RenewInterval"},
		{lockcore.LeaseConfig{ValidFor: -s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{ValidFor: 10 * s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{ValidFor: 3 * s}, "LeaseConfig.ValidFor"},
		{lockcore.LeaseConfig{Wait: -1}, "LeaseConfig.Wait"},
	} {
		m, err := c.Mutex("orders", bad.cfg)
		if m != nil {
			t.Errorf("%+v was accepted", bad.cfg)
			continue
		}
		refusal(t, err, bad.field, "")
		rw, err := c.RWMutex("orders", "me", bad.cfg)
		equal(t, "an RWMutex", rw, nil)
		refusal(t, err, bad.field, "")
	}
	for _, n := range []int{-1, 0, 1001} {
		_, err := c.Semaphore("gpus", n, lockcore.LeaseConfig{})
		refusal(t, err, "n", "")
	}
	for _, good := range []lockcore.LeaseConfig{
		{},
		{TTL: 100 * time.Millisecond},
		{TTL: 24 * time.Hour},
		{TTL: 10 * s, RenewInterval: 5 * s},
		{TTL: 10 * s, ValidFor: 9898 * time.Millisecond},
		{TTL: 10 * s, ValidFor: s, NoRenewal: true},
	} {
		call(c.Mutex("orders", good)).Must(t)
	}
}

func TestFault49_Nil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := lockcoretest.NewRedis(t)
		e := &env{Env: &testenv.Env{T: t, Bubble: r, Raw: r.Client(), Start: time.Now()}}
		if _, err := lockcore.New(nil, lockcore.Config{}); !errors.Is(err, noonlock.ErrConfig) {
			t.Errorf("New(nil): %v", err)
		}
		c := e.Client("a")
		m := e.mutex(c, "orders", lockcore.LeaseConfig{})
		refusal(t, c.Do(t.Context(), "orders", lockcore.LeaseConfig{}, nil), "fn", "a function")
		// A nil context panics, as in the standard library, and leaves nothing behind.
		var none context.Context
		for name, call := range map[string]func(){
			"TryLock": func() { _, _ = m.TryLock(none) },
			"Lock":    func() { _, _ = m.Lock(none) },
			"Do": func() {
				_ = c.Do(none, "orders", lockcore.LeaseConfig{}, func(context.Context) error { return nil })
			},
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s does not panic", name)
					}
				}()
				call()
			}()
		}
		lease := e.try(m)
		e.unlock(lease)
	})
}
