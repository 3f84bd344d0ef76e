package lockcoretest_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/noonlock/noonlock/lockcore/lockcoretest"
)

const (
	acquire   = lockcoretest.Acquire
	renew     = lockcoretest.Renew
	downgrade = lockcoretest.Downgrade
	release   = lockcoretest.Release
	lose      = lockcoretest.Lose
	use       = lockcoretest.Use
)

// at returns an event of name "n"; the optional last argument is ValidUntil.
func at(second int, proc string, op lockcoretest.Op, token uint64, validUntil ...int) lockcoretest.Event {
	e := lockcoretest.Event{At: time.Duration(second) * time.Second, Proc: proc, Name: "n", Op: op, Token: token}
	for _, s := range validUntil {
		e.ValidUntil = time.Duration(s) * time.Second
	}
	return e
}

func shared(e lockcoretest.Event) lockcoretest.Event {
	e.Shared = true
	return e
}

func named(name string, e lockcoretest.Event) lockcoretest.Event {
	e.Name = name
	return e
}

func TestHistory(t *testing.T) {
	tests := []struct {
		name   string
		events []lockcoretest.Event
		want   string // the problems, in order of time
	}{
		{"one after the other", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", use, 1), at(3, "a", release, 1),
			at(4, "b", acquire, 2), at(5, "b", lose, 2), at(6, "a", acquire, 3),
		}, ""},
		{"handed over at one instant", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", release, 1), at(2, "b", acquire, 2),
		}, ""},
		{"handed over too early in one instant", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "b", acquire, 2), at(2, "a", release, 1),
		}, "overlap"},
		{"overlap", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "b", acquire, 2), at(3, "a", release, 1),
		}, "overlap"},
		{"never released", []lockcoretest.Event{at(1, "a", acquire, 1), at(900, "b", acquire, 2)}, "overlap"},
		{"added in another order", []lockcoretest.Event{
			at(2, "b", acquire, 2), at(3, "a", release, 1), at(1, "a", acquire, 1),
		}, "overlap"},
		{"one process twice", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "a", acquire, 2)}, "overlap"},
		{"three at once", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "b", acquire, 2), at(3, "c", acquire, 3),
		}, "overlap, overlap, overlap"},
		{"other names", []lockcoretest.Event{at(1, "a", acquire, 2), named("m", at(2, "b", acquire, 1))}, ""},

		{"expired", []lockcoretest.Event{at(1, "a", acquire, 1, 5), at(5, "b", acquire, 2)}, ""},
		{"not yet expired", []lockcoretest.Event{at(1, "a", acquire, 1, 5), at(4, "b", acquire, 2)}, "overlap"},
		{"expired, lost recorded late", []lockcoretest.Event{
			at(1, "a", acquire, 1, 5), at(6, "b", acquire, 2), at(7, "a", lose, 1),
		}, ""},
		{"expired, release recorded late", []lockcoretest.Event{
			at(1, "a", acquire, 1, 5), at(6, "b", acquire, 2), at(7, "a", release, 1),
		}, ""},
		{"renewed", []lockcoretest.Event{
			at(1, "a", acquire, 1, 5), at(3, "a", renew, 1, 8), at(7, "a", use, 1), at(7, "b", acquire, 2),
		}, "overlap"},
		{"renewed too late", []lockcoretest.Event{at(1, "a", acquire, 1, 5), at(5, "a", renew, 1, 9), at(6, "b", acquire, 2)}, "event without a hold"},

		{"same token", []lockcoretest.Event{
			at(1, "a", acquire, 7), at(2, "a", release, 7), at(3, "b", acquire, 7),
		}, "token order"},
		{"same token, same process", []lockcoretest.Event{
			at(1, "a", acquire, 7), at(2, "a", lose, 7), at(3, "a", acquire, 7),
		}, "token order"},
		{"smaller token", []lockcoretest.Event{
			at(1, "a", acquire, 7), at(2, "a", release, 7), at(3, "b", acquire, 6),
		}, "token order"},
		{"smaller than an older one", []lockcoretest.Event{
			at(1, "a", acquire, 7), at(2, "a", release, 7), at(3, "b", acquire, 9), at(4, "b", release, 9), at(5, "c", acquire, 8),
		}, "token order"},

		{"use before", []lockcoretest.Event{at(1, "a", use, 1), at(2, "a", acquire, 1)}, "use outside a hold"},
		{"use after release", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "a", release, 1), at(3, "a", use, 1)}, "use outside a hold"},
		{"use when lost", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "a", lose, 1), at(2, "a", use, 1)}, "use outside a hold"},
		{"use when expired", []lockcoretest.Event{at(1, "a", acquire, 1, 5), at(5, "a", use, 1)}, "use outside a hold"},
		{"use with another's token", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "b", use, 1)}, "use outside a hold"},
		{"use with an older token", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", lose, 1), at(3, "a", acquire, 2), at(4, "a", use, 1),
		}, "use outside a hold"},

		{"released twice", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "a", release, 1), at(3, "a", release, 1)}, "event without a hold"},
		{"released by another process", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "b", release, 1)}, "event without a hold"},
		{"lost, never held", []lockcoretest.Event{at(1, "a", lose, 1)}, "event without a hold"},
		{"no such op", []lockcoretest.Event{at(1, "a", "", 1)}, "event without a hold"},

		{"reentrant", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", acquire, 1), at(3, "a", release, 1), at(4, "a", use, 1), at(5, "a", release, 1), at(6, "b", acquire, 2),
		}, ""},
		{"reentrant, one entry left", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", acquire, 1), at(3, "a", release, 1), at(6, "b", acquire, 2),
		}, "overlap"},
		{"reentrant, lost at once", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", acquire, 1), at(3, "a", lose, 1), at(6, "b", acquire, 2),
		}, ""},

		{"readers together", []lockcoretest.Event{
			shared(at(1, "a", acquire, 1)), shared(at(2, "b", acquire, 2)), at(3, "a", use, 1), at(4, "a", release, 1), at(5, "b", release, 2),
			at(6, "c", acquire, 3),
		}, ""},
		{"readers recorded in another order than granted", []lockcoretest.Event{
			shared(at(1, "b", acquire, 2)), shared(at(2, "a", acquire, 1)),
		}, ""},
		{"readers with one token", []lockcoretest.Event{
			shared(at(1, "a", acquire, 1)), shared(at(2, "b", acquire, 1)),
		}, "token order"},
		{"writer while one reads", []lockcoretest.Event{shared(at(1, "a", acquire, 1)), at(2, "b", acquire, 2)}, "overlap"},
		{"reader while one writes", []lockcoretest.Event{at(1, "a", acquire, 1), shared(at(2, "b", acquire, 2))}, "overlap"},
		{"writer while a second reader still reads", []lockcoretest.Event{
			shared(at(1, "a", acquire, 1)), shared(at(2, "b", acquire, 2)), at(3, "a", release, 1), at(4, "c", acquire, 3),
		}, "overlap"},
		{"downgraded", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", downgrade, 1), shared(at(3, "b", acquire, 2)), at(4, "a", release, 1), at(5, "b", release, 2),
		}, ""},
		{"downgraded too late", []lockcoretest.Event{
			at(1, "a", acquire, 1), shared(at(2, "b", acquire, 2)), at(3, "a", downgrade, 1),
		}, "overlap"},
		{"downgraded, then a writer", []lockcoretest.Event{
			at(1, "a", acquire, 1), at(2, "a", downgrade, 1), at(3, "b", acquire, 2),
		}, "overlap"},
		{"downgraded when over", []lockcoretest.Event{at(1, "a", acquire, 1), at(2, "a", release, 1), at(3, "a", downgrade, 1)}, "event without a hold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h lockcoretest.History
			h.Add(tt.events...)
			var problems []string
			for _, v := range h.Check() {
				problems = append(problems, string(v.Problem))
				if !strings.HasPrefix(v.String(), string(v.Problem)+": ") || len(v.Events) == 0 {
					t.Errorf("the text of a violation is %q", v)
				}
			}
			if got := strings.Join(problems, ", "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			var v verdict
			h.Require(&v)
			acquired := len(tt.events) > 1
			if v.failed != (tt.want != "" || !acquired) {
				t.Errorf("Require failed %v", v.failed)
			}
		})
	}
}

