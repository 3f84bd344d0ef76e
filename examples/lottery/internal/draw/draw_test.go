package draw_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
)

const (
	draws    = 20_000
	entrants = 50
	winners  = 10
)

// drawing runs one draw and returns the winners as numbers in order.
type drawing func(random *rand.ChaCha8) ([]int, error)

func ours(random *rand.ChaCha8) ([]int, error) {
	s := draw.New(winners, random)
	for i := range entrants {
		s.Add(strconv.Itoa(i))
	}
	ids, err := s.Winners()
	numbers := make([]int, len(ids))
	for i, id := range ids {
		if numbers[i], err = strconv.Atoi(id); err != nil {
			return nil, err
		}
	}
	return numbers, err
}

// judge draws 20,000 times and returns the smallest p-value of three hypotheses: each entrant is drawn equally often, has
// each position equally often, and each pair is drawn equally often.
func judge(t *testing.T, d drawing) float64 {
	t.Helper()
	random := rand.NewChaCha8([32]byte([]byte("noonlock: a fixed seed for tests")))
	var often [entrants]float64
	var places [winners][entrants]float64
	var pairs [entrants][entrants]float64
	for range draws {
		w, err := d(random)
		if err != nil {
			t.Fatal(err)
		}
		if len(w) != winners {
			t.Fatalf("%d winners, want %d", len(w), winners)
		}
		for place, a := range w {
			often[a]++
			places[place][a]++
			for _, b := range w[:place] {
				pairs[min(a, b)][max(a, b)]++
			}
		}
	}
	if pairs[3][3] != 0 {
		t.Fatal("an entrant was drawn twice in one draw")
	}
	// Without replacement the counts vary less than in a multinomial draw, by this factor.
	correction := float64(entrants-1) / float64(entrants-winners)
	p := pValue(correction*chiSquared(often[:], draws*winners/entrants), entrants-1)
	for place := range places {
		p = min(p, pValue(chiSquared(places[place][:], float64(draws)/entrants), entrants-1))
	}
	// The pairs of one draw are not independent, and the counts of one entrant with the 49 others have a fixed sum. So each
	// pair is tested separately: the greatest deviation in standard deviations, times the number of pairs (Bonferroni).
	chance := float64(winners*(winners-1)) / float64(entrants*(entrants-1))
	worst := 0.0
	for a := range entrants {
		for b := a + 1; b < entrants; b++ {
			worst = max(worst, math.Abs(pairs[a][b]-draws*chance)/math.Sqrt(draws*chance*(1-chance)))
		}
	}
	return min(p, math.Erfc(worst/math.Sqrt2)*entrants*(entrants-1)/2)
}

func chiSquared(counts []float64, expected float64) float64 {
	sum := 0.0
	for _, c := range counts {
		sum += (c - expected) * (c - expected) / expected
	}
	return sum
}

// pValue returns the probability that a chi-squared variable with that many degrees of freedom exceeds x: the regularized
// upper incomplete gamma function Q(freedom/2, x/2), by its series for P = 1 − Q.
func pValue(x float64, freedom int) float64 {
	a := float64(freedom) / 2
	x /= 2
	if x > 500 { // the series would begin below the smallest float64
		return 0
	}
	gamma, _ := math.Lgamma(a)
	term := math.Exp(-x + a*math.Log(x) - gamma - math.Log(a))
	sum := term
	for n := 1.0; term > sum*1e-15 || n < x; n++ {
		term *= x / (a + n)
		sum += term
	}
	return max(0, 1-sum)
}

func TestPValue(t *testing.T) {
	t.Parallel()
	// From standard tables.
	for _, c := range []struct {
		x       float64
		freedom int
		p       float64
	}{{3.841, 1, 0.05}, {18.307, 10, 0.05}, {66.339, 49, 0.05}, {85.351, 49, 0.001}, {1e6, 49, 0}} {
		if got := pValue(c.x, c.freedom); math.Abs(got-c.p) > c.p/100 {
			t.Errorf("p(%g, %d) = %g, want %g", c.x, c.freedom, got, c.p)
		}
	}
}

