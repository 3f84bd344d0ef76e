// Package draw picks winners at random.
package draw

import (
	"crypto/rand"
	"fmt"
	random "math/rand/v2"
)

// MaxWinners is the greatest number of winners of one draw.
const MaxWinners = 1000

// Winners returns k of the ids in random order. Every set of k is equally likely, and so is every
// order of it. It changes the order of ids.
func Winners(ids []string, k int) ([]string, error) {
	if len(ids) < k {
		return nil, fmt.Errorf("the number of eligible entrants is %d; it must be at least %d, the number of winners", len(ids), k)
	}
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // returns no errors: it ends the process
	r := random.New(random.NewChaCha8(seed))
	for i := range k {
		j := i + r.IntN(len(ids)-i)
		ids[i], ids[j] = ids[j], ids[i]
	}
	return ids[:k], nil
}