func TestEmptyHistoryFails(t *testing.T) {
	var h lockcoretest.History
	var v verdict
	if h.Require(&v); !v.failed {
		t.Error("a history without a hold passed")
	}
}

func TestHistoryRecordsFromManyGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := lockcoretest.NewClock()
		h := lockcoretest.NewHistory(clock.Now)
		var lock sync.Mutex
		var token uint64
		var wg sync.WaitGroup
		for _, proc := range []string{"a", "b", "c"} {
			wg.Go(func() {
				for range 20 {
					lock.Lock()
					token++
					e := lockcoretest.Event{Proc: proc, Name: "n", Token: token}
					for _, e.Op = range []lockcoretest.Op{acquire, use, release} {
						h.Record(e)
					}
					lock.Unlock()
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		h.Require(t)
		events := h.Events()
		if len(events) != 3*20*3 || events[len(events)-1].At != 19*time.Second {
			t.Errorf("%d events, the last %v", len(events), events[len(events)-1])
		}
		defer func() {
			if recover() == nil {
				t.Error("Record on a history without a clock returned")
			}
		}()
		new(lockcoretest.History).Record(lockcoretest.Event{})
	})
}

// Holds of one owner exclude only those of others. An owner keeps its token while it holds.
func TestHistoryOwners(t *testing.T) {
	take := func(at int, proc, owner string, shared bool, token uint64) lockcoretest.Event {
		return lockcoretest.Event{At: time.Duration(at), Proc: proc, Owner: owner, Name: "n", Op: lockcoretest.Acquire, Shared: shared, Token: token}
	}
	give := func(at int, proc string, token uint64) lockcoretest.Event {
		return lockcoretest.Event{At: time.Duration(at), Proc: proc, Name: "n", Op: lockcoretest.Release, Token: token}
	}
	const shared, exclusive = true, false
	for name, c := range map[string]struct {
		events []lockcoretest.Event
		want   []lockcoretest.Problem
	}{
		"an owner writes while it reads": {
			[]lockcoretest.Event{take(1, "a", "x", shared, 1), take(2, "b", "x", exclusive, 2)}, nil,
		},
		"an owner enters twice": {
			[]lockcoretest.Event{take(1, "a", "x", exclusive, 1), take(2, "b", "x", exclusive, 1)}, nil,
		},
		"another reads while an owner writes": {
			[]lockcoretest.Event{take(1, "a", "x", shared, 1), take(2, "b", "x", exclusive, 2), take(3, "c", "y", shared, 3)},
			[]lockcoretest.Problem{lockcoretest.Overlap},
		},
		"two without an owner": {
			[]lockcoretest.Event{take(1, "a", "", exclusive, 1), take(2, "b", "", exclusive, 2)},
			[]lockcoretest.Problem{lockcoretest.Overlap},
		},
		"an owner keeps its token beyond another reader": {
			[]lockcoretest.Event{
				take(1, "a", "x", shared, 1), take(2, "c", "y", shared, 2), give(3, "c", 2),
				take(4, "b", "x", shared, 1), give(5, "a", 1), take(6, "d", "x", shared, 1),
			}, nil,
		},
		"an owner reads again with its token from before another owner wrote": {
			[]lockcoretest.Event{
				take(1, "a", "x", shared, 1), give(2, "a", 1), take(3, "c", "y", exclusive, 2), give(4, "c", 2),
				take(5, "b", "x", shared, 1),
			}, []lockcoretest.Problem{lockcoretest.TokenOrder},
		},
		"a read with an older token is recorded after the same owner wrote": {
			[]lockcoretest.Event{take(1, "b", "x", exclusive, 2), give(2, "b", 2), take(3, "a", "x", shared, 1)}, nil,
		},
		"a write with an older token is recorded after the same owner wrote": {
			[]lockcoretest.Event{take(1, "b", "x", exclusive, 2), give(2, "b", 2), take(3, "a", "x", exclusive, 1)}, nil,
		},
		"an owner writes with an older token than another": {
			[]lockcoretest.Event{take(1, "b", "y", exclusive, 2), give(2, "b", 2), take(3, "a", "x", exclusive, 1)},
			[]lockcoretest.Problem{lockcoretest.TokenOrder},
		},
		"two owners with one token": {
			[]lockcoretest.Event{take(1, "a", "x", shared, 1), take(2, "b", "y", shared, 1)},
			[]lockcoretest.Problem{lockcoretest.TokenOrder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h lockcoretest.History
			h.Add(c.events...)
			var got []lockcoretest.Problem
			for _, v := range h.Check() {
				got = append(got, v.Problem)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", h.Check(), c.want)
			}
		})
	}
}
