package demo

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
)

// The whole demo with five servers.
func TestDemoOnAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := RunQuorum(t.Context(), Config{Entrants: listOf(40), Out: &out}); err != nil {
			t.Fatalf("%v\n%s", err, &out)
		}
		for text, times := range map[string]int{"ARE KILLED": 1, "commits": quorumNoons, "NOON ": quorumNoons, "10 different winners": quorumNoons, "FAILED": 0} {
			if n := strings.Count(out.String(), text); n != times {
				t.Errorf("%q is %d times in the output, want %d\n%s", text, n, times, &out)
			}
		}
	})
}
