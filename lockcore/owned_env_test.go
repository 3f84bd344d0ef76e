package lockcore_test

import (
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The scores of a lock with owners; see part_owned.lua.
const (
	writesScore = 1 << 51
	countScore  = 1 << 52
)

// A storedOwned is the stored value of a lock with owners, including ended entries.
type storedOwned struct {
	kind    string
	entries []storedEntry      // by mode and end
	tokens  map[string]string  // of entries
	counts  map[string]int64   // of owners
	end     int64              // of the last entry, ms
	members map[string]float64 // all
}

type storedEntry struct {
	attempt, mode string
	until         int64
}

func (e *env) storedOwned(name string) storedOwned {
	e.Helper()
	all, err := e.Raw.ZRangeWithScores(e.Context(), e.key(name, "lock"), 0, -1).Result()
	must(e, err)
	s := storedOwned{tokens: map[string]string{}, counts: map[string]int64{}, members: map[string]float64{}}
	for _, z := range all {
		member, _ := z.Member.(string)
		s.members[member] = z.Score
		score := int64(z.Score)
		sort, rest, _ := strings.Cut(member, ":")
		switch {
		case sort == "t":
			s.tokens[rest] = strconv.FormatInt(-score, 10)
		case sort == "n":
			s.counts[rest] = score - countScore
		case rest == "":
			s.kind = member
		default:
			x := storedEntry{member, "r", score}
			if score >= writesScore {
				x.mode, x.until = "w", score-writesScore
			}
			s.entries = append(s.entries, x)
			s.end = max(s.end, x.until)
		}
	}
	return s
}

// zOwned returns the members of a lock that has these entries.
func zOwned(kind string, entries []storedEntry, tokens map[string]int64) []redis.Z {
	all := []redis.Z{{Score: countScore, Member: kind}}
	counts := map[string]int{}
	for _, x := range entries {
		counts[ownerOf(x.attempt)]++
		score := float64(x.until)
		if x.mode == "w" {
			score += writesScore
		}
		all = append(all, redis.Z{Score: score, Member: x.attempt}, redis.Z{Score: -float64(tokens[x.attempt]), Member: "t:" + x.attempt})
	}
	for owner, n := range counts {
		all = append(all, redis.Z{Score: float64(countScore + n), Member: "n:" + owner})
	}
	return all
}
