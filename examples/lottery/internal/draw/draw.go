// Package draw picks winners at random. Every set of k entrants is equally likely, and so is every order of them.
//
// The entrants are read once, and their number need not be known in advance. Memory is that of the k winners. The
// algorithm is reservoir sampling, Algorithm R of Alan Waterman, from Donald Knuth, The Art of Computer Programming,
// volume 2, section 3.4.2. Algorithm L (Kim-Hung Li, 1994) needs less randomness but uses logarithms of floating-point
// numbers, so its draw is only approximately uniform. Algorithm R needs one exact integer per entrant, about 20 ns.
package draw

import (
	"bufio"
	crypto "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
)

// ErrTooFew matches every *TooFewError in errors.Is.
var ErrTooFew = errors.New("draw: fewer eligible entrants than winners")

// TooFewError reports that there are fewer eligible entrants than winners.
type TooFewError struct{ Entrants, Winners int }

// Error returns a text with both numbers.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("draw: the number of eligible entrants is %d; it must be at least %d, the number of winners", e.Entrants, e.Winners)
}

// Is reports whether target is ErrTooFew.
func (e *TooFewError) Is(target error) bool { return target == ErrTooFew }

// Sample is a draw in progress. It is not safe for concurrent use.
type Sample struct {
	k      int
	seen   uint64
	chosen []string
	random *rand.Rand
}

// MaxWinners limits the memory of a draw.
const MaxWinners = 1_000_000

// New starts a draw of k winners, 1 to MaxWinners. A fair draw needs Secure as its source.
func New(k int, random rand.Source) *Sample { return &Sample{k: k, random: rand.New(random)} }

// Secure returns a source that reads crypto/rand in blocks.
func Secure() rand.Source { return secure{bufio.NewReader(crypto.Reader)} }

type secure struct{ random *bufio.Reader }

// Uint64 implements rand.Source. crypto/rand returns no errors: it ends the process.
func (s secure) Uint64() uint64 {
	block, _ := s.random.Peek(8)
	v := binary.LittleEndian.Uint64(block)
	_, _ = s.random.Discard(8)
	return v
}

// Add adds an entrant to the draw. The caller must add each entrant once.
func (s *Sample) Add(id string) {
	s.seen++
	if len(s.chosen) < s.k {
		s.chosen = append(s.chosen, id)
		return
	}
	// The nth entrant replaces one of the k with probability k/n.
	if i := s.random.Uint64N(s.seen); i < uint64(s.k) {
		s.chosen[i] = id
	}
}

// Winners ends the draw and returns exactly k ids in random order, or a *TooFewError. Call it once.
func (s *Sample) Winners() ([]string, error) {
	if len(s.chosen) < s.k {
		return nil, &TooFewError{Entrants: len(s.chosen), Winners: s.k}
	}
	// So far the order depends on when entrants were added: the first k would mostly keep their positions.
	s.random.Shuffle(len(s.chosen), func(i, j int) { s.chosen[i], s.chosen[j] = s.chosen[j], s.chosen[i] })
	return s.chosen, nil
}
