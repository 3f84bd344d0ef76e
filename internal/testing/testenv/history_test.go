package testenv

import (
	"strings"
	"testing"
	"time"
)

// at returns an event of name "n"; the optional last argument is ValidUntil.
func at(second int, proc string, op Op, token uint64, validUntil ...int) Event {
	e := Event{At: time.Duration(second) * time.Second, Proc: proc, Name: "n", Op: op, Token: token}
	for _, s := range validUntil {
		e.ValidUntil = time.Duration(s) * time.Second
	}
	return e
}

func shared(e Event) Event {
	e.Shared = true
	return e
}

func of(owner string, e Event) Event {
	e.Owner = owner
	return e
}

func named(name string, e Event) Event {
	e.Name = name
	return e
}

func TestHistory(t *testing.T) {
	tests := []struct {
		name   string
		events []Event
		want   string // the problems, in order of time
	}{
		{"empty", nil, ""}, // it fails: no hold was acquired
		{"one after the other", []Event{
			at(1, "a", Acquire, 1), at(3, "a", Release, 1),
			at(4, "b", Acquire, 2), at(5, "b", Lose, 2), at(6, "a", Acquire, 3),
		}, ""},
		{"handed over at one instant", []Event{
			at(1, "a", Acquire, 1), at(2, "a", Release, 1), at(2, "b", Acquire, 2),
		}, ""},
		{"handed over too early in one instant", []Event{
			at(1, "a", Acquire, 1), at(2, "b", Acquire, 2), at(2, "a", Release, 1),
		}, "overlap"},
		{"overlap", []Event{
			at(1, "a", Acquire, 1), at(2, "b", Acquire, 2), at(3, "a", Release, 1),
		}, "overlap"},
		{"never released", []Event{at(1, "a", Acquire, 1), at(900, "b", Acquire, 2)}, "overlap"},
		{"one process twice", []Event{at(1, "a", Acquire, 1), at(2, "a", Acquire, 2)}, "overlap"},
		{"three at once", []Event{
			at(1, "a", Acquire, 1), at(2, "b", Acquire, 2), at(3, "c", Acquire, 3),
		}, "overlap, overlap, overlap"},
		{"other names", []Event{at(1, "a", Acquire, 2), named("m", at(2, "b", Acquire, 1))}, ""},

		{"expired", []Event{at(1, "a", Acquire, 1, 5), at(5, "b", Acquire, 2)}, ""},
		{"not yet expired", []Event{at(1, "a", Acquire, 1, 5), at(4, "b", Acquire, 2)}, "overlap"},
		{"expired, lost recorded late", []Event{
			at(1, "a", Acquire, 1, 5), at(6, "b", Acquire, 2), at(7, "a", Lose, 1),
		}, ""},
		{"expired, release recorded late", []Event{
			at(1, "a", Acquire, 1, 5), at(6, "b", Acquire, 2), at(7, "a", Release, 1),
		}, ""},
		{"renewed", []Event{
			at(1, "a", Acquire, 1, 5), at(3, "a", Renew, 1, 8), at(7, "b", Acquire, 2),
		}, "overlap"},
		{"renewed too late", []Event{at(1, "a", Acquire, 1, 5), at(5, "a", Renew, 1, 9), at(6, "b", Acquire, 2)}, "event without a hold"},

		{"same token", []Event{
			at(1, "a", Acquire, 7), at(2, "a", Release, 7), at(3, "b", Acquire, 7),
		}, "token order"},
		{"same token, same process", []Event{
			at(1, "a", Acquire, 7), at(2, "a", Lose, 7), at(3, "a", Acquire, 7),
		}, "token order"},
		{"smaller token", []Event{
			at(1, "a", Acquire, 7), at(2, "a", Release, 7), at(3, "b", Acquire, 6),
		}, "token order"},
		{"smaller than an older one", []Event{
			at(1, "a", Acquire, 7), at(2, "a", Release, 7), at(3, "b", Acquire, 9), at(4, "b", Release, 9), at(5, "c", Acquire, 8),
		}, "token order"},

		{"released twice", []Event{at(1, "a", Acquire, 1), at(2, "a", Release, 1), at(3, "a", Release, 1)}, "event without a hold"},
		{"released by another process", []Event{at(1, "a", Acquire, 1), at(2, "b", Release, 1)}, "event without a hold"},
		{"lost, never held", []Event{at(1, "a", Lose, 1)}, "event without a hold"},
		{"no such op", []Event{at(1, "a", "", 1)}, "event without a hold"},

		{"readers together", []Event{
			shared(at(1, "a", Acquire, 1)), shared(at(2, "b", Acquire, 2)), at(4, "a", Release, 1), at(5, "b", Release, 2),
			at(6, "c", Acquire, 3),
		}, ""},
		{"readers recorded in another order than granted", []Event{
			shared(at(1, "b", Acquire, 2)), shared(at(2, "a", Acquire, 1)),
		}, ""},
		{"readers with one token", []Event{
			shared(at(1, "a", Acquire, 1)), shared(at(2, "b", Acquire, 1)),
		}, "token order"},
		{"writer while one reads", []Event{shared(at(1, "a", Acquire, 1)), at(2, "b", Acquire, 2)}, "overlap"},
		{"reader while one writes", []Event{at(1, "a", Acquire, 1), shared(at(2, "b", Acquire, 2))}, "overlap"},
		{"writer while a second reader still reads", []Event{
			shared(at(1, "a", Acquire, 1)), shared(at(2, "b", Acquire, 2)), at(3, "a", Release, 1), at(4, "c", Acquire, 3),
		}, "overlap"},
		{"downgraded", []Event{
			at(1, "a", Acquire, 1), at(2, "a", Downgrade, 1), shared(at(3, "b", Acquire, 2)), at(4, "a", Release, 1), at(5, "b", Release, 2),
		}, ""},
		{"downgraded too late", []Event{
			at(1, "a", Acquire, 1), shared(at(2, "b", Acquire, 2)), at(3, "a", Downgrade, 1),
		}, "overlap"},
		{"downgraded, then a writer", []Event{
			at(1, "a", Acquire, 1), at(2, "a", Downgrade, 1), at(3, "b", Acquire, 2),
		}, "overlap"},

		// Holds of one owner exclude only those of others. An owner keeps its token while it holds.
		{"an owner writes while it reads", []Event{of("x", shared(at(1, "a", Acquire, 1))), of("x", at(2, "b", Acquire, 2))}, ""},
		{"an owner enters twice", []Event{of("x", at(1, "a", Acquire, 1)), of("x", at(2, "b", Acquire, 1))}, ""},
		{"another reads while an owner writes", []Event{
			of("x", shared(at(1, "a", Acquire, 1))), of("x", at(2, "b", Acquire, 2)), of("y", shared(at(3, "c", Acquire, 3))),
		}, "overlap"},
		{"an owner keeps its token beyond another reader", []Event{
			of("x", shared(at(1, "a", Acquire, 1))), of("y", shared(at(2, "c", Acquire, 2))), at(3, "c", Release, 2),
			of("x", shared(at(4, "b", Acquire, 1))), at(5, "a", Release, 1), of("x", shared(at(6, "d", Acquire, 1))),
		}, ""},
		{"an owner reads again with its token from before another owner wrote", []Event{
			of("x", shared(at(1, "a", Acquire, 1))), at(2, "a", Release, 1), of("y", at(3, "c", Acquire, 2)), at(4, "c", Release, 2),
			of("x", shared(at(5, "b", Acquire, 1))),
		}, "token order"},
		{"a read with an older token is recorded after the same owner wrote", []Event{
			of("x", at(1, "b", Acquire, 2)), at(2, "b", Release, 2), of("x", shared(at(3, "a", Acquire, 1))),
		}, ""},
		{"a write with an older token is recorded after the same owner wrote", []Event{
			of("x", at(1, "b", Acquire, 2)), at(2, "b", Release, 2), of("x", at(3, "a", Acquire, 1)),
		}, ""},
		{"an owner writes with an older token than another", []Event{
			of("y", at(1, "b", Acquire, 2)), at(2, "b", Release, 2), of("x", at(3, "a", Acquire, 1)),
		}, "token order"},
		{"two owners with one token", []Event{of("x", shared(at(1, "a", Acquire, 1))), of("y", shared(at(2, "b", Acquire, 1)))}, "token order"},

		{"downgraded when over", []Event{at(1, "a", Acquire, 1), at(2, "a", Release, 1), at(3, "a", Downgrade, 1)}, "event without a hold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := History{events: tt.events}
			var kinds []string
			wrong, stray := h.Check()
			for _, problem := range append(wrong, stray...) {
				kind, _, _ := strings.Cut(problem, ":")
				kinds = append(kinds, kind)
			}
			if got := strings.Join(kinds, ", "); got != tt.want {
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

// verdict records whether a test has failed.
type verdict struct {
	testing.TB

	failed bool
}

func (v *verdict) Helper()      {}
func (v *verdict) Error(...any) { v.failed = true }
