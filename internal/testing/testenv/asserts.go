package testenv

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A Result is the value and the error that a call has returned.
type Result[T any] struct {
	value T
	err   error
}

// Call returns the result of a call, as in Call(os.ReadFile(name)).Must(t).
func Call[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Must returns the value. It ends the test if there is an error.
func (r Result[T]) Must(t testing.TB) T {
	t.Helper()
	Must(t, r.err)
	return r.value
}

// MustFail asserts that there is an error, and that it matches each of the targets.
func (r Result[T]) MustFail(t testing.TB, is ...error) {
	t.Helper()
	if r.err == nil {
		t.Error("there is no error")
	}
	MustIs(t, r.err, is...)
}

// Equal asserts that a value is the wanted one.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// MustIs asserts that err is each of the targets.
func MustIs(t testing.TB, err error, is ...error) {
	t.Helper()
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("error is %v, want %v in its chain", err, target)
		}
	}
}

// MustNotBe asserts that err is none of the targets.
func MustNotBe(t testing.TB, err error, not ...error) {
	t.Helper()
	for _, target := range not {
		if errors.Is(err, target) {
			t.Errorf("error is %v, want no %v in its chain", err, target)
		}
	}
}

// Series reads one series: the value of a counter or gauge, or a histogram's number of observations. found
// reports whether there is a series with these labels, which are names and values in turn.
func Series(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) (value float64, found bool) {
	t.Helper()
	for _, family := range Call(reg.Gather()).Must(t) {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			have := map[string]string{}
			for _, l := range m.GetLabel() {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount()), true
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue(), true
		}
	}
	return 0, false
}
