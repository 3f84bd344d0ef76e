package draw_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
	"github.com/noonlock/noonlock/internal/testenv"
)

// Each ordered pair of five is drawn about as often as each other one.
func TestWinnersAreUniform(t *testing.T) {
	t.Parallel()
	const draws, pairs = 20_000, 5 * 4
	times := map[string]int{}
	for range draws {
		ids, err := draw.Winners([]string{"a", "b", "c", "d", "e"}, 2)
		testenv.Must(t, err)
		times[strings.Join(ids, "")]++
	}
	square := 0.
	for _, n := range times {
		d := float64(n) - draws/pairs
		square += d * d / (draws / pairs)
	}
	// Of a fair draw, the sum exceeds 75 once in 10^8 runs of this test (19 degrees of freedom).
	if len(times) != pairs || square > 75 {
		t.Errorf("%d pairs, chi-square %.1f: %v", len(times), square, times)
	}
}

func TestAllWin(t *testing.T) {
	t.Parallel()
	ids, err := draw.Winners([]string{"a", "b", "c"}, 3)
	if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", ids, err)
	}
}

func TestTooFew(t *testing.T) {
	t.Parallel()
	const want = "the number of eligible entrants is 1; it must be at least 2, the number of winners"
	if ids, err := draw.Winners([]string{"a"}, 2); err == nil || err.Error() != want {
		t.Errorf("%q, %v", ids, err)
	}
}