const bar = 0.001

func TestUniform(t *testing.T) {
	t.Parallel()
	p := judge(t, ours)
	t.Logf("p = %.4f over %d draws of %d out of %d", p, draws, winners, entrants)
	if p <= bar {
		t.Errorf("p = %g, want more than %g", p, bar)
	}
}

// Typical mistakes of such code. The test above must detect each of them.
func TestBiasIsDetected(t *testing.T) {
	t.Parallel()
	below := func(random *rand.ChaCha8, n int) int { return int(random.Uint64() % uint64(n)) }
	reservoir := func(random *rand.ChaCha8, bound func(i int) int) []int {
		var w []int
		for i := range entrants {
			if len(w) < winners {
				w = append(w, i)
			} else if j := below(random, bound(i)); j < winners {
				w[j] = i
			}
		}
		return w
	}
	shuffle := func(random *rand.ChaCha8, w []int) []int {
		for i := len(w) - 1; i > 0; i-- {
			j := below(random, i+1)
			w[i], w[j] = w[j], w[i]
		}
		return w
	}
	for name, d := range map[string]drawing{
		"off by one": func(random *rand.ChaCha8) ([]int, error) {
			return shuffle(random, reservoir(random, func(i int) int { return i })), nil
		},
		"no shuffle": func(random *rand.ChaCha8) ([]int, error) {
			return reservoir(random, func(i int) int { return i + 1 }), nil
		},
		"shuffle that never leaves a winner in place": func(random *rand.ChaCha8) ([]int, error) {
			w := reservoir(random, func(i int) int { return i + 1 })
			for i := len(w) - 1; i > 0; i-- {
				j := below(random, i)
				w[i], w[j] = w[j], w[i]
			}
			return w, nil
		},
		"one byte without rejection": func(random *rand.ChaCha8) ([]int, error) {
			w := make([]int, 0, winners)
			for len(w) < winners {
				if v := int(random.Uint64()%256) % entrants; !slices.Contains(w, v) {
					w = append(w, v)
				}
			}
			return w, nil
		},
		"a block of neighbours": func(random *rand.ChaCha8) ([]int, error) {
			first := below(random, entrants)
			w := make([]int, winners)
			for i := range w {
				w[i] = (first + i) % entrants
			}
			return shuffle(random, w), nil
		},
	} {
		if p := judge(t, d); p > bar {
			t.Errorf("%s: p = %g passes", name, p)
		}
	}
	// The same code without a mistake passes, so the test detects the mistake itself.
	if p := judge(t, func(random *rand.ChaCha8) ([]int, error) {
		return shuffle(random, reservoir(random, func(i int) int { return i + 1 })), nil
	}); p <= bar {
		t.Errorf("without a mistake: p = %g", p)
	}
}

// The source of fair draws returns each block of its randomness once.
func TestSecure(t *testing.T) {
	t.Parallel()
	source, seen := draw.Secure(), map[uint64]bool{}
	for range 10_000 {
		seen[source.Uint64()] = true
	}
	if len(seen) != 10_000 {
		t.Errorf("%d different numbers of 10000", len(seen))
	}
}

func TestTooFew(t *testing.T) {
	t.Parallel()
	s := draw.New(3, draw.Secure())
	s.Add("a")
	s.Add("b")
	_, err := s.Winners()
	if !errors.Is(err, draw.ErrTooFew) || err.Error() != "draw: the number of eligible entrants is 2; it must be at least 3, the number of winners" {
		t.Errorf("Winners: %v", err)
	}
}

func TestAllWin(t *testing.T) {
	t.Parallel()
	s := draw.New(2, draw.Secure())
	s.Add("a")
	s.Add("b")
	w, err := s.Winners()
	slices.Sort(w)
	if err != nil || !slices.Equal(w, []string{"a", "b"}) {
		t.Errorf("Winners = %v, %v", w, err)
	}
}

func BenchmarkAdd(b *testing.B) {
	s := draw.New(winners, draw.Secure())
	for b.Loop() {
		s.Add("entrant-0001")
	}
}
