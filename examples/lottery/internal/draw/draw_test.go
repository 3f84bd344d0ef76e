package draw_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/iotest"

	"github.com/noonlock/noonlock/examples/lottery/internal/draw"
)

const (
	draws    = 20_000
	entrants = 50
	winners  = 10
)

// drawing runs one draw and returns the winners as numbers in order.
type drawing func(random io.Reader) ([]int, error)

func ours(random io.Reader) ([]int, error) {
	s, err := draw.New(winners, random)
	if err != nil {
		return nil, err
	}
	for i := range entrants {
		if err := s.Add(strconv.Itoa(i)); err != nil {
			return nil, err
		}
	}
	ids, err := s.Winners()
	if err != nil {
		return nil, err
	}
	numbers := make([]int, len(ids))
	for i, id := range ids {
		if numbers[i], err = strconv.Atoi(id); err != nil {
			return nil, err
		}
	}
	return numbers, nil
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
	below := func(random io.Reader, n int) int {
		var b [8]byte
		if _, err := io.ReadFull(random, b[:]); err != nil {
			t.Fatal(err)
		}
		return int(binary.LittleEndian.Uint64(b[:]) % uint64(n))
	}
	reservoir := func(random io.Reader, bound func(i int) int) []int {
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
	shuffle := func(random io.Reader, w []int) []int {
		for i := len(w) - 1; i > 0; i-- {
			j := below(random, i+1)
			w[i], w[j] = w[j], w[i]
		}
		return w
	}
	for name, d := range map[string]drawing{
		"off by one": func(random io.Reader) ([]int, error) {
			return shuffle(random, reservoir(random, func(i int) int { return i })), nil
		},
		"no shuffle": func(random io.Reader) ([]int, error) {
			return reservoir(random, func(i int) int { return i + 1 }), nil
		},
		"shuffle that never leaves a winner in place": func(random io.Reader) ([]int, error) {
			w := reservoir(random, func(i int) int { return i + 1 })
			for i := len(w) - 1; i > 0; i-- {
				j := below(random, i)
				w[i], w[j] = w[j], w[i]
			}
			return w, nil
		},
		"one byte without rejection": func(random io.Reader) ([]int, error) {
			w := make([]int, 0, winners)
			for len(w) < winners {
				var b [1]byte
				if _, err := io.ReadFull(random, b[:]); err != nil {
					return nil, err
				}
				if v := int(b[0]) % entrants; !slices.Contains(w, v) {
					w = append(w, v)
				}
			}
			return w, nil
		},
		"a block of neighbours": func(random io.Reader) ([]int, error) {
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
	if p := judge(t, func(random io.Reader) ([]int, error) {
		return shuffle(random, reservoir(random, func(i int) int { return i + 1 })), nil
	}); p <= bar {
		t.Errorf("without a mistake: p = %g", p)
	}
}

// Values beyond the last multiple of n are discarded: the greatest 64-bit number counts only if n divides 2^64.
func TestRejection(t *testing.T) {
	t.Parallel()
	greatest := bytes.Repeat([]byte{0xff}, 8)
	zero := make([]byte, 8)
	s, err := draw.New(1, bytes.NewReader(slices.Concat(greatest, zero, greatest, greatest, zero)))
	if err != nil {
		t.Fatal(err)
	}
	// The 2nd entrant: 2 divides 2^64, so the greatest value counts. It is odd: not in. The 3rd: 0: in. The 4th: as the 2nd.
	// The 5th: the greatest value is beyond the last multiple and is discarded; then 0: in.
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		if err := s.Add(id); err != nil {
			t.Fatal(err)
		}
	}
	if w, err := s.Winners(); err != nil || w[0] != "e" {
		t.Errorf("Winners = %v, %v; want e", w, err)
	}
	if err := s.Add("f"); !errors.Is(err, io.EOF) {
		t.Errorf("all randomness should have been used, each value once: %v", err)
	}
}

func TestTooFew(t *testing.T) {
	t.Parallel()
	s, err := draw.New(3, rand.NewChaCha8([32]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.Add(id); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.Winners()
	if !errors.Is(err, draw.ErrTooFew) || err.Error() != "draw: the number of eligible entrants is 2; it must be at least 3, the number of winners" {
		t.Errorf("Winners: %v", err)
	}
}

func TestAllWin(t *testing.T) {
	t.Parallel()
	s, err := draw.New(2, rand.NewChaCha8([32]byte{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := s.Add(id); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Winners()
	slices.Sort(w)
	if err != nil || !slices.Equal(w, []string{"a", "b"}) {
		t.Errorf("Winners = %v, %v", w, err)
	}
}

func TestRandomnessFails(t *testing.T) {
	t.Parallel()
	errDry := errors.New("no randomness")
	s, err := draw.New(1, iotest.ErrReader(errDry))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Add("a"), s.Add("b")); !errors.Is(err, errDry) {
		t.Errorf("Add: %v", err)
	}
	s, err = draw.New(2, iotest.ErrReader(errDry))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Add("a"), s.Add("b")); err != nil {
		t.Fatal(err)
	}
	if w, err := s.Winners(); !errors.Is(err, errDry) || w != nil {
		t.Errorf("Winners = %v, %v", w, err)
	}
	// A reader that returns one byte at a time gives the same result.
	seed := [32]byte{1}
	whole, err := ours(rand.NewChaCha8(seed))
	if err != nil {
		t.Fatal(err)
	}
	if slow, err := ours(iotest.OneByteReader(rand.NewChaCha8(seed))); err != nil || !slices.Equal(slow, whole) {
		t.Errorf("one byte at a time: %v, %v; want %v", slow, err, whole)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, k := range []int{-1, 0, draw.MaxWinners + 1} {
		if _, err := draw.New(k, rand.NewChaCha8([32]byte{})); err == nil {
			t.Errorf("%d winners are accepted", k)
		}
	}
	if _, err := draw.New(1, nil); err == nil {
		t.Error("no randomness is accepted")
	}
}

func BenchmarkAdd(b *testing.B) {
	s, err := draw.New(winners, rand.NewChaCha8([32]byte{}))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Add("entrant-0001"); err != nil {
			b.Fatal(err)
		}
	}
}
