// Package draw picks winners at random: every set of k entrants is equally likely, and so is every order of them.
//
// The entrants come one after the other, once, and their number need not be known: memory is that of the k winners. It
// is reservoir sampling, Algorithm R of Alan Waterman, from Donald Knuth, The Art of Computer Programming, volume 2,
// section 3.4.2. Algorithm L (Kim-Hung Li, 1994) takes less randomness, but by way of logarithms of floating-point
// numbers, so its draw is only almost uniform; here each entrant costs one exact integer, some 20 ns.
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

// ErrTooFew is what every *TooFewError Is.
var ErrTooFew = errors.New("draw: fewer eligible entrants than winners")

// TooFewError says that there are not enough entrants to draw from.
type TooFewError struct{ Entrants, Winners int }

// Error names both numbers.
func (e *TooFewError) Error() string {
	return fmt.Sprintf("draw: too few eligible entrants: %d, to draw %d from", e.Entrants, e.Winners)
}

// Is reports whether target is ErrTooFew.
func (e *TooFewError) Is(target error) bool { return target == ErrTooFew }

// Sample is a draw in progress. It is for one goroutine.
type Sample struct {
	k      int
	seen   uint64
	chosen []string
	random *bufio.Reader
}

// MaxWinners bounds what a draw keeps in memory.
const MaxWinners = 1_000_000

// New begins a draw of k winners, 1 to MaxWinners. Randomness is read from random, in blocks, so more of it than is
// used: crypto/rand.Reader where it matters. The same bytes and the same entrants in the same order give the same draw.
func New(k int, random io.Reader) (*Sample, error) {
	if k < 1 || k > MaxWinners {
		return nil, fmt.Errorf("draw: the number of winners is %d; it must be 1 to %d", k, MaxWinners)
	}
	if random == nil {
		return nil, errors.New("draw: the source of randomness is nil; it must be a reader such as crypto/rand.Reader")
	}
	return &Sample{k: k, random: bufio.NewReader(random)}, nil
}

// Add offers an entrant. The caller sees to it that none comes twice. After an error the draw is void.
func (s *Sample) Add(id string) error {
	s.seen++
	if len(s.chosen) < s.k {
		s.chosen = append(s.chosen, id)
		return nil
	}
	// The nth entrant is in with probability k/n, in the place of any of the k.
	i, err := s.below(s.seen)
	if err != nil {
		return err
	}
	if i < uint64(s.k) {
		s.chosen[i] = id
	}
	return nil
}

// Winners ends the draw and returns exactly k ids in random order, or a *TooFewError. It is called once.
func (s *Sample) Winners() ([]string, error) {
	if len(s.chosen) < s.k {
		return nil, &TooFewError{Entrants: len(s.chosen), Winners: s.k}
	}
	// The places so far depend on when an entrant came: the first k would mostly stand where they began.
	for i := len(s.chosen) - 1; i > 0; i-- {
		j, err := s.below(uint64(i) + 1)
		if err != nil {
			return nil, err
		}
		s.chosen[i], s.chosen[j] = s.chosen[j], s.chosen[i]
	}
	return s.chosen, nil
}

// below returns an integer from 0 to n-1, each with exactly the same probability: of 2^64 values those beyond the last
// whole multiple of n are thrown away, or small remainders would be a little likelier.
func (s *Sample) below(n uint64) (uint64, error) {
	beyond := math.MaxUint64%n + 1 // 2^64 mod n, or n where that is 0
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
			return 0, err // never: they were there
		}
		if v <= math.MaxUint64-beyond {
			return v % n, nil
		}
	}
}
