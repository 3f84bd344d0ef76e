package testenv

import (
	"strings"
	"testing"
)

// at returns an event of the name "n".
func at(proc string, op Op, token uint64) Event {
	return Event{Proc: proc, Name: "n", Op: op, Token: token}
}

func TestHistory(t *testing.T) {
	tests := []struct {
		name   string
		events []Event
		want   string // the problems, in order of time
	}{
		{"empty", nil, ""}, // it fails: no hold was acquired
		{"one after the other", []Event{at("a", Acquire, 1), at("a", Release, 1), at("b", Acquire, 2)}, ""},
		{"overlap", []Event{at("a", Acquire, 1), at("b", Acquire, 2), at("a", Release, 1)}, "overlap"},
		{"three at once", []Event{at("a", Acquire, 1), at("b", Acquire, 2), at("c", Acquire, 3)}, "overlap, overlap, overlap"},
		{"other names", []Event{at("a", Acquire, 2), {Name: "m", Proc: "b", Op: Acquire, Token: 1}}, ""},
		{"same token", []Event{at("a", Acquire, 7), at("a", Release, 7), at("b", Acquire, 7)}, "token order"},
		{"smaller token", []Event{at("a", Acquire, 7), at("a", Release, 7), at("b", Acquire, 6)}, "token order"},
		{"smaller than an older one", []Event{
			at("a", Acquire, 7), at("a", Release, 7), at("b", Acquire, 9), at("b", Release, 9), at("c", Acquire, 8),
		}, "token order"},
		{"released twice", []Event{at("a", Acquire, 1), at("a", Release, 1), at("a", Release, 1)}, "event without a hold"},
		{"released by another process", []Event{at("a", Acquire, 1), at("b", Release, 1)}, "event without a hold"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := History{events: tt.events}
			var kinds []string
			for _, problem := range h.Check() {
				kind, _, _ := strings.Cut(problem, ":")
				kinds = append(kinds, kind)
			}
			if got := strings.Join(kinds, ", "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			var v verdict
			h.Require(&v)
			if v.failed != (tt.want != "" || tt.events == nil) {
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
