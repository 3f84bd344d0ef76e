package noon_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/noon"
	"github.com/noonlock/noonlock/internal/testing/testenv"
)

// Each ordered pair of five is drawn about as often as each other one.
func TestWinnersAreUniform(t *testing.T) {
	t.Parallel()
	const draws, pairs = 20_000, 5 * 4
	times := map[string]int{}
	for range draws {
		ids, err := noon.Winners([]string{"a", "b", "c", "d", "e"}, 2)
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
	ids, err := noon.Winners([]string{"a", "b", "c"}, 3)
	if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"a", "b", "c"}) {
		t.Errorf("%q, %v", ids, err)
	}
}

// A list is read, and an error names the line and the rule.
func TestReadEntrants(t *testing.T) {
	t.Parallel()
	list, err := noon.ReadEntrants(strings.NewReader("\ufeffid,eligible\r\n\"a, b\",true\r\nc,false\r\n"))
	if err != nil || len(list) != 2 || !list["a, b"] || list["c"] || len(list.Eligible()) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	for text, want := range map[string]string{
		"":                                 "the list has no entrants; it must have the header id,eligible",
		"id,eligible\n":                    "the list has no entrants",
		"a,b\n":                            `line 1: the header is "a,b"; it must be id,eligible`,
		"id,eligible\na\n":                 "record on line 2: wrong number of fields",
		"id,eligible\na,maybe\n":           `line 2: eligible is "maybe"; it must be true or false`,
		"id,eligible\na,true\na,true\n":    `line 3: the id is "a", as in an earlier line; it must be unique`,
		"id,eligible\n a,true\n":           `line 2: the id is " a"; it must be 1 to 200 bytes of UTF-8`,
		"id,eligible\n,true\n":             `line 2: the id is ""; it must be 1 to 200 bytes`,
		"id,eligible\n\xff,true\n":         `line 2: the id is "\xff"; it must be`,
		"id,eligible\nb,true\na\"b,true\n": `line 3, column 2: bare " in non-quoted-field`,
		"id,eligible\n" + strings.Repeat("a", 201) + ",true\n": "it must be 1 to 200 bytes",
	} {
		if list, err := noon.ReadEntrants(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, list, err, want)
		}
	}
}
