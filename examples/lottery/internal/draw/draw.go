// Package draw picks winners at random. Every set of k entrants is equally likely, and so is every order of them.
//
// The entrants are read once, and their number need not be known in advance. Memory is that of the k winners. The
// algorithm is reservoir sampling, Algorithm R of Alan Waterman, from Donald Knuth, The Art of Computer Programming,
// volume 2, section 3.4.2. Algorithm L (Kim-Hung Li, 1994) needs less randomness but uses logarithms of floating-point
// numbers, so its draw is only approximately uniform. Algorithm R needs one exact integer per entrant, about 20 ns.
package draw

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
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
	random *bufio.Reader
}

// MaxWinners limits the memory of a draw.
const MaxWinners = 1_000_000

// New starts a draw of k winners, 1 to MaxWinners. It reads random in blocks, so it reads more than it uses. Use
// crypto/rand.Reader for a fair draw. The same random bytes and the same entrants in the same order give the same draw.
func New(k int, random io.Reader) (*Sample, error) {
	if k < 1 || k > MaxWinners {
		return nil, fmt.Errorf("draw: the number of winners is %d; it must be 1 to %d", k, MaxWinners)
	}
	if random == nil {
		return nil, errors.New("draw: the source of randomness is nil; it must be a reader such as crypto/rand.Reader")
	}
	return &Sample{k: k, random: bufio.NewReader(random)}, nil
}

// Add adds an entrant to the draw. The caller must add each entrant once. After an error the draw is invalid.
func (s *Sample) Add(id string) error {
	s.seen++
	if len(s.chosen) < s.k {
		s.chosen = append(s.chosen, id)
		return nil
	}
	// The nth entrant replaces one of the k with probability k/n.
	i, err := s.below(s.seen)
	if err != nil {
		return err
	}
	if i < uint64(s.k) {
		s.chosen[i] = id
	}
	return nil
}

// Winners ends the draw and returns exactly k ids in random order, or a *TooFewError. Call it once.
func (s *Sample) Winners() ([]string, error) {
	if len(s.chosen) < s.k {
		return nil, &TooFewError{Entrants: len(s.chosen), Winners: s.k}
	}
	// So far the order depends on when entrants were added: the first k would mostly keep their positions.
	for i := len(s.chosen) - 1; i > 0; i-- {
		j, err := s.below(uint64(i) + 1)
		if err != nil {
			return nil, err
		}
		s.chosen[i], s.chosen[j] = s.chosen[j], s.chosen[i]
	}
	return s.chosen, nil
}

// below returns an integer from 0 to n-1, each with exactly the same probability. It discards the values beyond the last
// whole multiple of n below 2^64, which would make small remainders more likely.
func (s *Sample) below(n uint64) (uint64, error) {
	beyond := math.MaxUint64%n + 1 // 2^64 mod n, or n if that is 0
	if beyond == n {
		beyond = 0
	}
	for {
		block, err := s.random.Peek(8)
		if err != nil {
			return 0, fmt.Errorf("draw: reading randomness after %s entrants: %w", strconv.FormatUint(s.seen, 10), err)
		}
		v := binary.LittleEndian.Uint64(block)
		if _, err := s.random.Discard(8); err != nil {
			return 0, err // unreachable after Peek
		}
		if v <= math.MaxUint64-beyond {
			return v % n, nil
		}
	}
}
